"""The data of `lookups`: who may read what. A million facts of memberships, nested groups and grants, and the view
`may_read(who, doc)` of about 5.6 million rows.

Every user is a direct member of two groups. A group is in another one with a probability of 0.64, so a membership
reaches 2.8 groups on average; every group may read four documents. So a user may read some 22, and a document is read
by some 19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ROWS = 5_600_000
"""Rows of the view at full size."""
TABLES = """
CREATE TABLE member (who TEXT, grp TEXT);
CREATE TABLE subgroup (grp TEXT, parent TEXT);
CREATE TABLE granted (grp TEXT, doc TEXT);
"""
VIEWS = """
CREATE VIEW in_group AS
  SELECT who, grp FROM member
  UNION
  SELECT in_group.who, subgroup.parent FROM in_group JOIN subgroup ON in_group.grp = subgroup.grp;
CREATE VIEW may_read AS
  SELECT DISTINCT in_group.who, granted.doc FROM in_group JOIN granted ON in_group.grp = granted.grp;
"""
_NESTED = 0.64
_GRANTS = 4


@dataclass(frozen=True)
class Facts:
    """The rows of the three tables, and the users, groups and documents there are."""

    tables: dict[str, pa.Table]
    users: Sequence[str]
    groups: Sequence[str]
    documents: Sequence[str]

    @property
    def count(self) -> int:
        return sum(table.num_rows for table in self.tables.values())


def facts(rows: int = ROWS, seed: int = 15) -> Facts:
    """Make the facts of a view of about so many rows."""
    random, part = np.random.default_rng(seed), rows / ROWS
    users = _named("user", max(4, int(250_000 * part)))
    groups = _named("group", max(4, int(112_000 * part)))
    documents = _named("doc", max(20, int(300_000 * part)))
    member = {"who": np.repeat(users, 2), "grp": random.choice(groups, 2 * len(users))}
    nested = np.flatnonzero(random.random(len(groups)) < _NESTED)
    nested = nested[nested > 0]
    parents = (random.random(len(nested)) * nested).astype(np.int64)  # of a smaller number, so there is no cycle
    subgroup = {"grp": groups[nested], "parent": groups[parents]}
    granted = {"grp": np.repeat(groups, _GRANTS), "doc": random.choice(documents, _GRANTS * len(groups))}
    tables = {"member": pa.table(member), "subgroup": pa.table(subgroup), "granted": pa.table(granted)}
    return Facts(tables, users.tolist(), groups.tolist(), documents.tolist())


def _named(kind: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    return np.array([f"{kind}-{number:06d}" for number in range(count)], object)
