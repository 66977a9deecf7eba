"""Plan recursion whose rows cross partitions: rewrite the rules of a component so that each joins in one partition.

Law: every binding of a rule's body is found in at least one partition. For that a rule has a **join variable**: an atom
that holds it reads rows routed by it, and an atom that does not reads all rows. Or it has none, and one atom reads rows
wherever they lie, while the others read all.

A derived relation is therefore kept in a few **copies**: by a column, or everywhere. Rules read copies and derive
*local* rows, which are sent to the copies they belong to (`engine/recursion/mailbox.py`). So the local
rules are not recursive: to them a copy is one more external relation.

    reachable(x, y) <- link(x, y)                    link by dst, as the other rule wants it anyway
    reachable(x, y) <- link(x, z), reachable(z, y)   join variable z: link by dst, reachable by src

A view is read from its **home**, one copy by a column, so that each of its rows is in exactly one partition. A set that
is no view, and that rules read wherever its rows lie, has no copy: it is read where it is derived. Such are the rows
that Python computes.

Under MIN and MAX a partition sends the best value it derives for a group. A copy then has two relations: the values as
they were sent, and the best of them, which is what rules read; it is kept by a local rule of its own. Rows are never
routed by the value.

Under the policy `support` every copy has two relations: the rows as they were **sent**, once for each sender and with
the rank that they have there, and the rows themselves, which are derived: from what was sent, and from what is derived
here and belongs here. So a sender is a derivation like any other, and what is sent between partitions stands between
two ranks.

    reachable by src(x, y) <- reachable sent(x, y, sender)
    reachable by src(x, y) <- reachable(x, y), x routes to here

What must be everywhere costs memory and messages in every partition, so join variables are chosen together for the
whole component: fewest relations everywhere, then fewest copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from whence.model.types import BIGINT, Column
from whence.plan.algebra.logical import Node
from whence.plan.recursion.rule_model import Atom, Op, Rule, RuleProgram, RuleRelation
from whence.plan.recursion.support import can_support

_SENT = ", sent"  # in names of relations
_PASSES = 8  # over all rules, each time choosing the best for one while the others stand


@dataclass(frozen=True)
class RequiredDistribution:
    """Where rows must be: routed by `cols`, `all` of them everywhere, or `any`where, each in at least one partition."""

    kind: Literal["hash", "all", "any"]
    cols: tuple[int, ...] = ()


ANY, ALL = RequiredDistribution("any"), RequiredDistribution("all")
_Layout = tuple[RequiredDistribution, ...]  # of the atoms of a rule
_Wants = set[tuple[int, RequiredDistribution]]  # of relations


@dataclass(frozen=True)
class Copy:
    """A relation of the local rules that is fed by what partitions send; `cols` None: everywhere. Each of its rows is
    in one place under one column, or none."""

    relation: int
    cols: tuple[int, ...] | None


@dataclass(frozen=True)
class Exchange:
    """What a fixpoint with peers runs (`engine/recursion/mailbox.py`). Relations of the local rules are external ones,
    for which `required` says where their rows must be; copies, which have no source, perhaps with their best values;
    and the rows derived here. `forgets` says that a best value may stand on an older one of its own group
    (`plan/recursion/support.py`); `ranked` that rows are sent with their ranks. `origin` gives, for each local
    relation, the relation of the component's rules whose rows it holds: by it a row has the same variable in all
    places. Local rules have the numbers of the component's; behind those come the ones that keep copies."""

    rules: RuleProgram
    required: tuple[tuple[int, RequiredDistribution], ...]  # by external relation, in the order of the relations
    copies: tuple[tuple[int, tuple[Copy, ...]], ...]  # by derived relation
    homes: tuple[tuple[str, tuple[int, ...]], ...]  # by output: the columns its rows are routed by
    forgets: bool = False
    origin: tuple[int, ...] = ()
    ranked: bool = False

    def with_sources(self, place: Callable[[Node, RequiredDistribution], Node]) -> Exchange:
        """With the source of each external relation brought to where it is wished for."""
        relations = list(self.rules.relations)
        for number, wish in self.required:
            source = relations[number].source
            assert source is not None
            relations[number] = replace(relations[number], source=place(source, wish))
        return replace(self, rules=replace(self.rules, relations=relations))

    @property
    def text(self) -> str:
        """The copies, for EXPLAIN."""
        names = (self.rules.relations[copy.relation].name for _, copies in self.copies for copy in copies)
        return "exchange " + ", ".join(name.removesuffix(_SENT) for name in names)


