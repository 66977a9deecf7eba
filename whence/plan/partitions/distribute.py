"""Plan a partitioned database: where tables and views live, and every move of rows that this takes.

Law: what the partitions hold together is what one partition would hold. Plans are placed operator by operator
(`enforce.py`), recursive components as a whole (`localize.py`), and tables are put where most plans want them
(`partition_keys.py`). The same program gives the same plan in every process. With one partition nothing ever moves:
every row is in every partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whence.plan.algebra.distribution import (
    ALL,
    ONE,
    Distribution,
    DistributionProperty,
    by,
    describe_distribution,
    to_property,
)
from whence.plan.algebra.logical import HoldKey, Node, Ref, Scan, walk
from whence.plan.algebra.program import Program, Table
from whence.plan.partitions.enforce import DistributionEnforcer, TracedMoveError
from whence.plan.partitions.exchange import Exchange, RequiredDistribution, computes_values, plan_exchange
from whence.plan.partitions.heavy_keys import Heavy, RoutedJoin
from whence.plan.partitions.localize import COPY, Local, describe_local, is_derived, localize, with_sources
from whence.plan.partitions.partition_keys import PartitionKeyUses
from whence.plan.partitions.streams import MisplacedError
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.rules import compile_rules
from whence.plan.recursion.settings import Settings, is_maintained, partition_option, settings
from whence.plan.recursion.strata import Component
from whence.plan.rewrite import distinct_inputs, keep_joins, optimize
from whence.plan.rewrite.hold_inputs import hold_inputs, hold_rules, holder_of, holds_in
from whence.plan.rewrite.keep_joins import KeptJoin
from whence.plan.streams.model import Retain, Stream

log = logging.getLogger("whence")
Optimized = dict[int, tuple[Node, Node]]
"""Queries by their ids, each with its plan."""

__all__ = ["Distributed", "Distribution", "PlannedComponent", "describe_distribution", "distribute"]


@dataclass(frozen=True)
class PlannedComponent:
    """One component of the planned program, ready to be built in every partition.

    A plain view has a `node`; a recursive component has `rules`, whose external sources have their moves in them, and
    `after`, the plain queries over what the rules derive, with theirs."""

    views: tuple[str, ...]
    node: Node | None = None
    rules: RuleProgram | None = None
    after: tuple[tuple[str, Node], ...] = ()
    strategy: str = ""
    settings: Settings | None = None  # of a recursive component
    exchange: Exchange | None = None  # where rows travel inside the recursion, see engine/recursion/mailbox.py
    joins: tuple[RoutedJoin, ...] = ()  # that could divide the rows of heavy keys

    @property
    def plans(self) -> list[Node]:
        """The plain plans in it."""
        return _plans(self.node, self.rules, self.after)

    def with_plans(self, change: Callable[[Node], Node]) -> PlannedComponent:
        """Return it with every plain plan changed, which keeps its columns."""

        def over(rules: RuleProgram) -> RuleProgram:
            relations = [r if r.source is None else replace(r, source=change(r.source)) for r in rules.relations]
            return replace(rules, relations=relations)

        return replace(
            self,
            node=None if self.node is None else change(self.node),
            rules=None if self.rules is None else over(self.rules),
            after=tuple((name, change(node)) for name, node in self.after),
            exchange=None if self.exchange is None else replace(self.exchange, rules=over(self.exchange.rules)),
        )


@dataclass(frozen=True)
class Distributed:
    """Where everything lives, and the pieces in the order of strata."""

    partitions: int
    tables: dict[str, Distribution]
    views: dict[str, Distribution]
    pieces: tuple[PlannedComponent, ...]
    places: dict[str, DistributionProperty] = field(
        default_factory=dict
    )  # of the views, with all that is known: for later plans


def distribute(
    planned: Program,
    ordered: Sequence[Component],
    *,
    partitions: int,
    fixed: Mapping[str, Distribution],
    small: Callable[[str], bool],
    depth_limit: int,
    kept: Distributed | None = None,
    optimized: Optimized | None = None,
    keeps: Collection[KeptJoin] = (),
    heavy: Heavy | None = None,
    ranked: bool = True,
) -> Distributed:
    """Plan for `partitions` partitions. `fixed` are tables that stay where they are, `small` says of a table
    whether every partition may have a copy of it. The pieces of `kept` are taken as they are. `optimized` has plans of
    the time before and is left with those of this one. The joins of `keeps` are kept; those of `heavy` divide keys.
    Without `ranked` recursion is planned as before rows were sent with ranks."""
    known = dict(optimized) if optimized is not None else {}
    drafts = [_draft(component, planned, depth_limit, known, keeps) for component in ordered]
    _hold(drafts, planned)
    if optimized is not None:
        queries = (planned.views[name].query for component in ordered for name in component.views)
        optimized.clear()
        optimized |= {id(query): known[id(query)] for query in queries if id(query) in known}
    under = _tables_under(drafts)
    if partitions > 1:
        for draft in drafts:
            if draft.rules is not None:
                draft.everywhere = not any(map(under, _sources(draft.rules)))  # it is of constants only
                _choose_strategy(draft, planned, lambda node: all(map(small, sorted(under(node)))), ranked)
    uses = PartitionKeyUses(planned.tables, {draft.views[0]: draft.node for draft in drafts if draft.node is not None})
    tables = _place_tables(planned, drafts, fixed, small, uses, partitions)
    while True:
        try:
            return _placed(drafts, tables, partitions, kept, heavy)
        except TracedMoveError as error:  # all that leads there goes to one place, where it can
            streams = [name for name, _ in uses.needs.sources(error.node, ()) if tables[name] != Distribution("one")]
            _check_free(streams, fixed, planned)
            tables |= dict.fromkeys(streams, Distribution("one"))


def undistributed(
    planned: Program,
    ordered: Sequence[Component],
    depth_limit: int,
    standing: Mapping[frozenset[str], PlannedComponent],
    keeps: Collection[KeptJoin] = (),
    holds: bool = True,
) -> Distributed:
    """Return the plan for one partition that has everything; components of `standing`, by their views, are taken as
    they are, and in others the joins of `keeps` are kept. With `holds` the inputs of held views are held."""
    pieces: list[PlannedComponent] = []
    behind: set[str] = set()  # holds
    for component in ordered:
        found = standing.get(frozenset(component.views))
        if found is None:
            draft = _draft(component, planned, depth_limit, keeps=keeps)
            if holds:
                _hold([draft], planned, behind)
            found = draft.whole()
        else:
            behind |= _behind(found.views, found.plans, behind)
        pieces.append(found)
    tables = dict.fromkeys(planned.tables, Distribution("all"))
    return Distributed(1, tables, {}, tuple(pieces))


def plan_component(
    component: Component, planned: Program, depth_limit: int, keeps: Collection[KeptJoin] = ()
) -> PlannedComponent:
    """Return a component ready to be built where all rows are."""
    return _draft(component, planned, depth_limit, keeps=keeps).whole()


def _check_free(streams: Sequence[str], fixed: Mapping[str, Distribution], program: Program) -> None:
    """MisplacedError if one of these streams has to stay where it is, or is to be there."""
    if not streams:
        raise MisplacedError("a traced network would ship rows although all of its streams are in one partition")
    for name in streams:
        table = program.tables[name]
        if name in fixed or table.placement is not None:
            where = describe_distribution(fixed.get(name, Distribution("spread")), table.schema)
            what = f"are {where}" if name in fixed else "are to be where its partition_by says"
            raise MisplacedError(
                f"rows of stream {name} {what}, and this provenance can only be traced if they are all in one "
                "partition: create the view before the first rows come, or the stream WITH (partition_by = 'all'), or "
                "give every window a key (by => …) that all of them share",
                [name for name in streams if name in fixed],
            )


def _placed(
    drafts: Sequence[_Draft],
    tables: dict[str, Distribution],
    partitions: int,
    kept: Distributed | None,
    heavy: Heavy | None,
) -> Distributed:
    """Place the plans over tables in their places; raise TracedMoveError if traced streams are not where they must
    be."""
    known = {name: to_property(dist) if partitions > 1 else ALL for name, dist in tables.items()}
    views: dict[str, DistributionProperty] = {}
    traced: dict[str, bool] = {}
    placer = DistributionEnforcer(known, views, traced, partitions, heavy)
    pieces = []
    standing = {piece.views: piece for piece in kept.pieces} if kept is not None else {}
    for draft in drafts:
        if kept is not None and draft.views in standing:
            pieces.append(standing[draft.views])
            views |= {name: kept.places[name] for name in draft.views}
        else:
            placer.joins = {}
            piece = (_plain if draft.rules is None else _recursive)(draft, placer, views)
            pieces.append(replace(piece, joins=tuple(placer.joins.values())))
        if draft.node is not None:
            traced[draft.views[0]] = draft.node.is_traced(traced)
    places = {name: views[name] for draft in drafts for name in draft.views}
    dists = {name: place.dist for name, place in places.items()}
    return Distributed(partitions, tables, dists, tuple(pieces), places)


@dataclass
class _Draft:
    """A component before it is placed."""

    views: tuple[str, ...]
    node: Node | None = None
    rules: RuleProgram | None = None
    after: list[tuple[str, Node]] = field(default_factory=list)
    settings: Settings | None = None
    everywhere: bool = True
    local: Local | None = None
    exchange: Exchange | None = None

    @property
    def plans(self) -> list[Node]:
        """The plain plans in it."""
        return _plans(self.node, self.rules, self.after)

    @property
    def ranked(self) -> bool:
        """Return whether rows that cross partitions are kept by the policy support."""
        own = self.settings
        return own is not None and own.maintain is None and own.policy == "support"

    def whole(self) -> PlannedComponent:
        """Return it as it is built where all rows are."""
        return PlannedComponent(self.views, self.node, self.rules, tuple(self.after), settings=self.settings)


def _draft(
    component: Component,
    program: Program,
    depth_limit: int,
    optimized: Optimized | None = None,
    keeps: Collection[KeptJoin] = (),
) -> _Draft:
    if not component.recursive and not is_maintained(component.views, program):
        (name,) = component.views
        query = program.views[name].query
        known = optimized.get(id(query)) if optimized is not None else None
        if known is None:
            known = query, distinct_inputs(optimize(query), program)
            if optimized is not None:
                optimized[id(query)] = known
        return _Draft(component.views, node=keep_joins(known[1], [keep for keep in keeps if keep.view == name]))
    rules = compile_rules(component.views, program, whole=not component.recursive)
    after = [(name, distinct_inputs(optimize(node), program)) for name, node in rules.after]
    own = settings(component.views, program, rules, depth_limit)
    return _Draft(component.views, rules=rules, after=after, settings=own)


def _plans(node: Node | None, rules: RuleProgram | None, after: Iterable[tuple[str, Node]]) -> list[Node]:
    sources = _sources(rules) if rules is not None else []
    return [*([node] if node is not None else []), *sources, *(other for _, other in after)]


def _sources(rules: RuleProgram) -> list[Node]:
    return [r.source for r in rules.relations if r.source is not None]


def _hold(drafts: Iterable[_Draft], program: Program, behind: set[str] | None = None) -> None:
    """Put held views over held inputs; `behind` are the views before these that are behind holds, and then all."""
    behind = set() if behind is None else behind
    for draft in drafts:
        holder = next((found for name in draft.views if (found := holder_of(name, program)) is not None), None)
        if holder is not None:
            free = {*behind, *draft.views, *(draft.rules.outputs if draft.rules is not None else ())}
            draft.node = hold_inputs(draft.node, holder.name, free) if draft.node is not None else None
            draft.rules = hold_rules(draft.rules, holder.name, free) if draft.rules is not None else None
            draft.after = [(name, hold_inputs(node, holder.name, free)) for name, node in draft.after]
        behind |= _behind(draft.views, draft.plans, behind)


def _behind(views: Iterable[str], plans: Iterable[Node], behind: Collection[str]) -> set[str]:
    """Return these views, if their plans are behind holds."""
    some: frozenset[HoldKey] = frozenset({("", "")})
    return set(views) if any(holds_in(plan, dict.fromkeys(behind, some)) for plan in plans) else set()


def _tables_under(drafts: Iterable[_Draft]) -> Callable[[Node], set[str]]:
    """Return a function that finds the tables a plan's rows come from, through views too."""
    known: dict[str, set[str]] = {}

    def under(node: Node) -> set[str]:
        found: set[str] = set()
        for part in walk(node):
            if isinstance(part, Scan):
                found.add(part.table)
            elif isinstance(part, Stream):
                found.add(part.stream)
            elif isinstance(part, Ref):
                found |= known.get(part.view, set())
        return found

    for draft in drafts:
        tables = set().union(*map(under, draft.plans))
        known |= dict.fromkeys([*draft.views, *(draft.rules.outputs if draft.rules is not None else ())], tables)
    return under


