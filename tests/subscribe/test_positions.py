"""Positions: which ones a database recognises as its own past."""

from __future__ import annotations

import pytest

from whence.model.errors import DataError
from whence.subscribe.positions import NO_ERA, Era, HistoryLineage, Position

HISTORY = "0123456789ab"
FIRST, SECOND, THIRD = Era("aaaaaaaa", 0), Era("bbbbbbbb", 5), Era("cccccccc", 5)
OURS = HistoryLineage(HISTORY, (FIRST, SECOND, THIRD))


def at(era: str, epoch: int, history: str = HISTORY) -> Position:
    return Position(history, era, epoch)


@pytest.mark.parametrize("epoch", [0, 1, 17, 2**63 - 1])
def test_text_of_a_position_is_read_back(epoch: int) -> None:
    position = at("00c0ffee", epoch)
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "17",
        "..",
        "0123456789ab.00c0ffee",
        "0123456789ab.00c0ffee.",
        "0123456789ab.00c0ffee.-1",
        "0123456789ab.00c0ffee.+1",
        "0123456789ab.00c0ffee.01",
        "0123456789ab.00c0ffee.1.2",
        "0123456789ab.00c0ffee.1\n",
        " 0123456789ab.00c0ffee.1",
        "0123456789AB.00c0ffee.1",
        "0123456789a.00c0ffee.1",
        "0123456789ab.00c0ffe.1",
        "0123456789ab.00c0ffeg.1",
        "0123456789ab.00c0ffee.1_0",
        "0123456789ab.00c0ffee.\u0661",
        f"0123456789ab.00c0ffee.{2**63}",
        "0123456789ab.00c0ffee." + "9" * 5_000,
        "x" * 100_000,
    ],
)
def test_malformed_text_is_refused_briefly(text: str) -> None:
    with pytest.raises(DataError, match="is not a position") as caught:
        Position.parse(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [None, 17, b"0123456789ab.00c0ffee.17", ["0123456789ab"]])
def test_values_that_are_no_text_are_refused(value: object) -> None:
    with pytest.raises(DataError, match="is not a position"):
        Position.parse(value)  # type: ignore[arg-type]  # what a client sends may be anything


def test_reaches_compares_epochs_of_one_history() -> None:
    assert at("aaaaaaaa", 5).reaches(at("aaaaaaaa", 5))
    assert at("bbbbbbbb", 6).reaches(at("aaaaaaaa", 5))
    assert not at("bbbbbbbb", 4).reaches(at("aaaaaaaa", 5))
    assert not at("aaaaaaaa", 6).reaches(at("aaaaaaaa", 5, "f" * 12))


@pytest.mark.parametrize(
    ("epoch", "era"), [(0, "aaaaaaaa"), (4, "aaaaaaaa"), (5, "cccccccc"), (6, "cccccccc"), (1_000, "cccccccc")]
)
def test_epoch_has_the_position_of_the_last_era_that_has_begun(epoch: int, era: str) -> None:
    assert OURS.at(epoch) == at(era, epoch)


@pytest.mark.parametrize("epoch", range(10))
def test_every_position_of_our_past_is_known(epoch: int) -> None:
    assert OURS.knows(OURS.at(epoch), last=9)


def test_positions_beyond_the_end_of_an_era_are_unknown() -> None:
    assert [OURS.knows(at("aaaaaaaa", epoch), last=9) for epoch in (5, 6)] == [True, False]
    assert [OURS.knows(at("bbbbbbbb", epoch), last=9) for epoch in (5, 6)] == [True, False]
    assert [OURS.knows(at("cccccccc", epoch), last=9) for epoch in (9, 10)] == [True, False]


def test_restored_copy_knows_what_was_before_the_fork_only() -> None:
    """A folder is copied at epoch 5 of its first era; it and its copy go on, each in an era of its own."""
    original, copy = HistoryLineage(HISTORY, (FIRST, SECOND)), HistoryLineage(HISTORY, (FIRST, THIRD))
    for mine, other in ((original, copy), (copy, original)):
        assert mine.knows(at("aaaaaaaa", 5), last=8)
        assert not mine.knows(at("aaaaaaaa", 6), last=8)  # told before the copy was put in the original's place
        assert mine.knows(mine.at(8), last=8)
        assert not mine.knows(other.at(5), last=8)  # an era of which it knows nothing: costs a state
        assert not mine.knows(other.at(8), last=8)


def test_foreign_positions_are_unknown() -> None:
    assert not OURS.knows(at("aaaaaaaa", 1, "f" * 12), last=9)
    assert not OURS.knows(at("dddddddd", 1), last=9)
    assert not OURS.knows(at("aaaaaaaa", -1), last=9)
    assert not OURS.knows(at(NO_ERA.id, 1), last=9)


def test_eras_that_are_no_longer_listed_cost_only_a_state() -> None:
    kept = HistoryLineage(HISTORY, OURS.eras[1:])
    assert not kept.knows(at("aaaaaaaa", 3), last=9)
    assert kept.knows(kept.at(3), last=9)  # an epoch before all listed eras is named by the oldest


def test_database_without_eras_has_positions() -> None:
    lineage = HistoryLineage(HISTORY)
    assert lineage.at(7) == at(NO_ERA.id, 7)
    assert lineage.knows(lineage.at(7), last=7)
    assert not lineage.knows(lineage.at(8), last=7)
    assert lineage.era == NO_ERA


def test_fresh_lineages_share_nothing() -> None:
    one, other = HistoryLineage.fresh(), HistoryLineage.fresh()
    assert Position.parse(str(one.at(3))) == one.at(3)
    assert one.knows(one.at(3), last=3)
    assert not other.knows(one.at(0), last=3)
    assert one.era.id != other.era.id