def plan_exchange(rules: RuleProgram, small: Callable[[Node], bool], ranked: bool = False) -> Exchange:
    """Return how to run rules over partitions that exchange rows.

    `small` says of an external source that a copy of it everywhere does no harm. With `ranked` rows are sent with their
    ranks, as the policy `support` needs it."""
    light = [r.source is not None and small(r.source) for r in rules.relations]
    chosen = _choose(rules, light)
    return _Rewriter(rules, _wants(rules.rules, chosen), ranked).rewrite(chosen)


def computes_values(rules: RuleProgram) -> bool:
    """Return whether Python computes rows, or a best value that is NULL is an error: what could not be exchanged before
    rows were sent with ranks."""
    return any(rule.foreign is not None or any(op.name == "must_be" for op in rule.ops) for rule in rules.rules)


# -- choosing ----------------------------------------------------------------------------------------------------------


def _choose(rules: RuleProgram, light: list[bool]) -> list[_Layout]:
    """Choose a layout for each rule, so that together they are cheap: improve one rule after the other."""
    options = [_layouts(rule, rules) for rule in rules.rules]
    chosen: list[_Layout] = []
    for rule, layouts in zip(rules.rules, options, strict=True):
        known = _wants(rules.rules[: len(chosen)], chosen)
        chosen.append(min(layouts, key=lambda o: _weight(known | _wants([rule], [o]), rules, light)))
    for _ in range(_PASSES):
        before = list(chosen)
        for i, layouts in enumerate(options):
            others = _wants(rules.rules[:i] + rules.rules[i + 1 :], chosen[:i] + chosen[i + 1 :])
            candidates = [chosen[i], *layouts]
            chosen[i] = min(
                candidates,
                key=lambda o: _weight(others | _wants([rules.rules[i]], [o]), rules, light),
            )
        if chosen == before:
            break
    return chosen


def _layouts(rule: Rule, rules: RuleProgram) -> list[_Layout]:
    """By each variable that could be the join variable, then with each atom as the one that lies anywhere.

    A row that must be absent binds nothing, and a constant would send everything to one partition."""
    positive = [i for i, atom in enumerate(rule.atoms) if rules.relations[atom.relation].kind != "absence"]
    constant = {variable for variable, _, _ in rule.constants}
    keys = [atom.terms[: rules.relations[atom.relation].keys] for atom in rule.atoms]
    variables = dict.fromkeys(v for i in positive for v in keys[i] if v is not None and v not in constant)
    found = [tuple(_by(terms, v) for terms in keys) for v in variables]
    found += [tuple(ANY if i == anchor else ALL for i in range(len(rule.atoms))) for anchor in positive]
    return found or [tuple(ALL for _ in rule.atoms)]


def _by(terms: tuple[int | None, ...], variable: int) -> RequiredDistribution:
    return RequiredDistribution("hash", (terms.index(variable),)) if variable in terms else ALL


def _wants(some: list[Rule], layouts: list[_Layout]) -> _Wants:
    return {
        (atom.relation, wish)
        for rule, layout in zip(some, layouts, strict=True)
        for atom, wish in zip(rule.atoms, layout, strict=True)
    }


def _weight(wants: _Wants, rules: RuleProgram, light: list[bool]) -> int:
    """Derived relations everywhere weigh most, then large external ones, then copies."""
    routed = {relation for relation, wish in wants if wish.kind == "hash"}
    total = 0
    for relation, wish in wants:
        derived = rules.relations[relation].kind in ("set", "best")
        match wish.kind:
            case "all":
                total += 10_000 if derived else 2 if light[relation] else 500
            case "hash":
                total += 20 if derived else 1 if light[relation] else 4
            case "any":
                total += 0 if relation in routed or _is_passed_on(rules, relation) else 20 if derived else 1
    return total


def _is_passed_on(rules: RuleProgram, relation: int) -> bool:
    """Return whether a derived relation needs no copies where rules read it wherever its rows lie."""
    return rules.relations[relation].kind == "set" and relation not in rules.outputs.values()


# -- rewriting ---------------------------------------------------------------------------------------------------------


