"""Compile the views of a recursive component to rules.

A component without aggregates becomes one set relation a view. MIN and MAX become relations of their own that keep the
best value of each group; every other view that can be written out in terms of them is, so that what flows around the
recursion is keys and best values only, and those views are plain queries over the finished fixpoint.

What may be done with a best value inside its own recursion is what keeps the least fixpoint well defined: it may become
the value of another aggregate through an expression that moves the same way, or be compared so that better still
passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from whence.model.errors import NotStratifiable
from whence.model.types import BIGINT, BOOLEAN, Column, Schema, Type
from whence.plan.algebra.constructors import names_read
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, rebuild, substitute
from whence.plan.algebra.logical import Agg, Aggregate, Lateral, Node, Project, Ref, Scan, Select, Union, walk
from whence.plan.algebra.program import Program
from whence.plan.recursion.conjunctive import (
    Absence,
    Body,
    Derived,
    External,
    Flattener,
    Function,
    columns,
    is_conjunctive,
)
from whence.plan.recursion.externals import foreign_in, project_used, push_down
from whence.plan.recursion.native import Emitter, direction, is_test, lets_better_pass, skips_null
from whence.plan.recursion.rule_model import Atom, Foreign, Rule, RuleProgram, RuleRelation
from whence.plan.recursion.unify import unify
from whence.plan.rewrite import optimize
from whence.plan.rewrite.linearize import linearize

BINDING = "$binding"


def compile_rules(views: tuple[str, ...], program: Program, whole: bool = False) -> RuleProgram:
    """Compile the rules of a component of views that depend on each other, or, if `whole` is said, of a view that does
    not recurse."""
    return _Compiler(views, program, whole).compile()


@dataclass
class _Compiler:
    views: tuple[str, ...]
    program: Program
    whole: bool = False
    result: RuleProgram = field(default_factory=RuleProgram)
    _number: dict[object, int] = field(default_factory=dict)
    _groups: dict[Aggregate, list[tuple[str, Schema]]] = field(default_factory=dict)
    _todo: list[tuple[Aggregate, str]] = field(default_factory=list)
    _view: str = ""

    def compile(self) -> RuleProgram:
        queries = {name: self.program.views[name].query for name in self.views}
        inlined = self._inlined(queries)
        derived = {n: self.program.views[n].schema for n in self.views if n not in inlined}
        self.flat = Flattener(queries, derived, self._aggregate, is_conjunctive if self.whole else None)
        for name, schema in derived.items():
            self._relation(name, RuleRelation(name, schema, "set", view=name))
            self.result.outputs[name] = self._number[name]
        for name, query in queries.items():
            self._view = name
            for node in walk(query):
                if isinstance(node, Aggregate) and self.flat.recursive(node):
                    self._aggregate(node)
        for name in derived:
            self._define(name, queries[name])
        while self._todo:
            group, view = self._todo.pop()
            self._view = view
            self._define_group(group)
        self.result.after = [(n, self._over_outputs(queries[n])) for n in _ordered(inlined, queries)]
        return self.result

    def _inlined(self, queries: dict[str, Node]) -> list[str]:
        """With MIN or MAX in the component: the views that do not depend on themselves but through an aggregate."""
        flat = Flattener(queries, {})
        if not any(isinstance(n, Aggregate) and flat.recursive(n) for q in queries.values() for n in walk(q)):
            return []
        direct = {name: _direct(query, flat) for name, query in queries.items()}
        return [name for name in queries if name not in _reachable(name, direct)]

    def _relation(self, key: object, relation: RuleRelation) -> int:
        if key not in self._number:
            self._number[key] = len(self.result.relations)
            self.result.relations.append(relation)
        return self._number[key]

    # -- aggregates --------------------------------------------------------------------------------------------------

    def _aggregate(self, node: Aggregate) -> list[tuple[str, Schema]]:
        """Return the relations behind a GROUP BY over the component, made on first sight."""
        if node not in self._groups:
            named = []
            for position, agg in enumerate(node.aggs):
                value = node.schema.columns[len(node.keys) + position]
                if value.type.is_interned:
                    raise NotStratifiable(
                        f"{agg.function.upper()} over {value.type} inside recursion is not possible ({self._view}): "
                        "only numbers, dates and timestamps have an order the recursion can follow"
                    )
                schema = Schema((*node.schema.columns[: len(node.keys)], value))
                name = f"{self._view}${agg.function}{len(self._groups)}_{position}"
                sign = 1 if agg.function == "min" else -1
                number = self._relation(name, RuleRelation(name, schema, "best", sign, view=self._view))
                self.result.outputs[name] = number
                named.append((name, schema))
            self._groups[node] = named
            self._todo.append((node, self._view))
        return self._groups[node]

    def _define_group(self, node: Aggregate) -> None:
        for (name, _), agg in zip(self._groups[node], node.aggs, strict=True):
            assert agg.column is not None
            for body in self.flat.flatten(node.input):
                keys = tuple(body.out[k] for k in node.keys)
                self._rule(self._number[name], replace(body, out=(*keys, body.out[agg.column])))

    def _over_outputs(self, node: Node) -> Node:
        """Rewrite a view's query to read the aggregates of the component from the fixpoint."""
        if isinstance(node, Aggregate) and node in self._groups:
            return _regroup(node, self._groups[node])
        if not node.inputs:
            return node
        return node.with_inputs(tuple(map(self._over_outputs, node.inputs)))

    # -- rules -------------------------------------------------------------------------------------------------------

    def _define(self, name: str, query: Node) -> None:
        self._view = name
        for body in linearize(name, self.flat.flatten(query)):
            self._rule(self._number[name], body)

    def _rule(self, head: int, body: Body) -> None:
        """Add the rule `head <- body`, leaving to Python what only Python can do."""
        body = push_down(body)
        foreign = [t for t in body.tests if not is_test(t)]
        parts = [p for e in (*body.out, *(k for a in body.absences for k, _ in a.keys)) for p in foreign_in(e)]
        if foreign or parts or any(isinstance(s, Function) for s in body.sources):
            body = self._foreign_rule(body, foreign, list(dict.fromkeys(parts)))
        body = project_used(body)
        self._check_values(head, body)
        self.result.rules.append(self._native_rule(head, body, body.out))

    def _foreign_rule(self, body: Body, tests: list[Expr], parts: list[Expr]) -> Body:
        """Split a body at what only Python can compute: a rule for the computed rows, and the body over them."""
        functions = [i for i, s in enumerate(body.sources) if isinstance(s, Function)]
        owner, starts = body.owner(), body.offsets()
        computed_columns = {c for c, o in enumerate(owner) if o in functions}
        values = self._value_columns(body)
        given = [s for s in body.sources if not isinstance(s, Function)]
        early = [t for t in body.tests if is_test(t) and not columns_of(t) & (computed_columns | values.keys())]
        late = [t for t in body.tests if is_test(t) and t not in early]
        needed = body.reads() - computed_columns
        for part in (*tests, *parts, *(a for i in functions for a in body.sources[i].args)):  # type: ignore[union-attr]
            for column in columns_of(part) & values.keys():
                self._refuse_value(part, values[column])
        for i, source in enumerate(body.sources):  # a best value is looked up again by its key
            value = starts[i] + len(source.schema) - 1
            if value in values and value in needed:
                needed |= set(range(starts[i], value))
        wanted = values.keys() & needed
        terms = sorted(needed - values.keys())
        pipeline, place = self._pipeline(body, terms, functions, tests, parts)
        name = f"{self._view}$computed{len(self.result.rules)}"
        schema = Schema(pipeline.schema.columns[1:])
        number = self._relation(name, RuleRelation(name, schema, "set", view=self._view))
        # The rule that derives the computed rows, over the given sources.
        moved: dict[int, int] = {}
        at = 0
        for i, source in enumerate(body.sources):
            if i not in functions:
                moved |= {starts[i] + c: at + c for c in range(len(source.schema))}
                at += len(source.schema)

        def shift(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Col(c.type, moved[c.index]))

        types = {c: t for s, start in zip(body.sources, starts, strict=True) for c, t in _typed(s.schema, start)}
        stage = Body(tuple(given), tuple(map(shift, early)), tuple(shift(Col(types[c], c)) for c in terms))
        stage = project_used(stage)
        self.result.rules.append(replace(self._native_rule(number, stage, stage.out), foreign=Foreign(pipeline)))
        # What is left, over the computed rows and the relations whose best values are still wanted.
        sources: list[Derived | External] = [Derived(name, schema)]
        again: list[Expr] = []
        width = len(schema)
        for i, source in enumerate(body.sources):
            value = starts[i] + len(source.schema) - 1
            if isinstance(source, Derived) and value in wanted:
                for c, t in enumerate(source.schema.types[:-1]):
                    pair = (Col(t, place[starts[i] + c]), Col(t, width + c))
                    again.append(Call(BOOLEAN, "is_not_distinct", pair))
                place[value] = width + len(source.schema) - 1
                sources.append(source)
                width += len(source.schema)
        known = dict(zip(parts, range(len(schema) - len(parts), len(schema)), strict=True))

        def over(expr: Expr) -> Expr:
            if expr in known:
                return Col(expr.type, known[expr])
            if isinstance(expr, Col):
                return Col(expr.type, place[expr.index])
            return rebuild(expr, tuple(map(over, expr.children))) if expr.children else expr

        absences = tuple(replace(a, keys=tuple((over(e), c) for e, c in a.keys)) for a in body.absences)
        return Body(tuple(sources), (*again, *map(over, late)), tuple(map(over, body.out)), absences)

    def _pipeline(
        self, body: Body, terms: list[int], functions: list[int], tests: list[Expr], parts: list[Expr]
    ) -> tuple[Node, dict[int, int]]:
        """Numbered bindings through table functions, tests and computations; where each column of the body went."""
        starts = body.offsets()
        types = {c: t for s, start in zip(body.sources, starts, strict=True) for c, t in _typed(s.schema, start)}
        first = Schema((Column("#", BIGINT), *(Column(f"c{c}", types[c]) for c in terms)))
        node: Node = Scan(first, BINDING)
        place = {c: i + 1 for i, c in enumerate(terms)}

        def over(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Col(c.type, place[c.index]))

        for i in functions:
            source = body.sources[i]
            assert isinstance(source, Function)
            at = len(node.schema)
            schema = Schema(node.schema.columns + source.schema.columns)
            node = Lateral(schema, node, source.name, source.function, tuple(map(over, source.args)))
            place |= {starts[i] + c: at + c for c in range(len(source.schema))}
        for test in tests:
            node = Select(node.schema, node, over(test))
        made = tuple(Column(f"p{i}", part.type) for i, part in enumerate(parts))
        node = Project(Schema(node.schema.columns + made), node, (*columns(node.schema), *map(over, parts)))
        return node, {c: at - 1 for c, at in place.items()}

    def _native_rule(self, head: int, body: Body, out: tuple[Expr, ...]) -> Rule:
        """Make a rule whose every test and column a kernel computes. Columns that must be equal share a variable."""
        variable, constants, pending = unify(body)
        emitter = Emitter(variable, max(variable.values(), default=-1) + 1)
        emitter.constants += [(variable[column], literal.value, literal.type) for column, literal in constants]
        atoms = []
        at = 0
        used = body.reads() | {c for e in out for c in columns_of(e)}
        for source in body.sources:
            columns_of_atom = tuple(
                variable[at + c] if at + c in used or _shared(variable, at + c) else None
                for c in range(len(source.schema))
            )
            atoms.append(Atom(self._source(source), columns_of_atom))
            at += len(source.schema)
        for test in pending:
            emitter.test(test)
        for column in self._value_columns(body):
            if any(skips_null(e, column) for e in (*out, *body.tests)):
                emitter.must_be(Col(BIGINT, column))
        for absence in body.absences:
            atoms.append(self._absence(absence, emitter))
        terms = tuple(emitter.value(e) for e in out)
        if self.result.relations[head].kind == "best":
            emitter.number(out[-1])
        return Rule(head, terms, tuple(atoms), tuple(emitter.ops), tuple(emitter.constants), emitter.variables)

    def _source(self, source: Derived | External | Function) -> int:
        if isinstance(source, Derived):
            return self._number[source.name]
        assert isinstance(source, External)
        return self._external(source.node, "external")

    def _external(self, node: Node, kind: str) -> int:
        node = optimize(node)
        name = next(iter(names_read(node)), "values")
        relation = RuleRelation(name, node.schema, "absence" if kind == "absence" else "external", source=node)
        return self._relation((node, kind), relation)

    def _absence(self, absence: Absence, emitter: Emitter) -> Atom:
        """Only the compared columns of the absent rows matter; a NULL among them matches nothing unless told so."""
        node = absence.node
        if not absence.null_safe:
            for _, column in absence.keys:
                key = Col(node.schema.types[column], column)
                present = Call(BOOLEAN, "not", (Call(BOOLEAN, "is_null", (key,)),))
                node = Select(node.schema, node, present)
        schema = Schema(tuple(node.schema.columns[c] for _, c in absence.keys))
        node = Project(schema, node, tuple(Col(node.schema.types[c], c) for _, c in absence.keys))
        return Atom(self._external(node, "absence"), tuple(emitter.value(e) for e, _ in absence.keys))

    # -- best values -------------------------------------------------------------------------------------------------

    def _value_columns(self, body: Body) -> dict[int, str]:
        """Return the body's columns that hold best values, and the relation each comes from."""
        found = {}
        for source, start in zip(body.sources, body.offsets(), strict=True):
            if isinstance(source, Derived):
                relation = self.result.relations[self._number[source.name]]
                if relation.kind == "best":
                    found[start + relation.keys] = source.name
        return found

    def _check_values(self, head: int, body: Body) -> None:
        target = self.result.relations[head]
        for column, name in self._value_columns(body).items():
            sign = self.result.relations[self._number[name]].sign
            for test in body.tests:
                if column in columns_of(test) and not lets_better_pass(test, column, sign):
                    self._refuse_value(test, name)
            for e, _ in (k for a in body.absences for k in a.keys):
                if column in columns_of(e):
                    self._refuse_value(e, name)
            for position, expr in enumerate(body.out):
                moves = direction(expr, column)
                if moves == 0:
                    continue
                if target.kind != "best" or position != target.keys or moves is None or moves * sign != target.sign:
                    self._refuse_value(expr, name)

    def _refuse_value(self, expr: Expr, name: str) -> None:
        view, _, agg = name.rpartition("$")
        function = "MIN" if agg.startswith("min") else "MAX"
        raise NotStratifiable(
            f"the recursion {' -> '.join((*self.views, self.views[0]))} uses the value of {function} in {view} where a "
            f"better value could undo what a worse one derived (in {expr}); in its own recursion it may only become "
            "the value of a MIN or MAX through +, -, LEAST, GREATEST, or be compared so that better values still pass"
        )


