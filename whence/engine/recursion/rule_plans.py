"""Rules as the integers the fixpoint kernels run: join orders, indexes, and where each operation is done.

For every rule there is one *forward* plan for each body atom (a changed row of that atom is given, the others are
joined) and one *backward* plan (the head is given, a derivation is looked for). A step binds one atom: by looking up
the one row whose key is bound, by probing an index on the bound columns, or by seeing that an absence holds. An index
exists only because a step probes it. Orders are given (`rule_orders.py` chooses them), or else go by connectedness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from whence.engine.recursion.kernels import binding as op_codes
from whence.engine.recursion.kernels import search
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.kernels.store import Ints
from whence.model.codes import Constant, Dictionary, encode_constant
from whence.model.errors import SqlError
from whence.plan.recursion.rule_model import Atom, Op, Rule, RuleProgram

_OPS = {
    "=": op_codes.EQ,
    "<>": op_codes.NE,
    "<": op_codes.LT,
    "<=": op_codes.LE,
    ">": op_codes.GT,
    ">=": op_codes.GE,
    "same": op_codes.SAME,
    "not_null": op_codes.NOT_NULL,
    "is_null": op_codes.IS_NULL,
    "+": op_codes.ADD,
    "-": op_codes.SUB,
    "*": op_codes.MUL,
    "+f": op_codes.FADD,
    "-f": op_codes.FSUB,
    "*f": op_codes.FMUL,
    "least": op_codes.LEAST,
    "greatest": op_codes.GREATEST,
    "to_float": op_codes.TO_FLOAT,
    "must_be": op_codes.MUST_BE,
    "fits": op_codes.FITS,
    "here": op_codes.HERE,
}
KINDS = {"external": st.EXTERNAL, "absence": st.ABSENCE, "set": st.SET, "best": st.BEST, "sent": st.SENT}


Orders = Mapping[tuple[int, int], tuple[int, ...]]  # by rule and given atom, -1 for the head: the other atoms


@dataclass
class PlanAtom:
    """One atom of a plan, bound by lookup, probe or absence."""

    kind: int
    atom: int
    bound: tuple[int, ...]  # columns of the relation that are known before
    key: list[int]  # the variables that hold them
    binds: list[tuple[int, int]]
    checks: list[tuple[int, int]]
    ops: list[Op]


@dataclass
class JoinOrder:
    """A join order; `start` is the section that takes in the given row."""

    rule: int
    position: int  # the given atom, or -1 when the head is given
    start: tuple[list[tuple[int, int]], list[tuple[int, int]], list[Op]]
    steps: list[PlanAtom] = field(default_factory=list)


class CompiledRules:
    """The static arrays of a `Store`: relations, indexes, plans, env, and the widths its slots need."""

    def __init__(self, program: RuleProgram, dictionary: Dictionary, policy: int, orders: Orders | None = None):
        self.program, self._dictionary, self._policy, self._given = program, dictionary, policy, orders or {}
        self.orders: dict[tuple[int, int], tuple[int, ...]] = {}
        self._steps: dict[tuple[int, int, int], int] = {}  # of a rule, given atom and atom: where its step is encoded
        self._check_size()
        self.body = 0 if policy == st.DRED else max(len(r.atoms) for r in program.rules)
        self.atoms = max(len(r.atoms) for r in program.rules)
        self._indexes: dict[tuple[int, tuple[int, ...]], int] = {}
        forward: dict[int, list[JoinOrder]] = {i: [] for i in range(len(program.relations))}
        backward: dict[int, list[JoinOrder]] = {i: [] for i in range(len(program.relations))}
        for number, rule in enumerate(program.rules):
            for position in range(len(rule.atoms)):
                forward[rule.atoms[position].relation].append(self._plan(number, rule, position))
            backward[rule.head].append(self._plan(number, rule, -1))
            if rule.foreign and policy == st.DRED:
                self._indexes.setdefault((rule.head, tuple(range(len(rule.terms)))), -1)
        self._number_indexes()
        self._encode(forward, backward)
        variables = max(r.variables + len(program.relations[r.head].schema) for r in program.rules)
        self.env: Ints = np.zeros((len(program.rules), max(1, variables)), np.int64)
        self._constants: list[Constant] = []
        for number, rule in enumerate(program.rules):
            for variable, value, type in rule.constants:
                self._constants.append(encode_constant(value, type, dictionary))
                self.env[number, variable] = self._constants[-1].code

    def reordered(self, orders: Orders) -> CompiledRules:
        """Return the same rules with other orders."""
        return CompiledRules(self.program, self._dictionary, self._policy, orders)

    def _check_size(self) -> None:
        """Refuse rules that do not fit into the kernels' scratch."""
        atoms = max(len(r.atoms) for r in self.program.rules)
        widest = max(self.program.relations, key=lambda r: len(r.schema))
        if atoms > st.MAX_ATOMS:
            raise SqlError(
                f"a recursive query joins {atoms} relations; at most {st.MAX_ATOMS} are possible: "
                "put those that do not recurse into a view of their own"
            )
        if len(widest.schema) > st.MAX_COLUMNS:
            raise SqlError(f"{widest.name} has more than {st.MAX_COLUMNS} columns inside a recursion")

    def _plan(self, number: int, rule: Rule, position: int) -> JoinOrder:
        known = {v for v, _, _ in rule.constants}
        waiting = list(rule.ops)
        relations = self.program.relations
        if position >= 0:
            start = self._take(rule.atoms[position].terms, known, waiting)
        else:
            start = self._take_head(rule, known, waiting)
        plan = JoinOrder(number, position, start)
        left = [i for i in range(len(rule.atoms)) if i != position]
        given = iter(self._given.get((number, position), ()))
        while left:
            best = next(given, None)
            if best is None:
                best = max(left, key=lambda i: self._preference(rule.atoms[i], known))
            left.remove(best)
            atom = rule.atoms[best]
            relation = relations[atom.relation]
            bound = tuple(c for c, v in enumerate(atom.terms[: relation.keys]) if v is not None and v in known)
            if relation.kind == "absence":
                kind = search.ABSENT
            elif len(bound) == relation.keys:
                kind = search.LOOKUP
            else:
                kind = search.PROBE
                self._indexes.setdefault((atom.relation, bound), -1)
            key = [v for c in bound if (v := atom.terms[c]) is not None]
            plan.steps.append(PlanAtom(kind, best, bound, key, *self._take(atom.terms, known, waiting, bound)))
        self.orders[number, position] = tuple(step.atom for step in plan.steps)
        return plan

    def _preference(self, atom: Atom, known: set[int]) -> tuple[int, int, int]:
        """Return a sort key: absences and single rows first, then the more columns bound the better, then what is not
        derived."""
        relation = self.program.relations[atom.relation]
        bound = sum(v is not None and v in known for v in atom.terms[: relation.keys])
        if relation.kind == "absence":
            return (3, 0, 0) if bound == relation.keys else (-1, 0, 0)
        if bound == relation.keys:
            return (2, bound, 0)
        return (1 if bound else 0, bound, relation.kind == "external")

    def _take(
        self, terms: tuple[int | None, ...], known: set[int], waiting: list[Op], bound: tuple[int, ...] = ()
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[Op]]:
        """Bind a row's columns; columns already used as the key need no check."""
        binds, checks = [], []
        for column, variable in enumerate(terms):
            if variable is None or column in bound:
                continue
            if variable in known:
                checks.append((column, variable))
            else:
                binds.append((column, variable))
                known.add(variable)
        return binds, checks, _ready(known, waiting)

    def _take_head(
        self, rule: Rule, known: set[int], waiting: list[Op]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[Op]]:
        """Bind the head's columns; a computed column is held aside and compared once it has been computed."""
        head = self.program.relations[rule.head]
        computed = {op.to for op in rule.ops if not op.is_test}
        binds: list[tuple[int, int]] = []
        checks: list[tuple[int, int]] = []
        for column, variable in enumerate(rule.terms[: head.keys]):
            if variable in computed:
                aside = rule.variables + column
                binds.append((column, aside))
                waiting.append(Op("same", variable, aside))
                known.add(aside)
            elif variable in known:
                checks.append((column, variable))
            else:
                binds.append((column, variable))
                known.add(variable)
        return binds, checks, _ready(known, waiting)

    def _number_indexes(self) -> None:
        """Number the indexes, those of one relation together; each has a chain word in the slots of its relation."""
        keys = sorted(self._indexes)
        if max(len(keys), len(self.program.relations)) >= st.MAX_INDEXES:
            raise SqlError(f"{len(keys)} indexes would be needed by views that recurse together; that is too many")
        counts: dict[int, int] = {}
        width = max((len(c) for _, c in keys), default=0)
        table = np.zeros((max(1, len(keys)), st.X_COLUMNS + width), np.int64)
        for number, (relation, columns) in enumerate(keys):
            self._indexes[relation, columns] = number
            table[number, st.X_RELATION] = relation
            table[number, st.X_COUNT] = len(columns)
            table[number, st.X_CHAIN] = counts.get(relation, 0)
            counts[relation] = counts.get(relation, 0) + 1
            table[number, st.X_COLUMNS : st.X_COLUMNS + len(columns)] = columns
        self.columns = max(len(r.schema) for r in self.program.relations)
        self.meta = 2 * self.columns
        self.chain = self.meta + 4 + 3 * self.body
        table[:, st.X_CHAIN] += self.chain
        self.words = (self.chain + max(counts.values(), default=0) + 1) // 2
        self.indexes = table

    def _encode(self, forward: dict[int, list[JoinOrder]], backward: dict[int, list[JoinOrder]]) -> None:
        code: list[int] = []
        self.relations: Ints = np.zeros((len(self.program.relations), st.R_FIELDS), np.int64)
        for number, relation in enumerate(self.program.relations):
            owned = [i for (r, _), i in self._indexes.items() if r == number]
            fields = (len(relation.schema), relation.keys, KINDS[relation.kind], relation.sign)
            self.relations[number, :4] = fields
            self.relations[number, st.R_INDEX] = min(owned, default=0)
            self.relations[number, st.R_INDEXES] = len(owned)
            for at, count, plans in (
                (st.R_FORWARD, st.R_FORWARDS, forward[number]),
                (st.R_BACKWARD, st.R_BACKWARDS, backward[number]),
            ):
                starts = [self._encode_plan(plan, code) for plan in plans]
                self.relations[number, at] = len(code)
                self.relations[number, count] = len(starts)
                code.extend(starts)
        self.plans: Ints = np.array(code, np.int64)

    def _encode_plan(self, plan: JoinOrder, code: list[int]) -> int:
        rule = self.program.rules[plan.rule]
        head = len(code)
        code += [len(rule.terms), *rule.terms]
        start = len(code)
        _encode_section(*plan.start, code)
        steps = []
        for step in plan.steps:
            steps.append(len(code))
            relation = rule.atoms[step.atom].relation
            index = self._indexes[relation, step.bound] if step.kind == search.PROBE else 0
            chain = int(self.indexes[index, st.X_CHAIN])
            self._steps[plan.rule, plan.position, step.atom] = len(code)
            code += [step.kind, relation, index, step.atom, chain, len(step.key), 0, 0, *step.key]
            _encode_section(step.binds, step.checks, step.ops, code)
        at = len(code)
        foreign = -1
        if rule.foreign:
            foreign = max(0, self._indexes.get((rule.head, tuple(range(len(rule.terms)))), 0))
        code += [plan.rule, len(steps), plan.position, rule.head, head, foreign, start, *steps]
        return at

    def met(self, rule: int, position: int, atom: int) -> tuple[int, int]:
        """Return how often a step was made, and how many rows it has looked at."""
        step = self._steps[rule, position, atom]
        return int(self.plans[step + search.STEP_PROBES]), int(self.plans[step + search.STEP_ROWS])

    def has_index(self, relation: int, cols: tuple[int, ...]) -> bool:
        """Return whether rows of a relation are looked up by these columns without another index."""
        return (relation, cols) in self._indexes or len(cols) == self.program.relations[relation].keys


