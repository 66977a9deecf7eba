"""The client's protocol against a scripted server: whatever is cut, lost or comes twice, nothing is done twice or
merged wrongly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.client.scripted import ScriptedServer
from whence.client import feeds
from whence.client.events import Answered, Event
from whence.client.feeds import SubscriptionFeed, SubscriptionRequest
from whence.client.protocol import ClientProtocol
from whence.model.errors import CatalogError, DisconnectedError, WhenceError
from whence.subscribe.messages import (
    CallMessage,
    Cancel,
    Done,
    ErrorMessage,
    Hello,
    InsertMessage,
    Subscribe,
    Subscribed,
    Unsubscribe,
    UpdateMessage,
    Wait,
)
from whence.subscribe.positions import Position


class Line:
    """A client and a scripted server, and what is on its way between them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.server = ScriptedServer()
        self.client = ClientProtocol("me", patience=10.0, clock=lambda: self.now)
        self.up: list[Any] = []
        self.down: list[Any] = []
        self.events: list[Event] = []
        self.connected = False

    def connect(self) -> None:
        self.client.connect("token")
        self.connected = True

    def cut(self) -> None:
        self.up, self.down, self.connected = [], [], False
        self.server.drop_connection()
        self.events += self.client.disconnect()

    def send(self) -> None:
        if self.connected:
            self.up += self.client.take_outgoing()

    def deliver_up(self, count: int | None = None) -> None:
        some, self.up = self.up[:count], [] if count is None else self.up[count:]
        for message in some:
            self.down += self.server.receive(message)

    def deliver_down(self, count: int | None = None) -> None:
        some, self.down = self.down[:count], [] if count is None else self.down[count:]
        for message in some:
            self.events += self.client.receive(message)

    def settle(self) -> None:
        """Connect, and deliver everything there is until nothing is on its way."""
        if not self.connected:
            self.connect()
        for _ in range(100):
            self.send()
            self.deliver_up()
            self.down += self.server.tell()
            if not self.down and not self.client.has_outgoing:
                return
            self.deliver_down()
        raise AssertionError("it never ends")

    def answers(self) -> dict[int, Any]:
        return {event.seq: event.answer for event in self.events if isinstance(event, Answered)}


def request(**given: Any) -> SubscriptionRequest:
    return SubscriptionRequest(["rows"], ["SELECT x FROM t"], **given)


def rows_of(feed: SubscriptionFeed) -> Counter[int]:
    return Counter(row[0] for row in feed.rows.first_rows)


def taken(feed: SubscriptionFeed) -> list[Any]:
    found = []
    while (update := feed.take()) is not None:
        found.append(update)
    return found


# -- what is sent ----------------------------------------------------------------------------------------------------


def test_hello_comes_first_and_alone() -> None:
    line = Line()
    line.client.insert("t", [[1]])
    line.client.subscribe(request())
    line.connect()
    line.send()
    assert line.up == [Hello(token="token", publisher="me")]
    line.deliver_up()
    line.deliver_down()
    line.send()
    assert [type(message) for message in line.up] == [Subscribe, InsertMessage]


def test_writes_are_numbered_in_their_order_and_sent_again_until_answered() -> None:
    line = Line()
    line.settle()
    first, second = line.client.insert("t", [[1]]), line.client.insert("t", [[2]])
    line.send()
    line.deliver_up(1)  # the first is done, and its answer is lost
    line.cut()
    line.connect()
    line.send()
    line.deliver_up()
    line.deliver_down()
    line.send()
    assert [(m.number, m.awaiting) for m in line.up if isinstance(m, InsertMessage)] == [(1, 1), (2, 1)]
    line.settle()
    assert line.answers()[first.seq].repeated
    assert not line.answers()[second.seq].repeated
    assert line.server.epochs[-1] == Counter([1, 2])
    assert line.client.position == Position.parse(line.server.at(2))


def test_numbers_of_the_user_are_kept() -> None:
    line = Line()
    line.client.insert("t", [[1]], number=70)
    line.client.insert("t", [[1]])
    line.settle()
    assert sorted(number for _, number in line.server.done) == [70, 71]


def test_reads_are_sent_again_and_writes_without_a_number_are_not() -> None:
    line = Line()
    line.settle()
    read = line.client.call("query", {"sql": "SELECT 1"})
    script = line.client.call("execute", {"sql": "DROP TABLE t"}, "never")
    line.send()
    line.cut()
    assert isinstance(line.answers()[script.seq], DisconnectedError)
    line.settle()
    assert line.answers()[read.seq].value == {"sql": "SELECT 1"}
    assert line.server.calls == ["query"]


