"""Covering: hulls of windows, sorted or not, of one source or several."""

from __future__ import annotations

import numpy as np
import pytest

from whence.annotate.covering import Covering
from whence.model.errors import DataError, EvaluationError


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_figure_9_covering_intervals() -> None:
    covering = Covering(("s",))
    a = covering.generate("s", numbers(1, 2, 3, 4, 6, 7))
    out = covering.over(a, numbers(0, 1, 2), numbers(4, 5, 6))
    assert [covering.shown(row) for row in out] == ["[1, 4]", "[2, 6]", "[3, 7]"]


def test_rows_out_of_order() -> None:
    covering = Covering(("s",))
    a = covering.generate("s", numbers(5, 2, 9, 3, 4, 8))
    out = covering.over(a, numbers(0, 1, 2, 3), numbers(3, 4, 5, 6))
    assert out.tolist() == [[2, 9], [2, 9], [3, 9], [3, 8]]


def test_each_group_is_in_its_own_order() -> None:
    """A new group begins with smaller tids; no window has rows of both."""
    covering = Covering(("s",))
    a = covering.generate("s", numbers(2, 4, 6, 1, 3, 5))
    out = covering.over(a, numbers(0, 1, 3, 4), numbers(2, 3, 5, 6))
    assert out.tolist() == [[2, 4], [4, 6], [1, 3], [3, 5]]


def test_rows_of_several_sources_and_of_none() -> None:
    covering = Covering(("a", "b"))
    column = np.concatenate(
        (covering.generate("a", numbers(7, 8)), covering.blank(1), covering.generate("b", numbers(3)))
    )
    out = covering.over(column, numbers(0, 1, 2, 2, 4), numbers(2, 4, 3, 4, 4))
    assert covering.spans(out, "a").tolist() == [[7, 8], [8, 8], [1, 0], [1, 0], [1, 0]]
    assert covering.spans(out, "b").tolist() == [[1, 0], [3, 3], [1, 0], [3, 3], [1, 0]]
    assert [covering.shown(row) for row in out] == ["a: [7, 8]", "a: [8, 8]; b: [3, 3]", "none", "b: [3, 3]", "none"]


def test_an_image_knows_its_sources() -> None:
    one, other = Covering(("a", "b")), Covering(("b", "c", "a"))
    column = one.times(one.generate("a", numbers(7)), one.generate("b", numbers(3)))
    assert other.restore(one.image(column)).tolist() == [[3, 3, 1, 0, 7, 7]]
    with pytest.raises(DataError, match="covering intervals of b, c, a, where a, b are traced"):
        one.restore(other.image(other.blank(1)))
    with pytest.raises(DataError, match="not as they were written"):
        one.restore(one.image(column) | {"spans": column[:, :2]})


def test_single_tids_are_not_known() -> None:
    with pytest.raises(EvaluationError, match="replay"):
        Covering(("a",)).tids(numbers(1), "a")
