"""Subscriptions to templates: rows of parameter tables, and the answers that they stand for.

Subscribing inserts a row, in an epoch of its own, and follows the rows of the template's view that have its id. The
state that is told first is the whole answer as of that epoch. Cancelling deletes the row. The row outlives the process:
`StoredSubscription` is a handle on one that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.io import rows as rows_
from whence.model.errors import CatalogError, DataError, MissingRowError, WhenceError
from whence.plan.algebra.program import subscription_name
from whence.runtime.subscriptions.local import LocalSubscription
from whence.runtime.writing.tables import WriteSet
from whence.sql.position import did_you_mean
from whence.sql.templates import ID

if TYPE_CHECKING:
    from whence.explain.show.explanation import Explanation
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.writing.transaction import Transaction


class StoredSubscription:
    """A subscription to a template that is stored: a row of its parameter table (`Database.subscription`).

    template  the name of the template
    id        its number

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(3,), (7,)])
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low"); _ = db.insert("above", (1, 5))
    >>> one = db.subscription("above", 1); one.rows, one.parameters
    ([(7,)], {'low': 5})
    >>> sorted(table for table, _ in one.why((7,)).base)
    ['a', 'above']
    >>> one.cancel(); db["above"].rows
    []
    """

    def __init__(self, coordinator: Coordinator, template: str, id: int) -> None:
        self._coordinator, self.template, self.id = coordinator, template, id
        coordinator.reader.template_view(template)
        _check_id(id)
        self.parameters  # noqa: B018 - an error now, if there is none

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of its parameters."""
        coordinator = self._coordinator
        with coordinator.reading():
            table = coordinator.program.tables[self.template]
            found, _ = coordinator.reader.find_keys(self.template, (0,), np.array([[self.id]]))
            if not len(found):
                raise MissingRowError(f"there is no subscription {self.id} to {self.template}")
            [row] = rows_.to_tuples(found, table.schema, coordinator.dictionary)
        return dict(zip(table.schema.names[1:], row[1:], strict=True))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of its answer, as of the last committed epoch."""
        coordinator, name = self._coordinator, subscription_name(self.template, self.id)
        self.parameters  # noqa: B018 - it may have been cancelled
        with coordinator.reading():
            rows, counts = coordinator.reader.contents(name)
            schema, known = coordinator.reader.schema(name), coordinator.dictionary.frozen()
        return rows_.to_tuples(rows_.expand(rows, counts), schema, known)

    def why(self, row: tuple[Any, ...] | Mapping[str, Any]) -> Explanation:
        """Explain a row of its answer, as `Database.why` does; its parameters are among the base rows."""
        from whence.runtime.questions import provenance_queries as asking

        return asking.why(self._coordinator, subscription_name(self.template, self.id), row, {})

    def cancel(self) -> None:
        """Delete it; its answer is taken back in that epoch."""
        cancel(self._coordinator, self.template, self.id)

    def __repr__(self) -> str:
        return f"<subscription {self.id} to {self.template}>"


class TemplateSubscription(LocalSubscription):
    """The updates of a subscription to a template in this process (`Database.subscribe` with parameters).

    id        the number of the subscription, which the parameter table has
    template  the name of the template

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(3,), (7,)])
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> subscription = db.subscribe("above", low=5); [update.came for update in subscription]
    [[(7,)]]
    >>> _ = db.insert("a", (8,)); [update.came for update in subscription]; subscription.cancel(); db["above"].rows
    [[(8,)]]
    []
    """

    id: int

    def __init__(self, coordinator: Coordinator, template: str, parameters: Mapping[str, Any], **options: Any) -> None:
        coordinator.check_not_writing("subscribe")
        self.template, self.id = template, subscribe(coordinator, template, parameters)
        try:
            super().__init__(coordinator, subscription_name(template, self.id), **options)
        except BaseException:
            cancel(coordinator, template, self.id)
            raise

    def cancel(self) -> None:
        """Delete the subscription, and end its updates."""
        self.close()
        cancel(self._coordinator, self.template, self.id)


def subscribe(coordinator: Coordinator, template: str, parameters: Mapping[str, Any]) -> int:
    """Insert a subscription, in an epoch of its own; return its id, which is the next one unless it is given.

    Parameters that are not given are NULL. CatalogError if the id is taken, DataError for an unknown parameter."""
    coordinator.reader.template_view(template)
    given = {name.lower(): value for name, value in parameters.items()}
    table = coordinator.table_of(template)
    for name in given:
        if name not in table.schema.names:
            hint = did_you_mean(name, table.schema.names[1:])
            known = ", ".join(table.schema.names[1:])
            raise DataError(f'template "{template}" has no parameter "{name}"{hint}; it has {known}')
    with coordinator.transaction() as writes:
        pending = _rows_of(writes, template)
        id = given.get(ID)
        if id is None:
            id = coordinator.next_ids.get(template, 0) + 1
            if template not in coordinator.next_ids or _is_taken(pending, id):
                there = pending.everything()[0]
                id = max(int(there[:, 0].max()), 0) + 1 if len(there) else 1
            coordinator.next_ids[template] = id
        else:
            _check_id(id)
            if _is_taken(pending, id):
                raise CatalogError(f'template "{template}" has a subscription {id} already; change it by UPDATE')
        row = tuple(id if name == ID else given.get(name) for name in table.schema.names)
        pending.insert(rows_.encode([row], table.schema, coordinator.dictionary, template))
    return int(id)


def cancel(coordinator: Coordinator, template: str, id: int) -> bool:
    """Delete a subscription; return whether it was there."""
    with coordinator.transaction() as writes:
        pending = _rows_of(writes, template)
        return bool(pending.remove(*pending.find((0,), np.array([[id]]))))


def _is_taken(pending: WriteSet, id: int) -> bool:
    """Return whether there is a subscription with an id, be it one that the writer may not read."""
    return bool(len(pending.find_all((0,), np.array([[id]]))[0]))


def _rows_of(writes: Transaction, template: str) -> WriteSet:
    pending = writes.table(template)
    assert isinstance(pending, WriteSet)
    return pending


def _check_id(id: object) -> None:
    if isinstance(id, bool) or not isinstance(id, (int, np.integer)):
        raise DataError(f"the id of a subscription is a whole number, not {id!r:.80}")


def check_parameters(coordinator: Coordinator, name: object, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters for something that is not a template."""
    first = next(iter(parameters))
    what = f'"{name}" is not a template' if isinstance(name, str) else "several queries have no parameters of this kind"
    raise WhenceError(f"{what}, so it has no parameter {first}; values for parameters of a query are params=")
