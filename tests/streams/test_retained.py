"""What a stream keeps: the last rows, by count, bytes or age; through undo, images and any cut into batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.image import StaleImage
from whence.engine.core.operator import Batch
from whence.engine.streams import connection_point as module
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.stream_scan import StreamScan
from whence.model.errors import ExpiredError
from whence.model.types import BIGINT, Column, Schema
from whence.plan.streams.model import Retention


def rows(first: int, count: int) -> np.ndarray:
    at = np.arange(first, first + count, dtype=np.int64)
    return np.column_stack((at * 10, at))


def add(kept: ConnectionPoint, count: int, now: int | None = None) -> int:
    new = rows(kept.next, count)
    kept.append(new, np.ones(count, np.int64))
    return kept.commit(now)


def test_the_last_rows_are_kept_and_tids_go_on():
    kept = ConnectionPoint(2, Retention(rows=3), name="reading")
    assert [add(kept, n) for n in (2, 2, 5)] == [0, 1, 5]
    assert (kept.first, kept.next, len(kept), kept.complete) == (7, 10, 3, False)
    assert kept.scan().rows.tolist() == rows(7, 3).tolist()
    assert kept.at(np.array([9, 7])).tolist() == [[90, 9], [70, 7]]
    assert kept.between(8, 9)[0].tolist() == rows(8, 2).tolist()
    assert [kept.find_at(at) for at in (1, 7, 8, 10, 99)] == [7, 7, 8, 10, 10]


def test_what_has_expired_says_so():
    kept = ConnectionPoint(2, Retention(rows=3, text="3 rows"), name="reading")
    add(kept, 9)
    with pytest.raises(ExpiredError, match=r"stream reading no longer has tid 6: tid 7 is the first .*'3 rows'"):
        kept.at(np.array([7, 6]))
    with pytest.raises(ExpiredError, match="no tid 10 yet"):
        kept.between(9, 10)


def test_bytes_are_those_of_cells():
    kept = ConnectionPoint(2, Retention(nbytes=160))
    add(kept, 50)
    assert len(kept) == 10


def test_an_age_goes_by_the_times_of_epochs():
    kept = ConnectionPoint(2, Retention(micros=100))
    add(kept, 2)  # filled, at no time: as if it came with the next rows
    for now in (1000, 1050, 1099):
        add(kept, 1, now)
    assert kept.first == 1
    add(kept, 1, 1100)
    assert kept.first == 4
    add(kept, 1, 1200)
    assert (kept.first, kept.next) == (7, 8)


def test_epochs_that_fail_leave_no_trace():
    scan = StreamScan("s", Schema((Column("x", BIGINT),)), Retention(rows=4, micros=10**9))
    scan.context = EpochContext(1, 5)
    scan.apply([Batch(rows(1, 3), np.ones(3, np.int64), True)])
    scan.commit()
    before = {name: array.copy() for name, array in scan.image().items()}
    scan.context.enter(2, 6)
    scan.apply([Batch(rows(4, 100), np.ones(100, np.int64), True)])
    scan.undo()
    assert_same(scan.image(), before)
    assert scan.kept.last_at == 3


def assert_same(image, other):
    assert image.keys() == other.keys()
    for name in image:
        assert np.array_equal(image[name], other[name]), name


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["keep", "undo", "image"])), max_size=30),
    st.sampled_from([Retention(rows=7), Retention(nbytes=16 * 20), Retention(), Retention(micros=25)]),
)
def test_any_course_of_epochs_keeps_the_last_rows(steps, retention):
    module._CHUNK, before = 8, module._CHUNK
    try:
        kept = ConnectionPoint(2, retention)
        came: list[tuple[int, int]] = []  # of every row, its number and its time
        for now, (count, what) in enumerate(steps, 1):
            kept.append(rows(kept.next, count), np.ones(count, np.int64))
            if what == "undo":
                kept.undo()
                continue
            kept.commit(10 * now)
            came += [(n, 10 * now) for n in range(len(came) + 1, len(came) + 1 + count)]
            if what == "image":
                again = ConnectionPoint(2, retention)
                again.restore({name: array.copy() for name, array in kept.image().items()})
                assert_same(again.image(), kept.image())
                kept = again
            left = [n for n, time in came if retention.micros is None or time > 10 * now - retention.micros]
            left = left[-(retention.rows or 20 if retention.nbytes or retention.rows else len(left) or 1) :]
            assert kept.scan().rows[:, 1].tolist() == left
            assert (kept.next, kept.last_at) == (len(came) + 1, len(came))
    finally:
        module._CHUNK = before


def test_memory_is_that_of_what_is_kept_and_a_batch():
    kept = ConnectionPoint(2, Retention(rows=1000))
    for _ in range(200):
        add(kept, 500)
    assert kept.nbytes <= 16 * (1500 + 500 + 1000)
    few = ConnectionPoint(2, Retention(rows=10))
    for _ in range(2000):
        add(few, 1)
    assert few.nbytes <= 16 * 64


def test_images_of_another_shape_are_refused():
    kept, other = ConnectionPoint(2, Retention()), ConnectionPoint(3, Retention())
    add(kept, 5)
    with pytest.raises(StaleImage):
        other.restore(kept.image())
    assert (other.next, len(other)) == (1, 0)