def encode_orders(orders: Orders) -> Ints:
    """Return orders as rows of integers: rule, given atom, and the others, -1 behind them."""
    width = max((len(order) for order in orders.values()), default=0)
    rows = [[*key, *order, *[-1] * (width - len(order))] for key, order in sorted(orders.items())]
    return np.array(rows, np.int64).reshape(len(rows), 2 + width)


def decode_orders(rows: Ints) -> Orders:
    """Return the orders that rows of integers stand for; none if they have another form."""
    if rows.ndim != 2 or rows.shape[1] < 2:
        return {}
    return {(rule, given): tuple(a for a in atoms if a >= 0) for rule, given, *atoms in rows.tolist()}


def _ready(known: set[int], waiting: list[Op]) -> list[Op]:
    """Take the operations out of `waiting` that can be done now, in an order in which they can."""
    done: list[Op] = []
    progress = True
    while progress:
        progress = False
        for op in list(waiting):
            if all(v in known for v in op.reads):
                waiting.remove(op)
                done.append(op)
                if not op.is_test:
                    known.add(op.to)
                progress = True
    return done


def _encode_section(
    binds: list[tuple[int, int]], checks: list[tuple[int, int]], ops: list[Op], code: list[int]
) -> None:
    code.append(len(binds))
    for column, variable in binds:
        code += [column, variable]
    code.append(len(checks))
    for column, variable in checks:
        code += [column, variable]
    code.append(len(ops))
    for op in ops:
        code += [_OPS[op.name], max(op.to, 0), op.a, op.b]