# -- tables ------------------------------------------------------------------------------------------------------------


def _place_tables(
    program: Program,
    drafts: Sequence[_Draft],
    fixed: Mapping[str, Distribution],
    small: Callable[[str], bool],
    uses: PartitionKeyUses,
    partitions: int,
) -> dict[str, Distribution]:
    if partitions == 1:
        return {name: fixed.get(name, Distribution("all")) for name in program.tables}
    copied: set[str] = set()
    for draft in drafts:
        for plan in draft.plans:
            uses.note(plan)
        if isinstance(draft.node, Retain) and partition_option(draft.views, program) == "one":
            uses.needs.note_whole(draft.node)
        if draft.exchange is not None:
            for relation, wanted in draft.exchange.required:
                source = draft.exchange.rules.relations[relation].source
                assert source is not None
                table = uses.table_under(source)
                if wanted.kind == "hash":
                    uses.add(source, wanted.cols)
                elif wanted.kind == "all" and table is not None and small(table):
                    copied.add(table)
        if draft.rules is None or draft.local is None:
            continue
        for relation, want in draft.local.uses(draft.rules):
            source = draft.rules.relations[relation].source
            assert source is not None
            table = uses.table_under(source)
            if want != COPY:
                uses.add(source, (want,))
            elif table is not None and small(table):
                copied.add(table)

    def placed(table: Table) -> Distribution:
        if table.name in fixed:
            return fixed[table.name]
        if table.placement is not None and table.placement.kind == "all" and table.stream is not None:
            return Distribution("one")  # each row is in one place only: there all are together
        if table.placement is not None:
            return Distribution(table.placement.kind, table.placement.cols)
        return Distribution("all") if table.name in copied else uses.choose(table.name)

    return {name: placed(table) for name, table in program.tables.items()}


