"""AT TIME ZONE: a local time to its instant, and an instant to the local time, by the type of what stands before it.

A TIMESTAMP AT TIME ZONE z is the instant at which clocks of z show it (`types.INSTANT`), and an instant AT TIME ZONE z
is the TIMESTAMP that they show then, as in PostgreSQL. Instants are TIMESTAMPs in UTC: where a query ends, that is what
is left of one.
"""

from __future__ import annotations

from sqlglot import exp

from whence.model import types as t
from whence.model.types import Kind
from whence.model.zones import Zone, find_zone, zone_names
from whence.plan.algebra.expressions import Call, Expr
from whence.sql.position import did_you_mean, error
from whence.sql.types import coerce, is_text_literal


def named_zone(node: exp.Expr) -> Zone:
    """Return the time zone of an AT TIME ZONE, which must be written out and known."""
    name = node.args["zone"]
    if not (isinstance(name, exp.Literal) and name.is_string):
        raise error("the time zone must be written out, such as 'Europe/Berlin', or be a parameter", name)
    try:
        return find_zone(name.this)
    except KeyError:
        known = {zone.lower(): zone for zone in zone_names()}
        cities = {zone.rpartition("/")[2]: name for zone, name in known.items()}
        wanted = name.this.lower().replace(" ", "_")
        close = known.get(wanted) or cities.get(wanted)
        hint = f'; did you mean "{close}"?' if close else did_you_mean(name.this, known.values())
        raise error(f"unknown time zone {name.this!r:.80}{hint}", name) from None


def at_time_zone(moment: Expr, zone: Zone, node: exp.Expr) -> Expr:
    """Build `moment AT TIME ZONE zone`. The digest says by what data of the zone, which may change with a release."""
    if moment.type.kind is Kind.NULL:
        moment = coerce(moment, t.TIMESTAMP, node)
    if moment.type.kind is not Kind.TIMESTAMP or is_text_literal(moment):
        raise error(f"AT TIME ZONE takes a TIMESTAMP, found {moment.type}; cast it if that is meant", node)
    if moment.type.is_zoned:
        return Call(t.TIMESTAMP, f"to_local:{zone.name}:{zone.digest}", (moment,))
    return Call(t.INSTANT, f"to_instant:{zone.name}:{zone.digest}", (moment,))
