"""Plan views that aggregate selection cuts down: hidden views of best values, and the view over them.

*All best rows.* For each aggregate the recursion of keys and best values alone, `path$min0`; then the recursion of the
view as written, each row of it required to be best in one of the aggregates.

*One best row per group.* Five strata, none of which keeps a tie:

| view | rows |
|---|---|
| `path$max0` | keys and best value, as above |
| `path$rank0` | keys and the fewest steps in which the best value is derived from best values |
| `path$step0_j` | for rule j, the last steps of such derivations: keys of the head, and what the row is made of |
| `path$first0_j_i` | of those the first, by its columns up to the i-th from left to right |
| `path$one0` | the view's rows that the first steps make: one per group, since each is made of one row per group |

So the kept row is the one of fewest steps; among those that of the first rule in the text; among those the one whose
last step has the least values, in the order: keys of the recursive rows, then the columns of other relations. That is
a function of the base rows, whatever the order in which they came.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate

from whence.model.types import BIGINT, BOOLEAN, Column, Schema
from whence.plan.algebra.constructors import conjunction
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, substitute
from whence.plan.algebra.logical import Agg, Aggregate, Distinct, Join, Node, Project, Ref, Union
from whence.plan.algebra.program import Program, View
from whence.plan.recursion.conjunctive import Body, Derived, External, Source, as_query, columns
from whence.plan.recursion.unify import unify
from whence.plan.rewrite.select_aggregates import OPTION, Selection, bodies_of, selections

_STEP = Lit(BIGINT, 1)


def select_aggregates(program: Program, only: Collection[str] | None = None) -> Program:
    """Add hidden views for every recursive view, of these `only`, that aggregate selection can cut down."""
    planned = program.copy()
    for view in program.views.values() if only is None else [program.views[name] for name in only]:
        found = selections(view, program)
        if found:
            # What was decided is in the queries: a view whose option changes but not its plan goes on as it is.
            plain = replace(view, options=tuple(o for o in view.options if o[0] != OPTION), sql="")
            planned.views |= _selected(plain, found)
    return planned


def _selected(view: View, found: list[Selection]) -> dict[str, View]:
    """Return the views that take the place of one that is cut down: those of best values, then the view itself."""
    made: dict[str, View] = {}
    branches: list[Node] = []
    for number, selection in enumerate(found):
        best = _add(made, view, f"{selection.function}{number}", _best(view, selection, number))
        branch = _one(made, view, selection, number, best) if selection.one else _guard(view, selection, best)
        branches.append(branch)
    query = branches[0] if len(branches) == 1 else Distinct(view.schema, Union(view.schema, tuple(branches)))
    return {**made, view.name: replace(view, query=query)}


def _add(made: dict[str, View], view: View, name: str, query: Node) -> Ref:
    """Add a hidden view; return a reference to it."""
    full = f"{view.name}${name}"
    made[full] = View(full, query.schema, query, view.options, owner=view.name)
    return Ref(query.schema, full)


def _best(view: View, selection: Selection, number: int) -> Node:
    """Return the recursion of keys and best value alone: the view's query over itself, everything else forgotten."""
    kept = (*selection.keys, selection.value)
    schema = _picked(view.schema, kept)
    itself = Project(view.schema, Ref(schema, f"{view.name}${selection.function}{number}"), _padded(view, kept))
    query = _with_reference(view.query, view.name, itself)
    rows = Project(schema, query, tuple(Col(view.schema.types[c], c) for c in kept))
    last = len(kept) - 1
    return Aggregate(schema, rows, tuple(range(last)), (Agg(selection.function, last),))  # type: ignore[arg-type]


def _padded(view: View, kept: tuple[int, ...]) -> tuple[Expr, ...]:
    """Return the view's columns over a relation of some of them; the others are NULL."""
    return tuple(Col(t, kept.index(c)) if c in kept else Lit(t, None) for c, t in enumerate(view.schema.types))


def _guard(view: View, selection: Selection, best: Ref) -> Node:
    """Return the view's own query, joined with the best values."""
    kept = (*selection.keys, selection.value)
    own = [Col(view.schema.types[c], c) for c in kept]
    both = Schema(view.schema.columns + best.schema.columns)
    joined = Join(both, view.query, best, "inner", (), conjunction(_same(own, best.schema, len(view.schema))))
    return Project(view.schema, joined, columns(view.schema))


