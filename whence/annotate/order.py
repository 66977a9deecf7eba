"""Order the variables of decision diagrams: depth-first in the network whose edges they are.

Paths that begin alike then share nodes (paper 000, section VI). `DepthFirst` keeps such an order while edges come and
go; `Labels` gives every variable a sparse number by which the diagrams of `bdd.py` are ordered. A new variable gets one
between those of its neighbours. One that moves keeps its own, for a node's variable cannot move under it, until so much
has changed that the diagrams are rebuilt.
"""

from __future__ import annotations

import numpy as np

from whence.annotate.kernels import order as ko
from whence.model.codes import NULL, Codes
from whence.model.errors import DataError
from whence.model.record import KernelRecord

_MOST = 1 << 30  # variables
GAP = 1 << 32  # between the labels of neighbours, when all are given anew
_FEW = 64  # changes that never make a new order worth while
_OFTEN = 4  # a new order is due at most once in as many changes as 1/4 of the variables
_LARGE = 1024  # edges from which not every change is worth a pass over all
_RARELY = 64  # but one whenever 1/64 of them is new
_BULK = 4  # more new edges than 1/4 of those that are there are worth a traversal from scratch
_MUCH = 8  # and if more than 1/8 of the variables are out of order


class DepthFirst:
    """The edges of a network, in the order in which a depth-first traversal goes along them.

    Law: the order is exactly one such traversal (after an edge come the edges of its end, if that was not visited
    before), in which the edges of a node that were there before a change keep their order and new ones come last
    (Figure 9's four cases); more than a few are traversed from scratch. Cost: changes are noted, and the next one who
    asks for the order pays one pass over all edges.

    >>> order = DepthFirst()
    >>> order.insert(np.arange(3), np.array([7, 7, 8]), np.array([8, 9, 9])); order.edges.tolist()
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self._edges = np.empty(0, np.int64)  # the order, as of the last traversal
        self._new: list[Codes] = []  # edges since then
        self._gone = False  # whether edges went since then
        self._tail = self._head = np.empty(0, np.int64)  # [edge]: node numbers, NONE for none
        self._there = self._known = np.zeros(0, np.bool_)  # [edge]: it is there; it is among `_edges` and `_new`
        self._number: dict[int, int] = {}  # of a node, by its code
        self._leaving = self._entering = self._place = self._last = np.empty(0, np.int64)  # [node], kernels/order.py
        self._roots = np.empty(0, np.int64)
        self.count = 0

    @property
    def edges(self) -> Codes:
        """The order."""
        if self._new or self._gone:
            self._settle()
        return self._edges

    @property
    def pending(self) -> int:
        """How many edges came since the last traversal."""
        return sum(map(len, self._new))

    def insert(self, ids: Codes, starts: Codes, ends: Codes) -> None:
        """New edges, with the codes of their nodes; NULL where there is none. Those that are there are left alone."""
        if not len(ids):
            return
        if len(ids) > 1:
            ids, first = np.unique(ids, return_index=True)
            by_arrival = np.argsort(first)
            ids, starts, ends = ids[by_arrival], starts[first[by_arrival]], ends[first[by_arrival]]
        self._make_room(int(ids.max()) + 1)
        tail, head = self._numbers(starts), self._numbers(ends)
        if self._known[ids].any():
            fresh = ~self._there[ids]
            ids, tail, head = ids[fresh], tail[fresh], head[fresh]
            back = self._known[ids] & (self._tail[ids] == tail) & (self._head[ids] == head)
            self._count(ids[back], 1)  # gone and come again before anyone looked: they keep their places
            ids, tail, head = ids[~back], tail[~back], head[~back]
            if self._known[ids].any():
                self._settle()
        self._tail[ids], self._head[ids] = tail, head
        self._there[ids] = self._known[ids] = True
        self.count += len(ids)
        if len(ids):
            self._new.append(ids)

    def delete(self, ids: Codes) -> None:
        """Edges that are gone. What was reached through one alone follows the next edge that leads there, or, if none
        does, comes last."""
        ids = np.unique(ids)  # a row that is read twice goes twice
        ids = ids[ids < len(self._there)]
        ids = ids[self._there[ids]]
        if not len(ids):
            return
        if self._new and np.isin(ids, np.concatenate(self._new)).any():
            self._settle()
        self._count(ids, -1)
        self._gone = True

    def _count(self, ids: Codes, by: int) -> None:
        """Edges of the last traversal go (-1) or come back (1)."""
        self._there[ids] = by > 0
        self.count += by * len(ids)
        for count, nodes in ((self._leaving, self._tail[ids]), (self._entering, self._head[ids])):
            np.add.at(count, nodes[nodes != ko.NONE], by)

    def _settle(self) -> None:
        """Traverse what is there now."""
        old = self._edges
        if self._gone:
            old = self._edges[self._there[self._edges]]
            self._known[self._edges] = False
            self._known[old] = True
        new = np.concatenate([*self._new, old[:0]])
        roots = np.concatenate([self._roots, np.empty(len(new), np.int64)])
        count = ko.take_roots(
            self._tail[new], self._head[new], self._leaving, self._entering, self._place, roots, len(self._roots)
        )
        self._new, self._gone = [], False
        self._edges = np.concatenate([old, new])
        if len(new) > 1 and _BULK * len(new) > len(old):
            self.rebuild()
        else:
            self._traverse(roots, count)

    def behind(self, starts: Codes, ends: Codes) -> Codes:
        """Of new edges, known or not: the edge behind which each belongs as far as the last traversal can tell, NONE if
        at the end: the last one that its start reaches, else its end."""
        tail, head = self._numbers(starts), self._numbers(ends)
        last = np.append(self._last, ko.NONE)  # NONE is the last index, too
        return np.where(last[tail] != ko.NONE, last[tail], last[head])

    def rebuild(self) -> None:
        """Order anew by one traversal that forgets how edges came: it begins at the nodes to which none leads, and
        takes those edges of a node first that lead back to where it was."""
        edges, nodes = self.edges, len(self._leaving)
        x, y = self._tail[edges], self._head[edges]
        starts = x[x != ko.NONE]
        _, first = np.unique(starts, return_index=True)
        roots = starts[np.sort(first)]
        roots = roots[np.argsort(self._entering[roots] > 0, kind="stable")]
        out, none = np.empty(len(edges), np.int64), np.full(max(nodes, len(edges)), ko.NONE, np.int64)
        (out_first, by_tail), (in_first, by_head) = _by_node(x, nodes), _by_node(y, nodes)
        network = KernelRecord(
            ko.READY,
            **{"x": x, "y": y, "out_first": out_first, "by_tail": by_tail, "in_first": in_first, "by_head": by_head},
            **{"roots": roots, "out": out, "cursor": none[:nodes].copy(), "taken": np.zeros(len(edges), np.int64)},
            **{"following": none, "stack": np.empty(nodes + 1, np.int64)},
            ready=np.full((nodes, 2), ko.NONE, np.int64),
        )
        filled = ko.ready_first(network.address)
        self._edges = np.concatenate([edges[out[:filled]], edges[x == ko.NONE]])
        self._traverse(np.append(roots, np.empty(nodes, np.int64)), len(roots))

    def _traverse(self, roots: Codes, count: int) -> None:
        """Traverse the edges from the first `count` roots on."""
        nodes, out = len(self._leaving), np.empty(len(self._edges), np.int64)
        roots = np.concatenate([roots[:count], np.empty(nodes, np.int64)])
        traversal = KernelRecord(
            ko.TRAVERSAL,
            **{"edges": self._edges, "tail": self._tail, "head": self._head, "leaving": self._leaving},
            **{"place": self._place, "last": self._last, "roots": roots, "first": np.empty(nodes + 1, np.int64)},
            **{"by_tail": np.empty_like(out), "stack": np.empty(nodes + 1, np.int64), "out": out},
        )
        kept = ko.traverse(traversal.address, count)
        self._edges = out
        self._roots = roots[:kept].copy()

    def _numbers(self, codes: Codes) -> Codes:
        """Return the numbers of nodes, new ones included."""
        known, where = self._number, None
        if len(codes) > _FEW:
            codes, where = np.unique(codes, return_inverse=True)
        numbers = [ko.NONE if code == NULL else known.setdefault(code, len(known)) for code in codes.tolist()]
        if (more := len(known) - len(self._leaving)) > 0:
            more += len(known) // 4
            zeros = np.zeros(more, np.int64)
            self._leaving, self._entering = (np.concatenate([a, zeros]) for a in (self._leaving, self._entering))
            self._place, self._last = (np.concatenate([a, zeros + ko.NONE]) for a in (self._place, self._last))
        found = np.array(numbers, np.int64)
        return found if where is None else found[where]

    def _make_room(self, edges: int) -> None:
        if (more := edges - len(self._there)) > 0:
            more += edges // 4
            nowhere = np.full(more, ko.NONE, np.int64)
            self._tail, self._head = (np.concatenate([a, nowhere]) for a in (self._tail, self._head))
            self._there, self._known = (
                np.concatenate([a, np.zeros(more, np.bool_)]) for a in (self._there, self._known)
            )

    def image(self) -> dict[str, np.ndarray]:
        edges, codes = self.edges, np.array([*self._number, NULL], np.int64)
        return {
            "edges": np.stack([edges, codes[self._tail[edges]], codes[self._head[edges]]]),
            "roots": codes[self._roots],
        }

    def restore(self, image: dict[str, np.ndarray]) -> None:
        """Take the order of an image; this one must not have been used."""
        edges, roots = image.get("edges"), image.get("roots")
        if edges is None or roots is None or edges.ndim != 2 or len(edges) != 3 or (edges[0] < 0).any():
            raise DataError("the order of variables is not as it was written")
        self.insert(*edges)
        self._settle()
        if self.count != edges.shape[1] or not np.isin(roots, list(self._number)).all():
            raise DataError("the order of variables is not as it was written")
        roots = self._numbers(roots)
        self._edges = np.array(edges[0], np.int64)
        self._traverse(roots, len(roots))


class Labels:
    """A sparse number for each variable. Its order is that of `order` as of the last `in_order`, and of arrival among
    variables that were never placed; later variables stand beside those that they followed when they came.

    >>> labels = Labels(DepthFirst())
    >>> labels.place(np.array([0, 1]), np.array([7, 7]), np.array([8, 9]))
    >>> labels.place(np.array([2]), np.array([8]), np.array([9])); labels.of_variable[:3].argsort().tolist()
    [0, 2, 1]
    """

    def __init__(self, order: DepthFirst | None = None):
        self.order = order
        self.of_variable = np.full(16, -1, np.int64)
        self._in_use = np.empty(0, np.int64)  # labels, rising
        self._changes = 0  # edges that came or went since the last new order
        self._asked = 0  # changes when it was last counted how many are out of order

    @property
    def count(self) -> int:
        return len(self._in_use)

    def append(self, variables: Codes) -> bool:
        """Labels at the end for those that have none; whether there were such."""
        new = self._unlabelled(variables)
        if len(new):
            self._spread(new, np.full(len(new), self.count))
        return len(new) > 0

    def place(self, variables: Codes, starts: Codes, ends: Codes) -> None:
        """New variables that are edges, NULL where they have no start or end."""
        if self.order is None:
            self.append(variables)
            return
        self._changes += len(variables)
        self.order.insert(variables, starts, ends)
        new = self._unlabelled(variables)
        if not len(new):
            return
        if self.order.count > _LARGE and self.order.pending * _RARELY < self.order.count:
            _, which = np.unique(variables, return_index=True)
            which = which[self.of_variable[variables[which]] < 0]
            behind = self.order.behind(starts[which], ends[which])
            beside = np.where(behind == ko.NONE, -1, self.of_variable[behind])
            after = np.where(beside < 0, self.count, np.searchsorted(self._in_use, beside) + 1)
            self._spread(*_rising(variables[which], after))
            return
        fresh, after = np.empty(len(new), np.int64), np.empty(len(new), np.int64)
        count = ko.neighbours(self.order.edges, self.of_variable, self._in_use, fresh, after)
        self._spread(*_rising(fresh[:count], after[:count]))

    def _unlabelled(self, variables: Codes) -> Codes:
        """Those without a label, each once, in their order; there is room for all."""
        if not len(variables):
            return np.empty(0, np.int64)
        if (more := int(variables.max()) + 1 - len(self.of_variable)) > 0:
            more += len(self.of_variable) // 4
            self.of_variable = np.concatenate([self.of_variable, np.full(more, -1, np.int64)])
        new = variables[self.of_variable[variables] < 0]
        if len(new) < 2:
            return new
        _, first = np.unique(new, return_index=True)
        return new[np.sort(first)]

    def _spread(self, variables: Codes, after: Codes) -> None:
        """Label variables; `after` (rising) says how many labels in use come before each. Those of one gap share it
        evenly; where a gap is too small, all labels are given anew."""
        if self.count + len(variables) >= _MOST:
            raise DataError("too many variables of annotations")
        new = np.empty(len(variables), np.int64)
        if ko.spread(after, self._in_use, GAP, new) and new[-1] < _MOST * GAP:
            self.of_variable[variables] = new
            self._in_use = np.insert(self._in_use, after, new)
        else:
            mine = np.flatnonzero(self.of_variable >= 0)
            self._number(np.insert(mine[np.argsort(self.of_variable[mine])], after, variables))

    def _number(self, variables: Codes) -> None:
        """Labels a GAP apart for all variables, in this order."""
        self.of_variable[variables] = self._in_use = np.arange(1, len(variables) + 1) * GAP

    def lose(self, variables: Codes) -> None:
        """Variables that are gone from the order. They keep their labels, for functions may mention them."""
        if self.order is not None:
            self._changes += len(variables)
            self.order.delete(variables)

    @property
    def displaced(self) -> int:
        """The least number of variables that would have to move for labels to follow the order."""
        if self.order is None:
            return 0
        labels = self.of_variable[self.order.edges]
        return len(labels) - int(ko.longest_rise(labels, np.empty_like(labels)))

    @property
    def due(self) -> bool:
        """Whether much is out of order, and enough has changed since the last new order to pay for another."""
        if self.order is None or self._changes < max(_FEW, self.count // _OFTEN):
            return False
        if self._changes < self._asked:
            return False
        self._asked = self._changes + max(_FEW, self.count // _MUCH)
        return self.displaced * _MUCH > self.order.count

    def settle(self) -> None:
        """Count changes from here."""
        self._changes = self._asked = 0

    def in_order(self, mentioned: Codes) -> Labels:
        """New labels that follow the order, rebuilt; variables that are not in it follow if they are mentioned."""
        if self.order is not None:
            self.order.rebuild()
        fresh = Labels(self.order)
        fresh.of_variable = np.full_like(self.of_variable, -1)
        edges = np.empty(0, np.int64) if self.order is None else self.order.edges
        others = np.setdiff1d(mentioned, edges)
        fresh._number(np.concatenate([edges, others[np.argsort(self.of_variable[others])]]))
        return fresh

    def image(self) -> dict[str, np.ndarray]:
        image = {"labels": self.of_variable}
        if self.order is not None:
            image |= {**self.order.image(), "changes": np.array([self._changes, self._asked])}
        return image

    def restore(self, image: dict[str, np.ndarray]) -> None:
        """Take the labels of an image; these must not have been used."""
        label = image.get("labels")
        if label is None or label.ndim != 1 or ("edges" in image) != (self.order is not None):
            raise DataError("the labels of variables are not as they were written")
        self.of_variable = np.array(label, np.int64)
        self._in_use = np.sort(self.of_variable[self.of_variable >= 0])
        if (np.diff(self._in_use) <= 0).any():
            raise DataError("two variables have one label")
        if self.order is not None:
            self.order.restore(image)
            changes = image.get("changes", np.empty(0)).tolist()
            if len(changes) != 2:
                raise DataError("the labels of variables are not as they were written")
            self._changes, self._asked = changes


def _rising(variables: Codes, after: Codes) -> tuple[Codes, Codes]:
    if len(after) < 2:
        return variables, after
    by_gap = np.argsort(after, kind="stable")
    return variables[by_gap], after[by_gap]


def _by_node(ends: Codes, nodes: int) -> tuple[Codes, Codes]:
    """Edges by a node of theirs: where each node's begin, and the edges that have one."""
    by_node = np.argsort(ends, kind="stable")
    by_node = by_node[np.searchsorted(ends[by_node], 0) :]
    return np.searchsorted(ends[by_node], np.arange(nodes + 1)), by_node
