"""An Explanation: why a row is in a view, or why it is not.

It holds the derivations behind the row as of one epoch, and never changes; everything else is computed from them when
it is asked for. Rows are given as (table, row) pairs, a row as a dict by column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from whence.explain.ask.critical import find_critical
from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.formula import write_formula
from whence.explain.ask.remedies import find_blockers
from whence.explain.ask.witnesses import WitnessList, find_witnesses, order_by_derivation
from whence.explain.graph import Derivations, Ints
from whence.explain.missing import MissingRows, Remedy, write_partial
from whence.explain.show import layout, missing_tree, page
from whence.explain.show.choose import Chosen, Ways, behind, choose
from whence.explain.show.dot import to_dot
from whence.explain.show.fragment import explanation_html
from whence.explain.show.shares import AggregateShare, shares
from whence.explain.show.tree import Line, Tree, TreeLimits, printable, text_of
from whence.io.files import json_line
from whence.io.rows import encode, list_names, to_tuples
from whence.model.codes import Dictionary
from whence.model.errors import CatalogError, WhenceError
from whence.model.types import Schema
from whence.plan.algebra.program import is_template, template_of

if TYPE_CHECKING:
    import rich.text

LIMIT = 10  # witnesses that are told
_FEW = 8  # base rows of a line
BaseRow = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Contributing:
    """A row of a group, and what it is to each of the group's aggregates (`Explanation.contributing`).

    name    the table or view of the row
    row     the row, a dict
    copies  how often it is there
    shares  per aggregate its `function`, the `value` of the row, its `part` of the whole, and whether it is the `best`

    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT x, SUM(y) AS s FROM a GROUP BY x")
    >>> _ = db.insert("a", [(1, 3), (1, 1)])
    >>> [(one.row["y"], one.shares[0].part) for one in db.why("b", x=1).contributing]
    [(3, 0.75), (1, 0.25)]
    """

    name: str
    row: dict[str, Any]
    copies: int
    shares: tuple[AggregateShare, ...]


class Explanation:
    """Why a row is in a view, or why it is not (`Database.why`). Printed, it is a tree: the row, the ways it follows,
    down to base rows. True if the row is there.

    view, row, epoch  what was asked, and when
    holds             whether the row is in the view; if not, `reasons` say why and the rest is empty
    reasons           sentences that say why the row is not there
    missing           of a row that is not there: what it lacks and what excludes it, level by level (`MissingRows`)
    blockers          of a row that is not there: base rows whose deletion alone removes what excludes it
    lacking           of a row that is not there: rows that are missing, as (table or view, known columns)
    remedies          of a row that is not there: changes of one base row after which it is there
    base              the base rows behind it
    witnesses         minimal sets of base rows that suffice for it, smallest first, at most `limit` of them; the rows
                      of each in the order of a derivation, so those of a path in its order
    witness_count     how many minimal ones there are, or at least so many if not `complete`
    critical          the base rows whose loss alone would remove it
    formula           its function over base rows
    contributing      of an aggregate, the rows of its group with their share
    graph             the derivations (`whence.explain.graph`)
    exact, caveat     False if losing rows could bring about what is not in the graph; then `caveat` says why

    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE link (a INT, b INT); CREATE VIEW reach AS SELECT a, b FROM link "
    ...                "UNION SELECT link.a, reach.b FROM link JOIN reach ON link.b = reach.a")
    >>> _ = db.insert("link", [(1, 2), (2, 3), (1, 3)])
    >>> why = db.why("reach", a=1, b=3)
    >>> print(why)
    reach(1, 3) at epoch 1: 3 base rows, 2 minimal witnesses, the smallest of 1 row, none critical
    reach(1, 3)
    ├─ way 1 of 2: reach <- link
    │  └─ ● link(1, 3)
    └─ way 2 of 2: reach <- link, reach
       ├─ ● link(1, 2)
       └─ reach(2, 3)
          └─ reach <- link
             └─ ● link(2, 3)
    minimal witnesses, smallest first:
      1  link(1, 3)
      2  link(1, 2), link(2, 3)
    >>> why.holds, (why.witness_count, why.complete), why.witnesses[0], why.critical, why.formula
    (True, (2, True), [('link', {'a': 1, 'b': 3})], [], 'link(1, 3) ∨ link(1, 2) ∧ link(2, 3)')
    >>> db.why("reach", a=2, b=3).critical, why.exact
    ([('link', {'a': 2, 'b': 3})], True)
    >>> why.label, why.summary == why.text().plain.splitlines()[0]
    ('reach(1, 3)', True)
    >>> sorted(why.to_dict()["witnesses"]), why.to_html("why.html")[:15], why.to_dot()[:11]
    (['complete', 'count', 'found'], '<!doctype html>', 'digraph why')
    >>> why = db.why("reach", a=3, b=1)
    >>> why.reasons[0]
    'reach <- link: there is no link(3, 1): link has no row with a = 3; link has no row with b = 1'
    >>> why.lacking[0], why.blockers
    (('link', {'a': 3, 'b': 1}), [])
    >>> str(why.remedies[0]), why.missing.label
    ('inserting link(3, 1) would let it in', 'reach(3, 1)')
    """

    def __init__(
        self,
        graph: Derivations,
        view: str,
        row: Mapping[str, Any],
        epoch: int,
        *,
        limit: int = LIMIT,
        tables: Mapping[str, Schema] | None = None,  # all there are; if not given, only those behind the row are known
    ) -> None:
        self._graph: Derivations | None = graph
        self._tables = tables
        self.view, self.row, self.epoch, self.limit = view, dict(row), epoch, limit
        self.reasons: list[str] = []
        self.missing: MissingRows | None = None
        self.remedies: list[Remedy] = []

    @classmethod
    def of_missing(
        cls,
        view: str,
        row: Mapping[str, Any],
        epoch: int,
        reasons: Sequence[str] = (),
        missing: MissingRows | None = None,
        remedies: Sequence[Remedy] = (),
    ) -> Self:
        """Return the explanation of a row that is not in the view, and why, as far as that is known."""
        found = cls.__new__(cls)
        found._graph, found.view, found.row, found.epoch, found.limit = None, view, dict(row), epoch, LIMIT
        found.missing, found.remedies = missing, list(remedies)
        found.reasons = list(reasons) if missing is None else missing_tree.write_reasons(missing)
        return found

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        return self._graph is not None

    def __bool__(self) -> bool:
        return self.holds

    @property
    def graph(self) -> Derivations:
        if self._graph is None:
            raise WhenceError(f"{self.label} is not in the view: there are no derivations")
        return self._graph

    @property
    def root(self) -> int:
        """Return the node of the row."""
        return int(self.graph.roots[0])

    @property
    def label(self) -> str:
        """The row as people read it."""
        shown = ["NULL" if v is None else str(v) for v in self.row.values()]
        if is_template(self.view):  # whose first column is the subscription
            return f"{template_of(self.view)}#{shown[0]}({', '.join(shown[1:])})"
        return f"{self.view}({', '.join(shown)})"

    @cached_property
    def base(self) -> list[BaseRow]:
        return self.graph.rows(self.graph.base) if self.holds else []

    @cached_property
    def _witnesses(self) -> WitnessList:
        found = find_witnesses(self.graph, self.limit)
        return replace(found, found=order_by_derivation(self.graph, found.found))

    @cached_property
    def witnesses(self) -> list[list[BaseRow]]:
        if not self.holds or not self._witnesses.found:
            return []
        found = self._witnesses.found
        rows = iter(self.graph.rows(np.concatenate(found)))
        return [list(islice(rows, len(one))) for one in found]

    @property
    def witness_count(self) -> int:
        return self._witnesses.count if self.holds else 0

    @property
    def complete(self) -> bool:
        """Whether `witness_count` is exact."""
        return self._witnesses.complete if self.holds else True

    @cached_property
    def critical(self) -> list[BaseRow]:
        return self.graph.rows(self._critical) if self.holds else []

    @cached_property
    def _critical(self) -> Ints:
        """Return the critical base rows: each is in every witness, so they are in the order of the first."""
        critical = find_critical(self.graph)
        first = self._witnesses.found[:1]
        inside = [n for witness in first for n in witness[np.isin(witness, critical)].tolist()]
        return critical if len(inside) < len(critical) else np.array(inside, np.int32)

    @cached_property
    def formula(self) -> str:
        return write_formula(self.graph, known=self._witnesses) if self.holds else "⊥"

    @property
    def exact(self) -> bool:
        return self._graph is None or self._graph.exact

    @property
    def caveat(self) -> str:
        return "" if self._graph is None else self._graph.caveat

    @cached_property
    def blockers(self) -> list[BaseRow]:
        """Return, of a row that is not there, the base rows whose deletion alone removes what excludes it."""
        found: dict[str, BaseRow] = {}
        for goal in self.missing.walk() if self.missing is not None else ():
            for exclusion in (e for way in goal.ways for e in way.exclusions):
                nodes = find_blockers(exclusion)
                found |= dict(zip(exclusion.graph.labels(nodes), exclusion.graph.rows(nodes), strict=True))
        return list(found.values())

    @cached_property
    def lacking(self) -> list[BaseRow]:
        """Return, of a row that is not there, the rows that are missing: (table or view, known columns)."""
        found: dict[str, BaseRow] = {}
        for goal in self.missing.walk() if self.missing is not None else ():
            if goal is not self.missing or goal.is_table:
                found |= {write_partial(goal.relation, goal.columns, row): (goal.relation, row) for row in goal.rows}
        return list(found.values())

    @cached_property
    def contributing(self) -> list[Contributing]:
        return [one for _, some in self._groups for one in some]

    @cached_property
    def _groups(self) -> list[tuple[int, list[Contributing]]]:
        """Return the tallied nodes that the row stands on directly, with the rows of each."""
        if not self.holds:
            return []
        graph, seen, todo, found = self.graph, {self.root}, [self.root], []
        while todo:
            node = todo.pop()
            if node in graph.tallies:
                found.append((node, self._contributing(node)))
                continue
            for d in graph.derivations_of(node):
                for b in graph.bodies(d).tolist():
                    if b not in seen and (graph.kind(b) == "inner" or b in graph.tallies):
                        seen.add(b)
                        todo.append(b)
        return found

    def _contributing(self, node: int) -> list[Contributing]:
        graph = self.graph
        weights, columns = graph.tallies[node].weights, list(zip(*shares(graph, node), strict=True))
        body = graph.bodies(int(graph.first[node])).tolist()
        return [
            Contributing(graph.relations[graph.relation[b]].name, graph.row(b), int(weights[i]), tuple(columns[i]))
            for i, b in enumerate(body)
        ]

    def holds_without(self, lost: Mapping[str, Any]) -> bool:
        """Return whether the row would still be there without some base rows: by table, rows of any kind that `insert`
        takes. Rows that are not behind it make no difference. If not `exact`, it is what the derivations there are now
        say.

        >>> import whence
        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE t (a INT, b INT); CREATE VIEW v AS SELECT DISTINCT a FROM t")
        >>> _ = db.insert("t", [(1, 1), (1, 2)])
        >>> why = db.why("v", a=1)
        >>> why.holds_without({"t": [(1, 1)]}), why.holds_without({"t": [(1, 1), {"a": 1, "b": 2}]})
        (True, False)
        """
        if not self.holds:
            return False
        graph = self.graph
        relations = {r.name: (i, r.schema) for i, r in enumerate(graph.relations) if r.kind == "base"}
        schemas = self._tables or {name: schema for name, (_, schema) in relations.items()}
        alive = np.ones(len(graph.base), bool)
        for table, rows in lost.items():
            name = table.lower()
            if name not in schemas:
                raise CatalogError(f'there is no table "{table:.100}"; there are {list_names(sorted(schemas))}')
            codes = Dictionary()  # of both, so that equal values are equal codes and the graph's own gets no new ones
            gone = set(map(tuple, encode(rows, schemas[name], codes, name).tolist()))
            if name in relations:
                number, schema = relations[name]
                mine = np.flatnonzero(graph.relation[graph.base] == number)
                there = to_tuples(graph.cells[number][graph.place[graph.base[mine]]], schema, graph.dictionary)
                alive[mine] &= [tuple(row) not in gone for row in encode(there, schema, codes, name).tolist()]
        return Evaluator(graph).holds(alive)

    # -- text --------------------------------------------------------------------------------------------------------

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self.graph)

    @property
    def summary(self) -> str:
        """Say in one sentence what the row stands on."""
        if not self.holds:
            return f"{self.label} is not in the view at epoch {self.epoch}"
        found = self._witnesses
        least = "" if found.complete else "at least "
        parts = [f"{_many(len(self.graph.base), 'base row')}, {least}{_many(found.count, 'minimal witness', 'es')}"]
        if found.found:
            parts.append(f"the smallest of {_many(len(found.found[0]), 'row')}")
        lost = len(self._critical)
        parts.append(f"{lost:,} critical" if lost else "none critical")
        return f"{self.label} at epoch {self.epoch}: {', '.join(parts)}"

    def lines(self, limits: TreeLimits | None = None) -> Iterable[Line]:
        """Yield the text, line by line."""
        yield Line("", self.summary, "bold")
        if not self.holds:
            if self.missing is None or not (self.missing.ways or self.missing.note):
                yield from (Line("  ", reason) for reason in self.reasons)
            if self.missing is not None:
                yield from missing_tree.write_lines(self.missing, self.remedies, limits)
            return
        if not self.exact:
            yield Line("  ", f"not exact under every loss: {self.caveat}", "yellow")
        yield from Tree(self._ways, limits or TreeLimits()).lines(self.root)
        if self.witness_count > 1:
            yield from self._witness_lines()
        lost = self._critical.tolist()
        if lost:
            rest = f" and {len(lost) - 5:,} more" if len(lost) > 5 else ""
            yield Line("", f"critical: {', '.join(self.graph.labels(lost[:5]))}{rest}", "red")

    def _witness_lines(self) -> Iterable[Line]:
        found, labels = self._witnesses, self.graph.labels
        yield Line("", "minimal witnesses, smallest first:" if found.smallest else "some minimal witnesses:", "bold")
        for number, witness in enumerate(found.found, 1):
            rest = f" and {len(witness) - _FEW:,} more" if len(witness) > _FEW else ""
            yield Line(f"{number:3}  ", ", ".join(labels(witness[:_FEW])) + rest, "green")
        if found.count > len(found.found):
            least = "" if found.complete else "at least "
            yield Line("     ", f"… and {least}{found.count - len(found.found):,} more", "dim")

    def text(self, limits: TreeLimits | None = None) -> rich.text.Text:
        """Return the tree as rich text; `limits` says how much of it."""
        return text_of(self.lines(limits))

    def __rich__(self) -> rich.text.Text:
        return self.text()

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines()))

    def __repr__(self) -> str:
        return f"<{printable(self.summary)}>"

    # -- other forms -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as `to_json` has it."""
        head = {"view": self.view, "row": self.row, "epoch": self.epoch, "holds": self.holds, "reasons": self.reasons}
        if not self.holds:
            return {
                **head,
                "missing": None if self.missing is None else missing_tree.to_dict(self.missing),
                "blockers": [{"table": table, "row": row} for table, row in self.blockers],
                "lacking": [{"relation": name, "row": row} for name, row in self.lacking],
                "remedies": [{"action": r.action, "table": r.table, "row": r.row} for r in self.remedies],
            }
        graph, found = self.graph, self._witnesses
        place = {int(n): i for i, n in enumerate(graph.base)}
        copies = [graph.copies.get(int(n), 1) for n in graph.base]
        return {
            **head,
            "exact": self.exact,
            "caveat": self.caveat,
            "base": [{"table": t, "row": r, "copies": c} for (t, r), c in zip(self.base, copies, strict=True)],
            "witnesses": {
                "count": found.count,
                "complete": found.complete,
                "found": [[place[n] for n in w.tolist()] for w in found.found],
            },
            "critical": [place[n] for n in self._critical.tolist()],
            "formula": self.formula,
            "contributing": [
                {"name": c.name, "row": c.row, "copies": c.copies, "shares": [vars(s) for s in c.shares]}
                for c in self.contributing
            ],
            "graph": {
                "root": self.root,
                "nodes": [
                    {"kind": graph.kind(n), "name": name, "row": row}
                    for n, (name, row) in enumerate(graph.rows(range(len(graph))))
                ],
                "derivations": [
                    {"head": int(h), "step": graph.steps[graph.step[d]].text, "body": graph.bodies(d).tolist()}
                    for d, h in enumerate(graph.head)
                ],
            },
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Write JSON, to `path` if that is given:

            view, row, epoch, holds   what was asked; if it does not hold `reasons`, and then only these:
            missing                   {relation, table, rows, count, where, nearest, note, ways}, and each way
                                      {rule, reason, excluded_by: [{relation, row}], lacking: [missing …], any_of}
            blockers, lacking         [{table, row}] and [{relation, row}], as the attributes
            remedies                  [{action, table, row}]

            and of a row that is there:
            exact, caveat             whether the graph says all about every loss of rows, and if not why
            base                      [{table, row, copies}]
            witnesses                 {count, complete, found: [[places in base]]}, smallest first
            critical                  [places in base]
            formula                   text
            contributing              [{name, row, copies, shares: [{function, value, part, best}]}]
            graph                     {root, nodes: [{kind, name, row}], derivations: [{head, step, body}]}, where
                                      root, head and body are places in nodes; kind is base, absence, view or inner

        Values are as in JSON lines that `whence` writes: dates and decimals as text.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> _ = db.insert("a", (1,))
        >>> print(db.why("b", x=1).to_json("why.json")[:15])
        {
         "view": "b",
        """
        return page.write_out(json.dumps(json.loads(json_line(self.to_dict())), ensure_ascii=False, indent=1), path)

    @cached_property
    def drawn(self) -> Chosen:
        """Choose the part of the graph that is drawn: all of it, if that can be looked at, or what the smallest
        witnesses need."""
        large = len(self.graph) + len(self.graph.head) > layout.MOST
        if large and not self.graph.tallies and self._witnesses.found:
            return behind(self.graph, self.root, self._witnesses.found, layout.MOST)
        return choose(self._ways, self.root, layout.MOST)

    def to_dot(self, path: str | Path | None = None) -> str:
        """Write the graph for Graphviz; of one that is too large to be drawn, what the smallest derivations need."""
        if self.missing is not None:
            return page.write_out(missing_tree.to_dot(self.missing), path)
        return page.write_out(to_dot(self.graph, self.drawn, self.root), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Write one page that needs nothing else: the graph drawn, the witnesses, the formula, the base rows."""
        return page.write_out(page.explanation_page(self), path)


def _many(count: int, what: str, plural: str = "s") -> str:
    """
    >>> _many(1, "row"), _many(2, "witness", "es")
    ('1 row', '2 witnesses')
    """
    return f"{count:,} {what}{plural if count != 1 else ''}"