def _same(exprs: Sequence[Expr], schema: Schema, start: int) -> list[Expr]:
    """Conditions that some values are those of a relation's first columns, NULL being a value."""
    theirs = columns(schema, start)
    return [Call(BOOLEAN, "is_not_distinct", pair) for pair in zip(exprs, theirs, strict=False)]


def _with_reference(node: Node, name: str, by: Node) -> Node:
    """Replace every reference to a view in a query."""
    if isinstance(node, Ref):
        return by if node.view == name else node
    return node.with_inputs(tuple(_with_reference(i, name, by) for i in node.inputs))


# -- one best row per group --------------------------------------------------------------------------------------------


def _one(made: dict[str, View], view: View, selection: Selection, number: int, best: Ref) -> Node:
    """Add the views that keep one best row per group; return a reference to the last."""
    bodies = bodies_of(view)
    keys = len(selection.keys)
    schema = Schema((*_picked(view.schema, selection.keys).columns, Column("rank", BIGINT)))
    rank = Ref(schema, f"{view.name}$rank{number}")
    steps = [_tight(body, view, selection, best, rank) for body in bodies]
    ranks = Union(schema, tuple(as_query(replace(b, out=(*_keys_of(b, selection), r)), schema) for b, r in steps))
    # A step over two recursive rows takes the larger rank and adds one, which not every policy can keep.
    free = replace(view, options=tuple(o for o in view.options if o[0] != "policy"))
    _add(made, free, f"rank{number}", Aggregate(schema, ranks, tuple(range(keys)), (Agg("min", keys),)))
    rows: list[Node] = []
    earlier: list[Ref] = []
    one = Ref(view.schema, f"{view.name}$one{number}")
    for j, (body, (tight, r)) in enumerate(zip(bodies, steps, strict=True)):
        parts = _parts(body, selection)
        own = External(rank)  # the head's
        at = tight.width
        tests = _same([*_keys_of(tight, selection), r], rank.schema, at)
        kinds = [Column(f"p{i}", t) for i, t in enumerate(c.type for c in parts)]
        step = Schema((*rank.schema.columns[:keys], *kinds))
        found = replace(
            tight,
            sources=(*tight.sources, own),
            tests=(*tight.tests, *tests),
            out=(*_keys_of(tight, selection), *parts),
        )
        named = _add(made, view, f"step{number}_{j}", Distinct(step, _later(as_query(found, step), earlier, keys)))
        earlier.append(named)
        first = _first(made, view, f"first{number}_{j}", named, keys)
        rows.append(_made_of(body, selection, parts, first, one))
    _add(made, view, f"one{number}", Distinct(view.schema, Union(view.schema, tuple(rows))))
    return one


def _tight(body: Body, view: View, selection: Selection, best: Ref, rank: Ref) -> tuple[Body, Expr]:
    """Return the rule over best values and their ranks, where it gives a best value; and the rank of its head."""
    kept = (*selection.keys, selection.value)
    values = External(Project(view.schema, best, _padded(view, kept)))
    sources: list[Source] = [values if isinstance(s, Derived) else s for s in body.sources]
    tests, ranks = list(body.tests), list[Expr]()
    width = body.width
    for start in _recursive(body):
        tests += _same([Col(view.schema.types[k], start + k) for k in selection.keys], _keyed(rank), width)
        ranks.append(Col(BIGINT, width + len(selection.keys)))
        sources.append(External(rank))
        width += len(rank.schema)
    tests += _same([*_keys_of(body, selection), body.out[selection.value]], best.schema, width)
    sources.append(External(best))
    if not ranks:
        return replace(body, sources=tuple(sources), tests=tuple(tests)), _STEP
    deepest = ranks[0] if len(ranks) == 1 else Call(BIGINT, "greatest", tuple(ranks))
    return replace(body, sources=tuple(sources), tests=tuple(tests)), Call(BIGINT, "+", (deepest, _STEP))


