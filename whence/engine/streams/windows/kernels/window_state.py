"""The record of a window operator: its plan, its stores, and the layout of their lines.

Each key of `by` has a **clock**: how far its windows are. Rows of a clock with equal `keys` are a **group**. The rows
of a group between two places where some window begins or ends are a **pane**, the least that ever comes or goes; panes
of a clock are numbered in order from its origin, and window k is the panes `STRIDE·k` to `STRIDE·k + DEPTH`. (Landmark
window k is the panes 0 to k - 1.)

A clock's **watermark** is its greatest value less the lateness, or what was promised if that is more. Window k is
closed when the watermark's pane, C_LAST, is past its last one. Panes up to C_DONE are in a window that has closed.

A clock's line: C_*, then the codes of `by`. A group's line: G_*, roots of its ordered values, accumulators of distinct
values, the codes of `keys` (from P_KEYS). A pane's line: its head L_*, then its accumulators (`window_acc.py`). A kept
row's line: the next one of its pane, then the codes that must be known when it enters a window or goes.
"""

from __future__ import annotations

from whence.engine.streams.windows.kernels.window_lines import LINES
from whence.model.record import RecordType, at_address

STATE = RecordType(
    (
        ("clocks", LINES, 0),
        ("groups", LINES, 0),
        ("panes", LINES, 0),
        ("kept", LINES, 0),
        ("entries", LINES, 0),
        ("nodes", LINES, 0),
        ("plan", "int64", 1),  # P_*
        ("units", "float64", 1),  # of a DOUBLE: every, what is left of the size, lateness
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
    P_ORIGIN,  # its code
    P_FROM_FIRST,  # the origin is the first value of each clock, and no window begins before it
    P_LATENESS,
    P_ON,
    P_SINGLE,  # each clock has one group
    P_KEEPS,  # rows must be known when they go
    P_TRACED,
    P_KEYS,  # the word of a group's line where its keys begin
) = range(14)
P_FIELDS = 14
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
    S_PROMISED,  # no value below this code is to come; NULL if nothing was promised
    S_PROMISED_BEFORE,  # the epoch
    S_TAKEN,  # rows out whose annotations have been taken
    S_DISORDER,  # a row since then has a place before others of its group
    S_CLOCK,  # whose windows a promise closes next
    S_WAITING,  # kept rows of pending panes
    S_WAITING_BEFORE,  # the epoch
) = range(17)
S_FIELDS = 17
BEGIN, DONE, ROOM, OUTPUT, UNFIT, TOO_MANY, TOO_FAR, SPLIT = range(8)
MOST_AT_ONCE = 1 << 26  # rows that one row may bring about
FAR = 1 << 61  # no value is so far, and no size so large
NEVER = -(1 << 62)  # before every pane

(
    C_GROUPS,
    C_LIVE,  # groups that have rows
    C_SEEN,
    C_LAST,  # the pane of the watermark; of windows over rows, that of the next row
    C_DONE,  # the last pane of the last window that has closed
    C_NEWEST,  # the greatest value
    C_TOP,  # its pane
    C_LIMIT,  # no smaller value moves the watermark to another pane
    C_PANE,  # of the row before
    C_LOW,  # its first value
    C_HIGH,  # the least past it
    C_OFFSET,  # of windows over rows: how many the pane has
    C_ORIGIN,
) = range(13)
C_FIELDS = 13

(
    G_NEXT,  # of the clock's groups that have rows; and the link of free lines
    G_PREV,
    G_CLOCK,
    G_STATE,  # FREE, IDLE or LISTED
    G_HEAD,  # the first pane
    G_TAIL,  # the last one
    G_MIDDLE,  # the first pane of the back
    G_PENDING,  # the first pane that is in no window that has closed
    G_BACK,  # the line that stands for the panes of the back
    G_MERGED,  # how many these are
    G_FIRST,  # rows that have gone
    G_SOLID,  # rows of front and back
    G_COUNT,  # rows that have come
    G_BATCH,  # the last batch in which something happened to it
    G_BASE,  # rows that had gone before that
    G_CARRIED,  # annotations it had before that
    G_CHUNK,  # where its annotations are
    G_CHUNKS,  # room there
    G_SHIFT,  # the first of them
) = range(19)
G_FIELDS = 19
FREE, IDLE, LISTED = range(3)

L_NEXT, L_PREV, L_PANE, L_ARRIVED, L_ROWS, L_KEPT, L_LAST = range(7)  # the last two: its kept rows
L_FIELDS = 7
