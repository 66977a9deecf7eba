"""What a window operator keeps, as its kernels see it, and what its plan is.

Each key of `by` has a **clock**: how far its windows are. Rows of a clock with equal `keys` are a **group**. The rows
of a group between two places where some window begins or ends are a **pane**, the least that ever comes or goes; panes
of a clock are numbered in order, and window k is the panes `STRIDE·k` to `STRIDE·k + DEPTH`.

A clock's line: C_*, then the codes of `by`. A group's line: G_*, roots of its ordered values, accumulators of distinct
values, the codes of `keys` (from P_KEYS). A pane's line: its head L_*, then its accumulators (`window_acc.py`). A kept
row's line: the next one, then the codes that must be known when it goes.
"""

from __future__ import annotations

from whence.model.record import RecordType, at_address

STATE = RecordType(
    (
        ("plan", "int64", 1),  # P_*
        ("units", "float64", 1),  # of a DOUBLE: every, what is left of the size, origin
        ("accs", "int64", 2),
        ("shows", "int64", 2),  # [what, word, and two that depend], one for each aggregate
        ("params", "float64", 1),  # one for each aggregate
        ("by", "int64", 1),
        ("keys", "int64", 1),
        ("columns", "int64", 1),  # of kept rows
        ("distincts", "int64", 2),  # [place in kept rows, kept as of aggregate.py, word]
        ("orders", "int64", 2),  # [place in kept rows, word]
        ("scalar", "int64", 1),  # S_*
        ("clock_slots", "int64", 1),
        ("group_slots", "int64", 1),
        ("entry_slots", "int64", 1),
        ("labels", "int64", 1),  # of interned codes
        ("active", "int64", 1),  # groups that something happened to in this batch
        ("scratch", "int64", 2),  # [groups, 2]
    )
)
state = at_address(STATE)

(
    P_KIND,  # ROWS, WHOLE or REAL
    P_LANDMARK,
    P_STRIDE,
    P_DEPTH,
    P_EVERY,
    P_REST,  # of the size, divided by `every`
    P_BEGIN,  # of the origin, divided by `every`
    P_ZERO,  # the number of the origin's pane, of landmark windows
    P_ON,
    P_SINGLE,  # each clock has one group
    P_KEEPS,  # rows must be known when they go
    P_TRACED,
    P_KEYS,  # the word of a group's line where its keys begin
) = range(13)
P_FIELDS = 13
ROWS, WHOLE, REAL = range(3)

(
    S_ARRIVED,  # rows that are in windows, ever
    S_ARRIVED_BEFORE,  # the epoch
    S_BATCH,  # its number
    S_ACTIVE,
    S_OUT,  # rows out
    S_LATE,
    S_WANT,  # rows out that there must be room for
    S_WHICH,  # aggregate does not fit
    S_WHERE,  # in which group
    S_STATUS,
) = range(10)
S_FIELDS = 10
BEGIN, DONE, ROOM, OUTPUT, UNFIT, TOO_MANY, TOO_FAR = range(7)
MOST_AT_ONCE = 1 << 26  # rows that one row may bring about
FAR = 1 << 61  # no value is so far, and no size so large

C_GROUPS, C_LIVE, C_SEEN, C_LAST, C_NEWEST, C_LIMIT, C_OFFSET = range(7)
C_FIELDS = 7

(
    G_NEXT,  # of the clock's groups that have rows; and the link of free lines
    G_PREV,
    G_CLOCK,
    G_STATE,  # FREE, IDLE or LISTED
    G_HEAD,  # the first pane
    G_TAIL,  # the last one
    G_MIDDLE,  # the first pane that stands for itself alone; those before it stand for all up to it
    G_BACK,  # the line that stands for the panes from there to the last but one
    G_MERGED,  # how many these are
    G_FIRST,  # rows that have gone
    G_COUNT,  # rows that have come
    G_KEPT,  # the first kept row
    G_NEWEST,  # the last one
    G_BATCH,  # the last batch in which something happened to it
    G_BASE,  # rows that had gone before that
    G_CARRIED,  # annotations it had before that
    G_CHUNK,  # where its annotations are
    G_CHUNKS,  # room there
    G_SHIFT,  # the first of them
) = range(19)
G_FIELDS = 19
FREE, IDLE, LISTED = range(3)

L_NEXT, L_PREV, L_PANE, L_ARRIVED, L_ROWS = range(5)
L_FIELDS = 5