def _parts(body: Body, selection: Selection) -> list[Col]:
    """Return what a rule's row is made of beside its keys: keys of recursive rows, then what it reads of other
    relations.

    Of columns that must be equal the first stands for all; those that are keys of the head are known."""
    types = [t for s in body.sources for t in s.schema.types]
    inner = {c for c, o in enumerate(body.owner()) if isinstance(body.sources[o], Derived)}
    wanted = [start + k for start in _recursive(body) for k in selection.keys]
    wanted += sorted({c for e in body.out for c in columns_of(e)} - inner)
    variable, _, _ = unify(body)
    seen = {variable[e.index] for e in _keys_of(body, selection) if isinstance(e, Col)}
    found = []
    for column in wanted:
        if variable[column] not in seen:
            seen.add(variable[column])
            found.append(Col(types[column], column))
    return found


def _later(node: Node, earlier: Sequence[Ref], keys: int) -> Node:
    """Return the rows of a plan whose keys no earlier rule has."""
    for ref in earlier:
        both = _same(columns(Schema(node.schema.columns[:keys])), _keyed(ref, keys), len(node.schema))
        node = Join(
            node.schema,
            node,
            Project(_keyed(ref, keys), ref, columns(_keyed(ref, keys))),
            "anti",
            (),
            conjunction(both),
        )
    return node


def _first(made: dict[str, View], view: View, name: str, steps: Ref, keys: int) -> Ref:
    """Add views that keep, for the same keys, the row that is first by its columns from left to right."""
    first = steps
    for at in range(keys, len(steps.schema)):
        node: Node = steps
        if at > keys:  # of the rows that are first so far
            known = first.schema.columns
            both = Schema(steps.schema.columns + known)
            same = _same(columns(Schema(steps.schema.columns[:at])), first.schema, len(steps.schema))
            node = Project(
                steps.schema, Join(both, steps, first, "inner", (), conjunction(same)), columns(steps.schema)
            )
        schema = Schema(steps.schema.columns[: at + 1])
        first = _add(made, view, f"{name}_{at - keys}", Aggregate(schema, node, tuple(range(at)), (Agg("min", at),)))
    return first


def _made_of(body: Body, selection: Selection, parts: list[Col], first: Ref, one: Ref) -> Node:
    """Return the rows that a rule's first steps make of the rows that are kept."""
    variable, _, _ = unify(body)
    keys, out = len(selection.keys), _keys_of(body, selection)
    place = {variable[e.index]: i for i, e in enumerate(out) if isinstance(e, Col)}
    place |= {variable[c.index]: keys + i for i, c in enumerate(parts)}
    starts = list(accumulate([len(first.schema), *(len(one.schema) for _ in _recursive(body))]))
    moved: dict[int, int] = {}
    tests: list[Expr] = []
    for start, at in zip(_recursive(body), starts, strict=False):
        moved |= {start + c: at + c for c in range(len(one.schema))}
        for k in selection.keys:
            pair = Col(one.schema.types[k], place[variable[start + k]]), Col(one.schema.types[k], at + k)
            tests.append(Call(BOOLEAN, "is_not_distinct", pair))

    def over(column: Col) -> Expr:
        at = moved.get(column.index)
        return Col(column.type, place[variable[column.index]] if at is None else at)

    sources = (External(first), *(External(one) for _ in _recursive(body)))
    return as_query(Body(sources, tuple(tests), tuple(substitute(e, over) for e in body.out)), one.schema)


def _recursive(body: Body) -> list[int]:
    """Return where the columns of a rule's recursive rows begin."""
    return [at for at, s in zip(body.offsets(), body.sources, strict=True) if isinstance(s, Derived)]


def _keys_of(body: Body, selection: Selection) -> tuple[Expr, ...]:
    """Return the keys of a rule's head."""
    return tuple(body.out[k] for k in selection.keys)


def _picked(schema: Schema, kept: Sequence[int]) -> Schema:
    return Schema(tuple(schema.columns[c] for c in kept))


def _keyed(ref: Ref, keys: int | None = None) -> Schema:
    """Return the key columns of a relation of keys and something more."""
    return Schema(ref.schema.columns[: len(ref.schema) - 1 if keys is None else keys])
