"""What the database knows by name, and the running plan behind it; a change of either that fails leaves both as they were.

A script's views are bound together, ordered into components, and filled under names nobody sees; only when the last one
stands do they take their places. Replacing a view binds again, in the same step, everything that depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from whence.engine.build import Builder
from whence.engine.graph import Dataflow
from whence.engine.operator import Operator
from whence.errors import CatalogError, SqlError
from whence.model.codes import Dictionary
from whence.plan.logical import Lateral, walk
from whence.plan.program import Program, ScalarFunction, Table, TableFunction, View
from whence.plan.rewrite import optimize
from whence.plan.strata import Component, components, dependents
from whence.sql import statements as st
from whence.sql.bind import bind_views
from whence.sql.position import did_you_mean

Progress = Callable[[str, int, int], None]  # view, steps done, steps in all
_NEW = "\0"  # begins the names of views that are being filled


class Catalog:
    """Program and dataflow, changed together."""

    def __init__(self, recursion_limit: int) -> None:
        self.recursion_limit = recursion_limit
        self.dictionary = Dictionary()
        self.program = Program()
        self.flow = Dataflow()
        self.components: list[Component] = []
        self._creates: dict[str, st.CreateView] = {}

    # -- tables and functions ----------------------------------------------------------------------------------------

    def create_table(self, table: Table) -> None:
        self._check_free(table.name)
        self.flow.table(table.name, table.schema, table.key)
        program = self.program.copy()
        program.tables[table.name] = table
        self.program = program

    def register(self, function: ScalarFunction | TableFunction) -> None:
        """Make a function known. One that a view uses is not replaced: its rows would no longer be right."""
        name = function.name
        users = sorted(v for v, create in self._creates.items() if name in _functions_of(create))
        if users and (name in self.program.scalars or name in self.program.table_functions):
            raise CatalogError(f'the function "{name}" is used by {", ".join(users)}; drop them first')
        program = self.program.copy()
        program.scalars.pop(name, None)
        program.table_functions.pop(name, None)
        if isinstance(function, ScalarFunction):
            program.scalars[name] = function
        else:
            program.table_functions[name] = function
        self.program = program

    def _check_free(self, name: str) -> None:
        if name in self.program.tables or name in self.program.views:
            kind = "table" if name in self.program.tables else "view"
            raise CatalogError(f'there is a {kind} "{name}" already')

    # -- views -------------------------------------------------------------------------------------------------------

    def create_views(
        self, creates: list[st.CreateView], progress: Progress | None = None
    ) -> tuple[list[str], list[str]]:
        """Add views; the names of the new ones, and of those that were there and have been made anew."""
        program = self.program
        wanted: dict[str, st.CreateView] = {}
        for create in creates:
            name = create.name
            if (create.if_not_exists and name in program.views) or (create.if_not_exists and name in wanted):
                continue
            if name in program.tables or (name in program.views and not create.replace):
                self._check_free(name)
            if name in wanted and not create.replace:
                raise CatalogError(f'the view "{name}" is created twice')
            wanted[name] = create
        if not wanted:
            return [], []
        replaced = [name for name in wanted if name in program.views]
        again = [name for name in self._depending(replaced) if name not in wanted]
        base = self._without([*replaced, *again])
        bound = self._bind(wanted, again, base)
        fresh = [*wanted, *again]
        self._install(bound, set(fresh), [*replaced, *again], progress)
        self._creates.update(wanted)
        return list(wanted), [*replaced, *again]

    def _bind(self, wanted: dict[str, st.CreateView], again: list[str], base: Program) -> Program:
        if not again:
            return bind_views(list(wanted.values()), base)
        try:
            return bind_views([*wanted.values(), *(self._creates[name] for name in again)], base)
        except SqlError as error:
            try:
                bind_views(list(wanted.values()), base)
            except SqlError:
                raise
            raise CatalogError(f"{', '.join(again)} would no longer be valid: {error}") from error

    def _install(self, bound: Program, fresh: set[str], gone: list[str], progress: Progress | None) -> None:
        """Build and fill the fresh views, then let them take their places; on an error nothing has changed."""
        flow = self.flow
        ordered = components(bound)
        views = {name: op for name, op in flow.views.items() if name not in _with_hidden(self.program, gone)}
        try:
            builder = self._builder(bound, views)
            made: dict[str, Operator] = {}
            for component in ordered:
                names = [n for n in component.views if n not in views]
                if not names:
                    continue
                for name, op in self._build(component, bound, builder).items():
                    builder.views[name] = made[name] = op
                    flow.add_view(_NEW + name, op, _told(progress, name))
        except BaseException:
            for name in [n for n in flow.views if n.startswith(_NEW)]:
                del flow.views[name]
            flow.sweep()
            raise
        flow.views = {**views, **made}
        flow.sweep()
        self.program, self.components = bound, ordered

    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table or view and, with CASCADE, what depends on it; the names that are gone."""
        known: Iterable[str] = self.program.tables if kind == "table" else self._visible()
        if name not in known:
            other = self._visible() if kind == "table" else self.program.tables
            if name in other:
                raise CatalogError(f'"{name}" is a {"view" if kind == "table" else "table"}, not a {kind}')
            if if_exists:
                return []
            raise CatalogError(f'there is no {kind} "{name}"{did_you_mean(name, known)}')
        others = self._depending([name])
        if others and not cascade:
            verb = "depends" if len(others) == 1 else "depend"
            raise CatalogError(f'{", ".join(others)} {verb} on "{name}"; drop them first, or use CASCADE')
        gone = [name, *others]
        hidden = _with_hidden(self.program, gone)
        program = self._without(gone)
        program.tables.pop(name, None)
        self.flow.views = {n: op for n, op in self.flow.views.items() if n not in hidden}
        self.flow.sweep()
        if kind == "table":
            self.flow.remove_table(name)
        self.program, self.components = program, components(program)
        for view in gone:
            self._creates.pop(view, None)
        return gone

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _visible(self) -> list[str]:
        return [name for name, view in self.program.views.items() if not view.hidden]

    def _without(self, names: list[str]) -> Program:
        hidden = _with_hidden(self.program, names)
        program = self.program.copy()
        program.views = {n: v for n, v in program.views.items() if n not in hidden}
        return program


def _with_hidden(program: Program, names: Iterable[str]) -> set[str]:
    """The names and the hidden views that belong to them."""
    chosen = set(names)
    return chosen | {name for name, view in program.views.items() if view.owner in chosen}


def _told(progress: Progress | None, name: str) -> Callable[[int, int, str], None] | None:
    if progress is None:
        return None
    tell = progress
    return lambda done, total, _: tell(name, done, total)