def test_a_write_without_a_number_that_was_not_sent_waits_for_a_connection() -> None:
    line = Line()
    script = line.client.call("execute", {"sql": "DROP TABLE t"}, "never")
    line.connect()
    line.cut()
    line.settle()
    assert line.answers()[script.seq].value == {"sql": "DROP TABLE t"}


def test_no_more_is_under_way_than_the_server_allows() -> None:
    line = Line()
    line.settle()
    for i in range(20):
        line.client.insert("t", [[i]])
        line.client.call("query", {})
    line.send()
    assert Counter(type(message) for message in line.up) == {InsertMessage: 8, CallMessage: 4}
    line.settle()
    assert len(line.answers()) == 40


def test_a_cancelled_call_is_cancelled_at_the_server_and_its_answer_passed_over() -> None:
    line = Line()
    line.settle()
    call = line.client.call("why", {})
    line.send()
    line.client.cancel(call)
    line.send()
    assert line.up == [CallMessage(call.seq, "why", {}), Cancel(call.seq)]
    line.settle()
    assert line.answers() == {}


def test_an_error_is_raised_as_its_class() -> None:
    line = Line()
    call = line.client.call("fail", {})
    line.settle()
    assert isinstance(line.answers()[call.seq], CatalogError)


def test_an_acknowledgement_that_never_comes_is_asked_for_again() -> None:
    line = Line()
    line.settle()
    call = line.client.insert("t", [[1]])
    line.send()
    line.deliver_up()
    line.down.clear()
    line.client.check()
    line.send()
    assert line.up == []
    line.now += 10
    line.client.check()
    line.settle()
    assert line.answers()[call.seq].repeated
    assert line.server.epochs[-1] == Counter([1])


def test_refusing_ends_everything_with_the_error() -> None:
    line = Line()
    call, feed = line.client.insert("t", [[1]]), line.client.subscribe(request())
    error = WhenceError("no")
    events = line.client.refuse(error)
    assert [event.answer for event in events if isinstance(event, Answered)] == [error]
    assert (feed.ended, line.client.pending_calls, call.sent) == (error, [], None)


# -- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_subscription_goes_on_from_its_position_on_the_next_connection() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.server.commit([1, 2])
    line.settle()
    [first] = taken(feed)
    assert (first.restarted, sorted(first.came)) == ("begin", [(1,), (2,)])
    line.cut()
    line.server.commit([3], [1])
    line.settle()
    [second] = taken(feed)
    assert (second.restarted, second.came, second.went) == ("", [(3,)], [(1,)])
    assert rows_of(feed) == line.server.epochs[-1]


def test_updates_that_are_not_taken_become_one_net_update() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.settle()
    taken(feed)
    for came, went in (([1, 2], []), ([3], [1]), ([], [3])):
        line.server.commit(came, went)
        line.settle()
    [update] = taken(feed)
    assert (update.came, update.went, update.position.epoch) == ([(2,)], [], 3)


def test_every_change_is_kept_apart() -> None:
    line = Line()
    feed = line.client.subscribe(request(every_change=True))
    line.settle()
    for x in (1, 2, 3):
        line.server.commit([x])
        line.settle()
    assert [update.came for update in taken(feed)] == [[], [(1,)], [(2,)], [(3,)]]


def test_a_full_feed_asks_for_no_more_until_some_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MOST_UPDATES", 2)
    line = Line()
    feed = line.client.subscribe(request(every_change=True))
    line.settle()
    for x in range(5):
        line.server.commit([x])
        line.settle()
    assert (feed.is_full, line.server.followers) == (True, {})
    found = [feed.take()]
    line.client.taken(feed)
    line.settle()
    found += taken(feed)
    while feed.wire_id is None:
        line.client.taken(feed)
        line.settle()
        found += taken(feed)
    assert [update.came for update in found if update is not None] == [[], [(0,)], [(1,)], [(2,)], [(3,)], [(4,)]]


def test_lost_changes_are_told_with_the_state_that_follows() -> None:
    line = Line()
    feed = line.client.subscribe(request(every_change=True))
    line.settle()
    taken(feed)
    line.cut()
    for x in range(9):
        line.server.commit([x])
    line.settle()
    [update] = taken(feed)
    assert (update.restarted, update.lost[0].epoch, update.lost[1].epoch, len(update.rows)) == ("behind", 0, 9, 9)