def _typed(schema: Schema, start: int) -> list[tuple[int, Type]]:
    return [(start + i, t) for i, t in enumerate(schema.types)]


def _shared(variable: dict[int, int], column: int) -> bool:
    return sum(v == variable[column] for v in variable.values()) > 1


def _direct(node: Node, flat: Flattener) -> set[str]:
    """Return the members a query reads other than through an aggregate."""
    if isinstance(node, Aggregate):
        return set()
    found = {node.view} if isinstance(node, Ref) and node.view in flat.members else set()
    for child in node.inputs:
        found |= _direct(child, flat)
    return found


def _reachable(name: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    stack = [name]
    while stack:
        for target in graph[stack.pop()]:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _ordered(names: list[str], queries: dict[str, Node]) -> list[str]:
    """Order the views so that each comes after those it reads directly."""
    flat = Flattener(queries, {})
    done: list[str] = []
    left = list(names)
    while left:
        for name in left:
            if all(d in done or d not in names for d in _direct(queries[name], flat)):
                done.append(name)
                left.remove(name)
                break
    return done


def _regroup(node: Aggregate, named: list[tuple[str, Schema]]) -> Node:
    """Make the GROUP BY's result from the relations of its aggregates; NULL keys are keys like any other."""
    if len(named) == 1:
        return Ref(node.schema, named[0][0])
    keys = len(node.keys)
    branches = []
    for position, (name, schema) in enumerate(named):
        values = tuple(Col(t, keys) if i == position else Lit(t, None) for i, t in enumerate(node.schema.types[keys:]))
        branches.append(Project(node.schema, Ref(schema, name), (*columns(Schema(schema.columns[:keys])), *values)))
    aggs = tuple(Agg("min", keys + i) for i in range(len(named)))
    return Aggregate(node.schema, Union(node.schema, tuple(branches)), tuple(range(keys)), aggs)
