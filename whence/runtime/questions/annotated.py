"""Annotations of rows of views with maintained provenance, read back as rows and as a formula.

This is what the engine keeps, not an explanation: it speaks of the external rows of the view's own component (rows of
tables, of other views, of parts of its query), and lazily it has the reasons that have been told, not all there are.
`Database.why` goes down to base rows, and finds all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.engine.core.operator import upwards
from whence.engine.recursion.fixpoint import Port, annotated_policy
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.io.grid import SHOWN, Grid
from whence.model.codes import Codes, Dictionary, decode_value
from whence.model.errors import CatalogError
from whence.plan.recursion.rule_model import RuleRelation
from whence.runtime.catalog import Catalog
from whence.runtime.coordinator import Coordinator
from whence.runtime.questions.provenance_queries import Row, looking_into, present

Fact = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Annotation:
    """The annotation of one row of a view with `maintain` (`Database.annotation`): what the engine keeps, in terms of
    the external rows of the view's recursion.

    view, row, epoch     what was asked, and when
    maintain, propagate  the view's options
    representation       how the function is stored
    witnesses            minimal witnesses, smallest first, at most `limit` of them: tuples of facts. A fact is the name
                         of a relation and a row; the name of an absence begins with "no "
    count                how many minimal witnesses there are
    bytes                what the function takes alone

    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE link (a INT, b INT)")
    >>> _ = db.execute("CREATE VIEW reach WITH (maintain = 'absorption', propagate = 'eager') AS SELECT a, b "
    ...                "FROM link UNION SELECT link.a, reach.b FROM link JOIN reach ON link.b = reach.a")
    >>> _ = db.insert("link", [(1, 2), (2, 3), (1, 3)])
    >>> found = db.annotation("reach", a=1, b=3); found.count, found.witnesses[0]
    (2, (('link', {'a': 1, 'b': 3}),))
    >>> found.formula
    'link(1, 3) ∨ link(1, 2) ∧ link(2, 3)'
    """

    view: str
    row: dict[str, Any]
    epoch: int
    maintain: str
    propagate: str
    representation: str
    witnesses: tuple[tuple[Fact, ...], ...]
    count: int
    bytes: int

    @property
    def formula(self) -> str:
        """Write the witnesses as text, base rows joined by ∧, witnesses by ∨."""
        terms = [" ∧ ".join(map(_said, witness)) or "⊤" for witness in self.witnesses]
        left = self.count - len(terms)
        return " ∨ ".join(terms) + (f" ∨ … ({left:,} more)" if left > 0 else "")

    def _repr_html_(self) -> str:
        how = f"{self.maintain}, {self.propagate}, {self.representation}, {self.bytes:,} bytes"
        shown = [(len(witness), ", ".join(map(_said, witness)) or "⊤") for witness in self.witnesses[:SHOWN]]
        note = f"{len(shown):,} of {self.count:,} minimal witnesses, {how}"
        title = f"annotation of {_said((self.view, self.row))} at epoch {self.epoch:,}"
        return Grid(["rows", "witness"], shown, self.count, title, note).html()

    def __str__(self) -> str:
        return f"{_said((self.view, self.row))} = {self.formula}"


def annotation(coordinator: Coordinator, name: str, row: Row, columns: Mapping[str, Any], limit: int) -> Annotation:
    """Return the annotation of a row of a view that maintains one."""
    with looking_into(coordinator, name) as catalog:
        kept = _kept(catalog, name)
        meant, codes = present(catalog, name, row, columns)
        policy, handle = _handle(catalog, kept, name, codes)
        formulas = policy.formulas
        return Annotation(
            view=name,
            row=meant,
            epoch=coordinator.epoch,
            maintain=policy.maintain.algebra,
            propagate=policy.maintain.text,
            representation=policy.form,
            witnesses=tuple(
                tuple(_facts(policy, witness, catalog.dictionary)) for witness in formulas.witnesses(handle, limit)
            ),
            count=formulas.count(handle),
            bytes=int(formulas.sizes(np.array([handle]))[0]),
        )


def _kept(catalog: Catalog, name: str) -> list[Port]:
    """Return the relations with annotations that a view is, or is made of."""
    if name in catalog.program.tables:
        raise CatalogError(f'"{name}" is a table; only rows of views have annotations')
    op = catalog.backend.operator(name)
    if isinstance(op, Port):
        ports = [op]
    else:  # a query over the best values of its own recursion
        ports = [p for p in upwards([op]) if isinstance(p, Port) and _name(p).partition("$")[0] == name]
    if not ports or not all(annotated_policy(port.fixpoint) for port in ports):
        raise CatalogError(
            f"\"{name}\" does not maintain provenance: make it WITH (maintain = 'absorption'), or ask why, which needs "
            "none"
        )
    return ports


def _name(port: Port) -> str:
    return port.fixpoint.program.relations[port.relation].name


def _handle(catalog: Catalog, ports: list[Port], name: str, row: Codes) -> tuple[AnnotatedPolicy, int]:
    """Return the function of a view's row: of a row with several best values, what suffices for all of them."""
    names = list(catalog.program.views[name].schema.names)
    policy, parts = annotated_policy(ports[0].fixpoint), []
    assert policy is not None
    for port in ports:
        columns = list(range(len(port.schema)))
        if len(ports) > 1 or len(names) != len(columns):
            columns = [names.index(column) for column in port.schema.names]
        parts.append((port.relation, np.ascontiguousarray(row[:, columns])))
    return policy, int(policy.state.annotations_together(parts)[0])


def _facts(policy: AnnotatedPolicy, witness: tuple[int, ...], dictionary: Dictionary) -> list[Fact]:
    relations, cells = policy.variables.rows(np.array(witness, np.int64))
    return [
        _fact(policy.runner.program.relations[relation], row, dictionary)
        for relation, row in zip(relations.tolist(), cells.tolist(), strict=True)
    ]


def _fact(relation: RuleRelation, cells: list[int], dictionary: Dictionary) -> Fact:
    columns = zip(relation.schema.columns, cells, strict=False)
    row = {column.name: decode_value(code, column.type, dictionary) for column, code in columns}
    return ("no " if relation.kind == "absence" else "") + relation.name, row


def _said(fact: Fact) -> str:
    name, row = fact
    return f"{name}({', '.join(map(str, row.values()))})"
