"""What rules say of provenance: which external rows are edges of a graph, and which relations have the same rows."""

from __future__ import annotations

import pytest

import whence
from tests import inside
from whence.plan.recursion.edges import edges
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.rules import compile_rules
from whence.plan.recursion.sharing import find_same_rows

TABLES = "CREATE TABLE link (src TEXT, dst TEXT, cost INT); CREATE TABLE shut (n TEXT);"
STEP = "SELECT link.src, v.dst FROM link JOIN v ON link.dst = v.src"


def rules(query: str, tables: str = TABLES) -> RuleProgram:
    with whence.open() as db:
        db.execute(f"{tables} CREATE VIEW v AS {query}")
        return compile_rules(("v",), inside.coordinator(db).catalog.planned)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (f"SELECT src, dst FROM link UNION {STEP}", ("src", "dst")),
        # walked the other way round, the head has the far end
        (
            "SELECT src, dst FROM link UNION SELECT v.src, link.dst FROM v JOIN link ON v.dst = link.src",
            ("dst", "src"),
        ),
        # a value that is carried along
        (
            "SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link UNION "
            "SELECT link.src, v.dst, link.cost + v.cost FROM link JOIN v ON link.dst = v.src) AS q GROUP BY src, dst",
            ("src", "dst"),
        ),
        # both of one end, and of none
        ("SELECT src, dst FROM link UNION SELECT v.src, v.dst FROM v JOIN link ON v.src = link.src", None),
        ("SELECT src AS n, dst FROM link UNION SELECT v.n, v.dst FROM v WHERE v.n < 'M'", None),
    ],
)
def test_edges(query: str, columns: tuple[str, str] | None) -> None:
    program = rules(query)
    found = edges(program)
    if columns is None:
        assert found == {}
    else:
        ((relation, ends),) = found.items()
        assert tuple(program.relations[relation].schema.names[c] for c in ends) == columns


@pytest.mark.parametrize(
    ("first", "shared"),
    [
        ("SELECT src, dst FROM link", True),
        ("SELECT src, dst FROM link WHERE src <> 'A'", True),
        ("SELECT src, dst FROM link WHERE cost > 3", False),  # a row may go in one and stay in the other
        ("SELECT src, dst FROM link WHERE dst NOT IN (SELECT n FROM shut)", False),
        ("SELECT src, src || dst AS dst FROM link", False),
        ("SELECT dst AS src, src AS dst FROM link", False),
    ],
)
def test_a_base_row_is_one_variable_wherever_it_is_read(first: str, shared: bool) -> None:
    program = rules(f"{first} UNION {STEP}")
    external = [i for i, r in enumerate(program.relations) if r.kind == "external" and r.name == "link"]
    assert (len({find_same_rows(program)[i] for i in external}) == 1) == shared
