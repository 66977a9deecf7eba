"""Decision diagrams: the exact function of a row, if it fits.

The cone is made smaller first (`simplify.py`). What is left is compiled in one of two ways:

    one node a body     paths in a network: the frontier of decided arcs (`kernels/frontier.py`)
    otherwise           least fixpoints of decision diagrams by oxidd, one cycle of nodes after another; a tally by
                        going through its elements with the sums so far

Either way the result is arrays (variable, low, high) with parents before children, over which probabilities and slopes
are single passes. More than `limit` nodes raise `DiagramTooLarge`, which callers answer by sampling.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from oxidd.bdd import BDDManager
from oxidd.util import DDMemoryError

from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.frontier_order import FrontierPlan, plan_frontier
from whence.explain.ask.simplify import Body, Floats, System, build_system, simplify
from whence.explain.ask.tally import Scale
from whence.explain.graph import Ints
from whence.explain.kernels import diagram
from whence.explain.kernels.frontier import decide
from whence.model.budget import reach
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.plan.recursion.scc import strongly_connected

LIMIT = 2_000_000  # nodes of a decision diagram
STATES = 100_000  # of one tally
MOST = 50_000  # derivations that are simplified
WIDEST = 64  # slots of a frontier: the bits of a word


class DiagramTooLarge(WhenceError):  # noqa: N818  # an answer as much as an error
    """The function has no decision diagram within the limit."""


@dataclass(frozen=True)
class DecisionDiagram:
    """A function as a diagram over the variables of a system. Nodes 0 and 1 are false and true."""

    system: System
    variable: Ints
    low: Codes
    high: Codes
    root: int

    def __len__(self) -> int:
        return len(self.variable) - 2

    def probability(self, given: Floats) -> float:
        """Compute the probability that it is true, with independent base rows of these probabilities."""
        found = diagram.weigh(self.variable, self.low, self.high, self.system.probabilities(given))
        return float(found[self.root])

    def slopes(self, given: Floats) -> Floats:
        """Compute how the probability changes with that of each base row."""
        chances = self.system.probabilities(given)
        outer = diagram.slopes(self.variable, self.low, self.high, self.root, chances)
        return self.system.gradient(chances, outer)


def build_diagram(evaluator: Evaluator, limit: int = LIMIT, pair: Floats | None = None) -> DecisionDiagram:
    """Build the decision diagram of the first root. With `pair`, the probabilities of base rows, only its probability
    for these is right (see `simplify`), base rows that are certain or impossible are left out, and it is often far
    smaller."""
    if len(evaluator.graph.head) > MOST:
        raise DiagramTooLarge(f"the row has more than {MOST:,} derivations below it")
    if pair is None:
        equations = simplify(build_system(evaluator))
    else:
        sure, never = np.flatnonzero(pair == 1), np.flatnonzero(pair == 0)
        equations = simplify(build_system(evaluator, sure.astype(np.int32), never.astype(np.int32)), pair)
    if equations.constant is not None:
        return _constant(equations, equations.constant)
    if equations.linear:
        return _network(equations, limit)
    return _Diagrams(equations, evaluator, limit).build_diagram()


def _constant(equations: System, value: bool) -> DecisionDiagram:
    return DecisionDiagram(
        equations, np.array([-1, -1], np.int32), np.zeros(2, np.int64), np.zeros(2, np.int64), int(value)
    )


def _network(equations: System, limit: int) -> DecisionDiagram:
    found = plan_frontier(equations, WIDEST)
    if found is None:
        raise DiagramTooLarge(f"the frontier of the row's derivations is more than {WIDEST} nodes wide")
    level, low, high = _decide_all(found, limit)
    return _finish(equations, _variables(level, found), low, high)


def _decide_all(plan: FrontierPlan, limit: int) -> tuple[Ints, Codes, Codes]:
    """Decide one step after another; return the diagram as (step, low, high), parents before children."""
    shape = (plan.starts, plan.tails, plan.tops, plan.slot, plan.begin, plan.always)
    states, after = np.zeros((16, plan.width), np.uint64), np.zeros((16, plan.width), np.uint64)
    now, onward = np.zeros(plan.width, np.uint64), np.zeros(plan.width, np.uint64)
    level, low, high = np.zeros(1024, np.int32), np.empty(1024, np.int64), np.empty(1024, np.int64)
    made, count, steps = 3, 1, len(plan.starts) - 1
    for k in range(steps):
        reach("decision diagram", k, steps)
        if len(after) < 2 * count:
            after = np.zeros((2 * count + 16, plan.width), np.uint64)
        table = np.empty(max(64, 1 << (4 * count - 1).bit_length()), np.int64)
        more = decide(k, made - count, made, count, states, after, now, onward, table, low, high, *shape)
        if made + more > limit:
            raise DiagramTooLarge(f"the row's function has more than {limit:,} nodes")
        if made + more > len(level):
            wanted = 2 * (made + more)
            level.resize(wanted, refcheck=False)
            low.resize(wanted, refcheck=False)
            high.resize(wanted, refcheck=False)
        level[made : made + more] = k + 1
        made, count = made + more, more
        states, after = after, states
        if not count:
            break
    return level[:made], low[:made], high[:made]


def _variables(level: Ints, found: FrontierPlan) -> Ints:
    listed: Ints = found.variables[level]
    listed[:2] = -1
    return listed


def _finish(equations: System, variable: Ints, low: Codes, high: Codes) -> DecisionDiagram:
    low, high = low.copy(), high.copy()
    low[:2] = high[:2] = 0
    return DecisionDiagram(equations, *diagram.reduce(variable, low, high))


class _Diagrams:
    """Systems with several nodes a body or tallies, compiled by oxidd."""

    def __init__(self, equations: System, evaluator: Evaluator, limit: int):
        self.equations, self.tallies, self.limit = equations, evaluator.graph.tallies, limit
        self.order = _depth_first(equations)
        self.place = {v: i for i, v in enumerate(self.order)}

    def build_diagram(self) -> DecisionDiagram:
        for capacity in sorted({min(1 << 16, self.limit), self.limit}):
            try:
                return self._compile(capacity)
            except DDMemoryError:
                continue
        raise DiagramTooLarge(f"the row's function has more than {self.limit:,} nodes")

    def _compile(self, capacity: int) -> DecisionDiagram:
        manager = BDDManager(capacity, capacity, 1)
        manager.add_vars(max(len(self.order), 1))
        self.known: dict[int, Any] = {v: manager.var(i) for i, v in enumerate(self.order)}
        self.true, self.false = manager.true(), manager.false()
        components = _components(self.equations)
        for i, component in enumerate(components):
            reach("decision diagram", i, len(components))
            if len(component) == 1 and component[0] in self.equations.tallied:
                self.known[~component[0]] = self._tally(component[0])
                continue
            self._fixpoint(component)
        return self._listed(manager, self.known[~self.equations.root])

    def _value(self, item: int) -> Any:
        """Return the function of a variable or node; absences among the elements of tallies are always there."""
        return self.known.get(item, self.true)

    def _fixpoint(self, component: list[int]) -> None:
        """Compute the least fixpoint of some equations, from false upwards; nodes whose bodies changed are looked at
        again."""
        for n in component:
            self.known[~n] = self.false
        users: dict[int, set[int]] = defaultdict(set)
        for n in component:
            for b in self.equations.bodies[n]:
                for v in b:
                    if v < 0:
                        users[~v].add(n)
        todo = list(component)
        while todo:
            n = todo.pop(0)
            found = self.known[~n]
            for b in self.equations.bodies[n]:
                reach()
                found = found | self._all(b)
            if found != self.known[~n]:
                self.known[~n] = found
                todo += [u for u in sorted(users[n]) if u not in todo]

    def _all(self, body: Body) -> Any:
        found = self.true
        for v in sorted(body, key=lambda v: self.place.get(v, -1), reverse=True):
            found = found & self.known[v]
        return found

    def _tally(self, node: int) -> Any:
        """Build the function of a tally through its elements from the last to the first: what is still to come of each
        state of the sums."""
        scale, elements = Scale(self.tallies[node]), self.equations.tallied[node]
        layers = [[scale.start()]]
        for e in range(len(elements)):
            layers.append(list({t: None for s in layers[-1] for t in (s, scale.step(s, e))}))
            if len(layers[-1]) > STATES:
                raise DiagramTooLarge(f"an aggregate over {len(elements)} rows has too many results to tell apart")
        below = {s: self.true if scale.final(s) else self.false for s in layers[-1]}
        for e in reversed(range(len(elements))):
            reach()
            there = self._value(elements[e])
            below = {s: there.ite(below[scale.step(s, e)], below[s]) for s in layers[e]}
        return below[layers[0][0]]

    def _listed(self, manager: Any, found: Any) -> DecisionDiagram:
        """Read oxidd's nodes as arrays: it writes them children first, terminals at the start."""
        if not found.satisfiable() or found.valid():
            return _constant(self.equations, found.valid())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "function"
            manager.export_dddmp(str(path), [found], ascii=True)
            lines = path.read_text().split(".nodes\n")
        head = {k: v.split() for k, _, v in (line.partition(" ") for line in lines[0].splitlines())}
        cells = lines[1].split(".end")[0].replace("F", "-1").replace("T", "-2").split()
        nodes = np.array(cells, np.int64).reshape(-1, 4)
        return self._turned(nodes, np.array(head[".ids"], np.int64), int(head[".rootids"][0]))

    def _turned(self, nodes: NDArray[np.int64], support: Codes, root: int) -> DecisionDiagram:
        """Order nodes with parents first: a node's children are of later variables."""
        inner = nodes[nodes[:, 1] >= 0]
        inner = inner[np.argsort(inner[:, 1], kind="stable")]
        place = np.zeros(int(nodes[:, 0].max()) + 1, np.int64)
        place[nodes[nodes[:, 1] == -2, 0]] = 1
        place[inner[:, 0]] = np.arange(2, len(inner) + 2)
        variable = np.concatenate([[-1, -1], np.array(self.order)[support[inner[:, 1]]]]).astype(np.int32)
        low = np.concatenate([[0, 0], place[inner[:, 3]]])
        high = np.concatenate([[0, 0], place[inner[:, 2]]])
        return DecisionDiagram(self.equations, variable, low, high, int(place[root]))


def _depth_first(equations: System) -> list[int]:
    """Order variables as a walk from the root meets them: those of a derivation lie close together."""
    order: dict[int, None] = {}
    seen, todo = set(), [~equations.root]
    while todo:
        item = todo.pop()
        if item >= 0:
            order.setdefault(item)
            continue
        if item in seen:
            continue
        seen.add(item)
        n = ~item
        bodies = [equations.tallied[n]] if n in equations.tallied else sorted(map(sorted, equations.bodies.get(n, ())))
        for b in reversed(bodies):
            todo += [v for v in b if v < 0] + [v for v in b if v >= 0]
    return list(order)


def _components(equations: System) -> list[list[int]]:
    """Find the strongly connected components below the root, bodies before heads."""
    down = {n: sorted({~v for b in bodies for v in b if v < 0}) for n, bodies in equations.bodies.items()}
    for n, elements in equations.tallied.items():
        down[n] = sorted({~v for v in elements if v < 0 and (~v in equations.bodies or ~v in equations.tallied)})
    return strongly_connected(down, [equations.root])