def test_a_gap_is_never_merged() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.settle()
    line.server.commit([1])
    line.down += line.server.tell()
    line.down.clear()  # lost on the way
    line.server.commit([2])
    line.settle()
    taken(feed)
    assert rows_of(feed) == Counter([1, 2])


def test_a_message_that_comes_twice_is_applied_once() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.settle()
    line.server.commit([1])
    [update] = line.server.tell()
    line.down += [update, update]
    line.settle()
    taken(feed)
    assert rows_of(feed) == Counter([1])


def test_an_old_state_does_not_bring_back_the_past() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.connect()
    line.send()
    line.deliver_up()
    line.deliver_down()
    line.send()
    line.deliver_up()
    line.deliver_down()
    state = line.server.tell()
    line.down += state
    line.settle()
    line.server.commit([1])
    line.settle()
    line.down += state
    line.settle()
    assert [update.position.epoch for update in taken(feed)] == [1]
    assert rows_of(feed) == Counter([1])


def test_another_history_restarts_and_is_not_merged() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    for x in (1, 2, 3):
        line.server.commit([x])
    line.settle()
    taken(feed)
    line.server.replace_history(1)
    line.cut()
    line.server.commit([7])
    line.settle()
    [update] = taken(feed)
    assert (update.restarted, sorted(update.went), update.came) == ("restarted", [(2,), (3,)], [(7,)])
    assert sorted(update.rows) == [(1,), (7,)]


def test_a_restart_is_told_even_if_another_state_follows_before_it_is_taken() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.settle()
    taken(feed)
    line.server.replace_history(0)
    line.cut()
    line.settle()
    line.cut()
    for x in range(9):
        line.server.commit([x])
    line.settle()
    assert [update.restarted for update in taken(feed)] == ["restarted"]


def test_other_columns_after_reconnecting_replace_the_rows() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.server.commit([1])
    line.settle()
    taken(feed)
    line.cut()
    line.connect()
    line.send()
    line.deliver_up()
    line.deliver_down()
    line.send()
    line.deliver_up()
    [told] = line.down
    told.parts = [[("x", "BIGINT")]]
    line.deliver_down()
    line.send()
    [_, asked] = line.up
    assert (asked.have, isinstance(line.up[0], Unsubscribe)) == (None, True)
    line.deliver_up()
    [told] = line.down
    told.parts = [[("x", "BIGINT")]]
    line.settle()
    assert [update.restarted for update in taken(feed)] == ["redefined"]


def test_a_final_error_ends_the_subscription_and_nothing_is_tried_again() -> None:
    line = Line()
    feed = line.client.subscribe(SubscriptionRequest(["rows"], ["ghost"]))
    line.settle()
    assert isinstance(feed.ended, CatalogError)
    line.cut()
    line.settle()
    assert line.client.feeds == []


def test_an_error_while_it_runs_ends_it_only_if_it_is_final() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.settle()
    line.down.append(ErrorMessage("WhenceError", "a hiccup", id=feed.wire_id))
    line.settle()
    assert feed.ended is None
    line.down.append(ErrorMessage("CatalogError", "dropped", id=feed.wire_id, final=True))
    line.settle()
    assert str(feed.ended) == "dropped"


def test_waiting_is_asked_for_again_after_reconnecting() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.settle()
    line.client.wait(feed, Position.parse(line.server.at(2)))
    line.cut()
    line.connect()
    line.send()
    line.deliver_up()
    line.deliver_down()
    line.send()
    line.deliver_up()
    line.deliver_down()
    line.send()
    assert [type(message) for message in line.up] == [Wait]
    line.server.commit([])
    line.server.commit([])
    line.settle()
    assert (feed.wanted, feed.position) == (None, Position.parse(line.server.at(2)))


def test_a_subscription_without_an_answer_is_asked_for_again_with_growing_patience() -> None:
    line = Line()
    line.settle()
    feed = line.client.subscribe(request())
    asked = []
    for _ in range(70):
        line.send()
        asked += [line.now for message in line.up if isinstance(message, Subscribe)]
        line.up.clear()
        line.now += 1
        line.client.check()
    assert asked == [0, 10, 30]
    line.settle()
    assert len(taken(feed)) == 1