# -- views -------------------------------------------------------------------------------------------------------------


def _plain(draft: _Draft, placer: DistributionEnforcer, views: dict[str, DistributionProperty]) -> PlannedComponent:
    assert draft.node is not None
    placed = placer.place(draft.node)
    views[draft.views[0]] = placed.place
    return PlannedComponent(draft.views, node=placed.node)


def _choose_strategy(draft: _Draft, program: Program, small: Callable[[Node], bool], ranked: bool) -> None:
    """Choose how a component recurses. Each partition does so on its own if that takes copies of small tables at most
    (`local`); else rows travel inside the recursion (`exchange`). One partition does it all only if that is wished, or
    in a plan that is not `ranked`, which could not exchange all rows."""
    assert draft.rules is not None
    wish = partition_option(draft.views, program)
    if wish == "one":
        draft.everywhere = False
    if wish == "one" or draft.everywhere:
        return
    local = None if wish == "exchange" else localize(draft.rules, small)
    if local is not None:
        copies = [draft.rules.relations[r].source for r in local.copies(draft.rules)]
        if wish == "broadcast" or all(small(node) for node in copies if node is not None):
            draft.local = local
            return
    elif wish == "broadcast":
        log.warning(
            "no copy of a table lets %s recurse in each partition alone, as its option wishes: no column goes "
            "through the recursion unchanged",
            ", ".join(draft.views),
        )
    if ranked or not computes_values(draft.rules):
        draft.exchange = plan_exchange(draft.rules, small, ranked and draft.ranked)