class _Rewriter:
    """Gives every relation in every place it is wanted a number in the local rules."""

    def __init__(self, rules: RuleProgram, wants: _Wants, ranked: bool):
        self.rules, self.ranked = rules, ranked
        self.relations: list[RuleRelation] = []
        self.origin: list[int] = []
        self.required: list[tuple[int, RequiredDistribution]] = []
        self.numbers: dict[tuple[int, RequiredDistribution], int] = {}  # as rules read them
        self.copies: dict[int, list[Copy]] = {}
        self.local: list[Rule] = []
        self.here: list[tuple[int, int, RequiredDistribution]] = []  # derived relations, and copies of theirs
        self.routed: dict[
            int, RequiredDistribution
        ] = {}  # of each relation one place in which each row is once, if there is one
        for number, wish in sorted(wants, key=lambda w: (w[0], w[1].kind, w[1].cols)):
            if wish.kind == "hash":
                self.routed.setdefault(number, wish)
        outputs = set(rules.outputs.values())
        for number, relation in enumerate(rules.relations):
            mine = {wish for of, wish in wants if of == number}
            derived = relation.kind in ("set", "best")
            if mine == {ANY} and _is_passed_on(rules, number):
                continue  # it is read where it is derived
            if derived and number not in self.routed and (ANY in mine or number in outputs):
                self.routed[number] = RequiredDistribution("hash", (0,) if relation.keys else ())
                mine.add(self.routed[number])
            if number in self.routed:
                mine.discard(ANY)
            for wish in sorted(mine, key=lambda w: (w.kind, w.cols)):
                self._add(number, wish, derived)

    def _add(self, number: int, wish: RequiredDistribution, derived: bool) -> None:
        relation, own = self.rules.relations[number], len(self.relations)
        if derived:
            columns = ", ".join(relation.schema.names[c] for c in wish.cols)
            name = f"{relation.name} everywhere" if wish == ALL else f"{relation.name} by {columns}"
            terms = tuple(range(len(relation.schema)))
            self.copies.setdefault(number, []).append(Copy(own, None if wish == ALL else wish.cols))
            if self.ranked:
                self._place(_as_sent(relation, name), number)
                own += 1
                self._place(replace(relation, name=name), number)
                sent = (*terms[: relation.keys], None, *terms[relation.keys :])
                self.local.append(Rule(own, terms, (Atom(own - 1, sent),), (), (), len(terms)))
                self.here.append((number, own, wish))
            else:
                self._place(replace(relation, name=name, kind="external", sign=0), number)
            if relation.kind == "best" and not self.ranked:
                own += 1
                self._place(replace(relation, name=f"best {name}"), number)
                self.local.append(Rule(own, terms, (Atom(own - 1, terms),), (), (), len(terms)))
        else:
            self._place(relation, number)
            self.required.append((own, wish))
        self.numbers[number, wish] = own

    def _place(self, relation: RuleRelation, origin: int) -> None:
        self.relations.append(relation)
        self.origin.append(origin)

    def rewrite(self, chosen: list[_Layout]) -> Exchange:
        heads = {}
        for number, relation in enumerate(self.rules.relations):
            if relation.kind in ("set", "best"):
                heads[number] = len(self.relations)
                self.numbers.setdefault((number, ANY), len(self.relations))
                self._place(relation, number)
        local = [
            replace(
                rule,
                head=heads[rule.head],
                atoms=tuple(
                    replace(atom, relation=self._number(atom.relation, wish))
                    for atom, wish in zip(rule.atoms, layout, strict=True)
                ),
            )
            for rule, layout in zip(self.rules.rules, chosen, strict=True)
        ]
        for number, copy, wish in self.here:
            terms = tuple(range(len(self.rules.relations[number].schema)))
            tests = () if wish == ALL else (Op("here", wish.cols[0] if wish.cols else -1),)
            self.local.append(Rule(copy, terms, (Atom(heads[number], terms),), tests, (), len(terms)))
        copies = tuple((head, tuple(self.copies[number])) for number, head in heads.items() if number in self.copies)
        outputs = {name: self.numbers[number, self.routed[number]] for name, number in self.rules.outputs.items()}
        homes = tuple((name, self.routed[number].cols) for name, number in self.rules.outputs.items())
        program = RuleProgram(self.relations, local + self.local, outputs, list(self.rules.after))
        forgets = not can_support(self.rules)
        return Exchange(program, tuple(self.required), copies, homes, forgets, tuple(self.origin), self.ranked)

    def _number(self, relation: int, wish: RequiredDistribution) -> int:
        return self.numbers[relation, self.routed.get(relation, wish) if wish == ANY else wish]


def _as_sent(relation: RuleRelation, name: str) -> RuleRelation:
    """Return the relation of the rows that partitions send of a derived one: the sender stands behind the keys."""
    columns, keys = relation.schema.columns, relation.keys
    schema = replace(relation.schema, columns=(*columns[:keys], Column("$sender", BIGINT), *columns[keys:]))
    return RuleRelation(name + _SENT, schema, "sent", relation.sign, view=relation.view)