def test_have_and_rows_of_the_user_are_gone_on_from() -> None:
    line = Line()
    line.server.commit([1])
    line.server.commit([2])
    have = Position.parse(line.server.at(1))
    feed = line.client.subscribe(request(have=have, rows=[[(1,)]]))
    line.settle()
    [update] = taken(feed)
    assert (update.came, update.rows, update.restarted) == ([(2,)], [(1,), (2,)], "")


def test_a_subscribed_message_with_another_number_of_queries_is_an_error() -> None:
    line = Line()
    feed = line.client.subscribe(request())
    line.connect()
    line.send()
    line.deliver_up()
    line.deliver_down()
    line.send()
    line.down.append(Subscribed(feed.wire_id or 0, line.server.at(0), []))
    line.deliver_down()
    assert feed.ended is not None


def test_messages_of_unknown_subscriptions_and_calls_are_passed_over() -> None:
    line = Line()
    line.settle()
    at = line.server.at(0)
    line.down += [UpdateMessage(9, at, at, 0, [None]), Done(9, 1, at), Subscribed(9, at, [])]
    line.settle()
    assert line.answers() == {}


# -- at random -------------------------------------------------------------------------------------------------------


class Network(RuleBasedStateMachine):
    """Inserts, subscriptions, cuts, losses, repetitions and copies of the past in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.feeds: list[SubscriptionFeed] = []
        self.inserted: list[int] = []
        self.writes: list[Any] = []
        self.replaced = False

    @rule()
    def insert(self) -> None:
        x = len(self.inserted)
        self.inserted.append(x)
        self.writes.append(self.line.client.insert("t", [[x]]))

    @rule(went=st.lists(st.integers(0, 20), max_size=3), came=st.lists(st.integers(100, 103), max_size=2))
    def others_write(self, went: list[int], came: list[int]) -> None:
        self.line.server.commit(came, [x for x in went if x >= 100])

    @precondition(lambda self: len(self.feeds) < 3)
    @rule(every_change=st.booleans())
    def subscribe(self, every_change: bool) -> None:
        self.feeds.append(self.line.client.subscribe(request(every_change=every_change)))

    @precondition(lambda self: not self.line.connected)
    @rule()
    def connect(self) -> None:
        self.line.connect()

    @precondition(lambda self: self.line.connected)
    @rule(count=st.integers(0, 5))
    def cut(self, count: int) -> None:
        self.line.send()
        self.line.deliver_up(count)
        self.line.deliver_down(count)
        self.line.cut()

    @rule(count=st.integers(1, 6))
    def pass_on(self, count: int) -> None:
        self.line.send()
        self.line.deliver_up(count)
        if self.line.connected:
            self.line.down += self.line.server.tell()
        self.line.deliver_down(count)

    @precondition(lambda self: self.line.down)
    @rule(data=st.data(), what=st.sampled_from(["drop", "double", "swap"]))
    def disturb(self, data: st.DataObject, what: str) -> None:
        """Lose something that the server sends, send it twice or too late."""
        down = self.line.down
        at = data.draw(st.integers(0, len(down) - 1))
        if what == "drop":
            del down[at]
        elif what == "double":
            down.insert(at, down[at])
        elif at:
            down[at - 1], down[at] = down[at], down[at - 1]

    @precondition(lambda self: not self.replaced)
    @rule(upto=st.integers(0, 8))
    def restore_a_copy(self, upto: int) -> None:
        self.replaced = True
        self.line.server.replace_history(upto)
        if self.line.connected:
            self.line.cut()

    @rule()
    def take(self) -> None:
        for feed in self.feeds:
            before = feed.rows.position
            update = feed.take()
            self.line.client.taken(feed)
            if update is None:
                continue
            after = update.position
            assert Counter(row[0] for row in update.rows) == self.line.server.rows_at(after)
            if before is not None and before.history == after.history:
                assert after.epoch >= before.epoch

    @invariant()
    def nothing_is_doubled(self) -> None:
        rows = self.line.server.epochs[-1]
        assert all(rows[x] <= 1 for x in self.inserted)

    def teardown(self) -> None:
        line = self.line
        for _ in range(12):
            line.settle()
            line.now += 400
            line.client.check()
            line.server.commit([500])
        line.settle()
        answers = line.answers()
        assert all(isinstance(answers[write.seq], Done) for write in self.writes)
        if not self.replaced:
            assert all(line.server.epochs[-1][x] == 1 for x in self.inserted)
        for feed in self.feeds:
            while feed.take() is not None:
                line.client.taken(feed)
                line.settle()
            assert rows_of(feed) == line.server.epochs[-1]


Network.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestNetwork = Network.TestCase