def _recursive(draft: _Draft, placer: DistributionEnforcer, views: dict[str, DistributionProperty]) -> PlannedComponent:
    rules, own = draft.rules, draft.settings
    assert rules is not None
    assert own is not None
    spec: Exchange | None = None
    sources = [placer.place(source) for source in _sources(rules)]
    derived = [i for i in range(len(rules.relations)) if is_derived(rules, i)]
    local = draft.local
    if draft.everywhere:
        made = _over_sources(rules, [s.node for s in sources])
        places, strategy = dict.fromkeys(derived, ALL), "in every partition"
    elif local is not None:

        def source(node: Node, want: int) -> Node:
            placed = placer.place(node)
            return (placed.copied() if want == COPY else placed.moved((want,))).node

        made = with_sources(rules, local, source)
        places, strategy = {r: by((c,)) for r, c in local.keys.items()}, describe_local(rules, local)
    elif draft.exchange is not None:

        def wished(node: Node, wish: RequiredDistribution) -> Node:
            placed = placer.place(node)
            match wish.kind:
                case "hash":
                    return placed.moved(wish.cols).node
                case "all":
                    return placed.copied().node
            return placed.moved(tuple(range(len(node.schema)))).node if placed.place == ALL else placed.node

        spec = draft.exchange.with_sources(wished)
        made, strategy = spec.rules, spec.text
        places = {made.outputs[name]: by(cols) if cols else ONE for name, cols in spec.homes}
    else:
        made = _over_sources(rules, [s.moved(()).node for s in sources])
        places, strategy = dict.fromkeys(derived, ONE), "one partition, as its option asks"
    views |= {name: places[relation] for name, relation in made.outputs.items()}
    after = []
    for name, node in draft.after:
        placed = placer.place(node)
        views[name] = placed.place
        after.append((name, placed.node))
    return PlannedComponent(
        draft.views,
        rules=made,
        after=tuple(after),
        strategy=strategy,
        settings=own,
        exchange=spec,
    )


def _over_sources(rules: RuleProgram, sources: Iterable[Node]) -> RuleProgram:
    """Put the rules over other plans of their external relations."""
    given = iter(sources)
    relations = [r if r.source is None else replace(r, source=next(given)) for r in rules.relations]
    return RuleProgram(relations, list(rules.rules), dict(rules.outputs), [])
