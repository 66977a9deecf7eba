"""What is read from a log is what was appended, up to some record; whatever was synced is there; damage is told."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults import SECTOR, Failing, Unplugged, Watched, dies, points
from whence.model.errors import CorruptionError, StorageError
from whence.state.disk import Disk
from whence.state.log import EPOCH, INPUT, SCHEMA, Log, Reader, Torn
from whence.state.segment import FILE_HEADER, RECORD_HEADER, segment_path

Contents = list[tuple[int, int, int, bytes]]


def contents(folder: Path, segments: Sequence[int] = (1,)) -> Contents:
    records = Reader(folder).read(segments)
    return [(record.kind, record.epoch, record.time, bytes(record.payload)) for record in records]


def numbered(epochs: Sequence[int], size: int = 30) -> Contents:
    return [(EPOCH, epoch, 1000 + epoch, payload(epoch, size)) for epoch in epochs]


def payload(epoch: int, size: int = 30) -> bytes:
    return random.Random(epoch).randbytes(size)


def add(log: Log, epoch: int, size: int = 30) -> int:
    return log.append(EPOCH, epoch, 1000 + epoch, [payload(epoch, size)])


def filled(folder: Path, epochs: Sequence[int], *, size: int = 30, sync: bool = True) -> Path:
    """A log with these epochs, each synced on its own; gives its one segment."""
    log = Log(Disk(), folder, [], durability="commit" if sync else "none")
    for epoch in epochs:
        log.sync(add(log, epoch, size))
    log.close()
    return segment_path(folder, 1)


# Round trips


def test_records_come_back_as_they_were_appended(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    log.append(SCHEMA, 0, -5, [b"CREATE TABLE ", memoryview(b"a (x INT)")])
    log.append(EPOCH, 1, 1 << 60, [])
    log.append(EPOCH, 3, 7, [b"", b"x", bytearray(b"y")])
    log.append(EPOCH, 4, 8, [b"z"] * 3000)
    log.append(EPOCH, 1 << 40, 9, [bytes(range(256)) * 20_000])
    log.append(INPUT, (1 << 40) + 1, 9, [b"{}"])
    assert log.written == 6
    log.close()
    assert contents(tmp_path) == [
        (SCHEMA, 0, -5, b"CREATE TABLE a (x INT)"),
        (EPOCH, 1, 1 << 60, b""),
        (EPOCH, 3, 7, b"xy"),
        (EPOCH, 4, 8, b"z" * 3000),
        (EPOCH, 1 << 40, 9, bytes(range(256)) * 20_000),
        (INPUT, (1 << 40) + 1, 9, b"{}"),
    ]


def test_records_that_cross_the_reader_s_windows(tmp_path: Path) -> None:
    epochs = range(1, 60)
    filled(tmp_path, epochs, size=100_003, sync=False)
    assert contents(tmp_path) == numbered(epochs, 100_003)


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    for first in (1, 4, 7):
        log = Log(Disk(), tmp_path, [] if first == 1 else [1])
        for epoch in range(first, first + 3):
            log.sync(add(log, epoch))
        assert log.torn is None
        log.close()
    assert contents(tmp_path) == numbered(range(1, 10))
    assert log.size == log.segment_size == segment_path(tmp_path, 1).stat().st_size


def test_epochs_must_rise(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    add(log, 5)
    for kind, epoch in ((EPOCH, 5), (EPOCH, 4), (SCHEMA, 4), (INPUT, 5)):
        with pytest.raises(StorageError, match=f"epoch {epoch} cannot follow epoch 5"):
            log.append(kind, epoch, 0, [b""])
    log.append(SCHEMA, 5, 0, [b"s"])
    log.close()
    assert contents(tmp_path) == [*numbered([5]), (SCHEMA, 5, 0, b"s")]


# Damage


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_a_flipped_byte_is_never_taken_for_data(tmp_path: Path, mask: int) -> None:
    path = filled(tmp_path, [1, 2, 3, 4], size=170)
    good, last = path.read_bytes(), [record.offset for record in Reader(tmp_path).read([1])][-1]
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= mask
        path.write_bytes(bad)
        with pytest.raises(CorruptionError) as caught:
            contents(tmp_path, [1, 2])
        assert caught.value.path == path
        assert caught.value.offset <= at
        try:
            log = Log(Disk(), tmp_path, [1])
        except CorruptionError:
            continue
        assert log.torn == Torn(path, last, len(good) - last)
        assert contents(tmp_path) == numbered([1, 2, 3], 170)
        log.close()


def test_a_cut_log_has_exactly_the_whole_records(tmp_path: Path) -> None:
    path = filled(tmp_path, [1, 2, 3], size=200)
    good, ends = path.read_bytes(), [FILE_HEADER + n * (RECORD_HEADER + 200) for n in range(4)]
    for length in range(len(good)):
        path.write_bytes(good[:length])
        if length < FILE_HEADER:
            with pytest.raises(CorruptionError, match="not segment 1 of a log"):
                Log(Disk(), tmp_path, [1])
            continue
        whole = max(n for n in range(4) if ends[n] <= length)
        assert contents(tmp_path) == numbered(range(1, whole + 1), 200)
        assert path.stat().st_size == length, "reading must not write"
        log = Log(Disk(), tmp_path, [1])
        assert log.torn == (Torn(path, ends[whole], length - ends[whole]) if length > ends[whole] else None)
        log.sync(add(log, 9))
        log.close()
        assert contents(tmp_path) == [*numbered(range(1, whole + 1), 200), *numbered([9])]


def zero_a_sector(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    data[number * SECTOR : (number + 1) * SECTOR] = bytes(SECTOR)
    path.write_bytes(data)


def test_sectors_that_never_reached_the_disk_are_torn(tmp_path: Path) -> None:
    path = filled(tmp_path, range(1, 30), size=100, sync=False)
    whole = path.stat().st_size
    zero_a_sector(path, 4)
    log = Log(Disk(), tmp_path, [1])
    first = (4 * SECTOR - FILE_HEADER) // (RECORD_HEADER + 100)
    assert log.torn is not None
    assert log.torn.offset == FILE_HEADER + first * (RECORD_HEADER + 100)
    assert log.torn.offset + log.torn.bytes == whole
    assert contents(tmp_path) == numbered(range(1, first + 1), 100)
    log.close()


def test_zeros_among_records_known_to_be_stable_are_corruption(tmp_path: Path) -> None:
    path = filled(tmp_path, range(1, 30), size=100)
    zero_a_sector(path, 4)
    before = path.read_bytes()
    with pytest.raises(CorruptionError, match="had reached the disk"):
        Log(Disk(), tmp_path, [1])
    assert path.read_bytes() == before


def test_zeros_at_the_end_are_torn(tmp_path: Path) -> None:
    path = filled(tmp_path, [1, 2])
    end = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(5000))
    log = Log(Disk(), tmp_path, [1])
    assert log.torn == Torn(path, end, 5000)
    log.close()
    assert contents(tmp_path) == numbered([1, 2])


def test_a_record_copied_elsewhere_is_corruption(tmp_path: Path) -> None:
    path = filled(tmp_path, [1, 2, 3])
    data, size = path.read_bytes(), RECORD_HEADER + 30
    path.write_bytes(data + data[FILE_HEADER + 2 * size :])
    with pytest.raises(CorruptionError, match="header checksum") as caught:
        Log(Disk(), tmp_path, [1])
    assert caught.value.offset == FILE_HEADER + 3 * size


def test_a_segment_under_another_number_is_corruption(tmp_path: Path) -> None:
    filled(tmp_path, [1]).rename(segment_path(tmp_path, 2))
    with pytest.raises(CorruptionError, match="not segment 2 of a log"):
        Log(Disk(), tmp_path, [2])


def test_epoch_order_holds_across_segments(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    add(log, 5)
    log.rotate()
    log.close()
    first = segment_path(tmp_path, 1).read_bytes()
    again = Log(Disk(), tmp_path, [2])
    add(again, 4)
    again.close()
    segment_path(tmp_path, 1).write_bytes(first)
    assert contents(tmp_path, [2]) == numbered([4])
    with pytest.raises(CorruptionError, match="epoch 4 comes after epoch 5"):
        contents(tmp_path, [1, 2])


def test_a_vanished_segment_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path, [1])
    path.unlink()
    for use in (lambda: Log(Disk(), tmp_path, [1]), lambda: contents(tmp_path, [1])):
        with pytest.raises(StorageError, match=f"{path}.*vanished"):
            use()


# Failing disks


def write_epochs(log: Log, epochs: Sequence[int]) -> Iterator[int]:
    """Appends and syncs; gives the epochs that were refused."""
    for epoch in epochs:
        try:
            log.sync(add(log, epoch))
        except StorageError:
            if log.failed:
                try:
                    log.recover_to_synced()
                except StorageError:
                    assert log.failed
            yield epoch


@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_full_disk_refuses_and_forgets(tmp_path: Path, length: int) -> None:
    """The disk is full from each write point on, for a while; what was refused is not there, the rest is."""

    def prepare(name: str, disk: Disk) -> Log:
        filled(tmp_path / name, [1, 2])
        return Log(disk, tmp_path / name, [1])

    watched = Watched()
    list(write_epochs(prepare("count", watched), range(3, 8)))
    first = points(lambda disk: prepare("first", disk).close())
    for at in range(first + 1, watched.visited + 1):
        name = f"{at}-{length}"
        disk = Failing(at)
        log = prepare(name, disk)
        refused = []
        for epoch in range(3, 12):
            if disk.visited >= at + length:
                disk.heal()
            refused += list(write_epochs(log, [epoch]))
        assert refused
        disk.heal()
        if log.failed:
            log.recover_to_synced()
        log.sync(add(log, 12))
        kept = [epoch for epoch in range(1, 13) if epoch not in refused]
        assert contents(tmp_path / name) == numbered(kept)
        log.close()
        disk.release()
        assert contents(tmp_path / name) == numbered(kept)


def test_a_refused_record_is_gone_at_once(tmp_path: Path) -> None:
    class Sulking(Watched):
        def visit(self, point: str, path: Path) -> None:
            if point == "wrote" and path.stat().st_size > 200:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = Log(Sulking(), tmp_path, [])
    log.sync(add(log, 1))
    with pytest.raises(StorageError, match="cannot write"):
        add(log, 2, 300)
    assert contents(tmp_path) == numbered([1])
    log.close()


def test_what_opening_found_is_made_stable(tmp_path: Path) -> None:
    filled(tmp_path, [1])
    told: list[str] = []
    Log(Disk(lambda point, path: told.append(point)), tmp_path, [1]).close()
    assert told == ["sync", "synced"]


def test_rotating_on_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    count = points(lambda disk: Log(disk, tmp_path / "count", []).rotate())
    start = points(lambda disk: Log(disk, tmp_path / "start", []))
    for at in range(start + 1, count + 1):
        folder, disk = tmp_path / str(at), Failing(at)
        log = Log(disk, folder, [])
        with pytest.raises(StorageError, match="disk is full"):
            log.rotate()
        disk.heal()
        assert log.segments == (1,)
        log.sync(add(log, 1))
        assert log.rotate() == 2
        log.sync(add(log, 2))
        assert contents(folder, log.segments) == numbered([1, 2])
        log.close()


def test_a_failed_sync_fails_everyone_who_waits(tmp_path: Path) -> None:
    class NoSync(Watched):
        broken = False

        def visit(self, point: str, path: Path) -> None:
            if self.broken and point == "sync":
                time.sleep(0.02)
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = NoSync()
    log = Log(disk, tmp_path, [])
    log.sync(add(log, 1))
    disk.broken = True
    tickets = [add(log, epoch) for epoch in (2, 3, 4)]
    told: list[int] = []

    def wait(ticket: int) -> None:
        try:
            log.sync(ticket)
        except StorageError:
            told.append(ticket)

    threads = [threading.Thread(target=wait, args=(ticket,)) for ticket in tickets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == tickets
    assert log.failed
    with pytest.raises(StorageError, match="has failed"):
        add(log, 5)
    with pytest.raises(StorageError, match="the device failed"):
        log.recover_to_synced()
    assert log.failed
    disk.broken = False
    log.recover_to_synced()
    with pytest.raises(StorageError, match="could not be made stable"):
        log.sync(tickets[0])
    ticket = add(log, 2, 77)
    log.sync(ticket)
    assert ticket > tickets[-1]
    assert log.synced == log.written == ticket
    log.close()
    assert contents(tmp_path) == numbered([1]) + numbered([2], 77)


def test_a_withdrawn_record_was_never_there(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    log.sync(add(log, 1))
    stays, goes = add(log, 2), add(log, 3)
    with pytest.raises(StorageError, match="only the last"):
        log.withdraw(stays)
    log.withdraw(goes)
    with pytest.raises(StorageError, match="only the last"):
        log.withdraw(goes)
    log.sync(stays)
    stable = add(log, 3, 50)
    log.sync(stable)
    log.withdraw(stable)
    assert log.synced == log.written == stays
    log.sync(add(log, 3, 60))
    log.close()
    assert contents(tmp_path) == numbered([1, 2]) + numbered([3], 60)


def test_a_crash_does_not_bring_back_a_withdrawn_record(tmp_path: Path) -> None:
    told: list[str] = []
    disk = Disk(lambda point, path: told.append(point))
    log = Log(disk, tmp_path, [])
    ticket = add(log, 1)
    told.clear()
    log.withdraw(ticket)
    assert told == ["truncate", "truncated", "sync", "synced"]
    log.close()


def test_a_record_that_cannot_be_withdrawn_fails_the_log(tmp_path: Path) -> None:
    disk = Failing(10_000, errno.EIO)
    log = Log(disk, tmp_path, [])
    log.sync(add(log, 1))
    ticket = add(log, 2)
    disk.at = 0
    with pytest.raises(StorageError, match="cannot truncate"):
        log.withdraw(ticket)
    assert log.failed
    disk.heal()
    log.recover_to_synced()
    log.sync(add(log, 2, 40))
    log.close()
    assert contents(tmp_path) == numbered([1]) + numbered([2], 40)


# Group commit and durability


class SlowSync(Watched):
    """Counts syncs of files, each of which takes a while."""

    syncs = 0

    def visit(self, point: str, path: Path) -> None:
        if point == "sync":
            self.syncs += 1
            time.sleep(0.003)


def test_group_commit_shares_syncs(tmp_path: Path) -> None:
    disk, turn, each, workers = SlowSync(), threading.Lock(), 25, 8
    log = Log(disk, tmp_path, [])
    disk.syncs = 0
    done: list[int] = []

    def work() -> None:
        for _ in range(each):
            with turn:
                epoch = log.written + 1
                ticket = add(log, epoch)
            log.sync(ticket)
            assert log.synced >= ticket
            done.append(epoch)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = each * workers
    assert sorted(done) == list(range(1, total + 1))
    assert disk.syncs < total / 2
    assert contents(tmp_path) == numbered(range(1, total + 1))
    log.close()


def test_durability_none_syncs_only_at_the_end(tmp_path: Path) -> None:
    disk = SlowSync()
    log = Log(disk, tmp_path, [], durability="none")
    disk.syncs = 0
    for epoch in range(1, 6):
        log.sync(add(log, epoch))
    assert (disk.syncs, log.synced, log.written) == (0, 0, 5)
    log.rotate()
    assert (disk.syncs, log.synced) == (2, 5), "the old segment and the new one's header"
    log.sync(add(log, 6))
    log.close()
    assert disk.syncs == 3
    assert contents(tmp_path, [1, 2]) == numbered(range(1, 7))


def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    assert condition()


def test_durability_interval_syncs_by_and_by(tmp_path: Path) -> None:
    disk = SlowSync()
    log = Log(disk, tmp_path, [], durability="interval", interval=0.01)
    for epoch in range(1, 101):
        log.sync(add(log, epoch))
    until(lambda: log.synced == 100)
    idle = disk.syncs
    time.sleep(0.05)
    assert disk.syncs == idle < 50, "nothing was written, so nothing is synced"
    log.close()
    assert contents(tmp_path) == numbered(range(1, 101))


def test_a_sync_that_fails_in_the_background_is_told_by_the_next_append(tmp_path: Path) -> None:
    disk = Failing(10_000, errno.EIO)
    log = Log(disk, tmp_path, [], durability="interval", interval=0.005)
    add(log, 1)
    until(lambda: log.synced == 1)
    disk.at = disk.visited + 3  # after the write
    ticket = add(log, 2)
    until(lambda: log.failed)
    for call in (lambda: add(log, 3), lambda: log.sync(ticket), log.rotate):
        with pytest.raises(StorageError, match="the device failed"):
            call()
    disk.heal()
    log.recover_to_synced()
    add(log, 2, 40)
    log.close()
    assert contents(tmp_path) == numbered([1]) + numbered([2], 40)


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    log.close()
    log.close()
    with pytest.raises(StorageError, match="closed"):
        add(log, 1)


# Segments


def test_rotating_and_dropping(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    for epoch in range(1, 10):
        log.sync(add(log, epoch))
        if epoch % 3 == 0:
            assert log.rotate() == epoch // 3 + 1
    assert log.segments == (1, 2, 3, 4)
    assert log.segment_size == FILE_HEADER
    assert log.size == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert [record.epoch for record in log.records(first=2)] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(StorageError, match="cannot be dropped"):
        log.drop([4])
    log.drop([1, 2])
    assert log.segments == (3, 4)
    assert log.size == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert contents(tmp_path, [3, 4]) == numbered([7, 8, 9])
    log.close()


def test_leftovers_of_interrupted_calls_are_removed(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    add(log, 1)
    log.rotate()
    add(log, 2)
    log.rotate()
    log.close()
    again = Log(Disk(), tmp_path, [2])
    assert [path.name for path in tmp_path.iterdir()] == ["00000002.log"]
    assert again.rotate() == 3
    again.close()


def test_a_log_ahead_of_its_manifest_is_refused(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path, [])
    log.rotate()
    add(log, 1)
    log.close()
    with pytest.raises(StorageError, match="the manifest does not name it"):
        Log(Disk(), tmp_path, [1])
    assert contents(tmp_path, [1, 2]) == numbered([1])


# Death


def test_whatever_was_synced_survives_every_death(tmp_path: Path) -> None:
    """The process dies, or the power goes, at each write point; recovery finds all that was acknowledged, in order."""
    acknowledged: list[int] = []
    withdrawn: list[int] = []

    def run(folder: Path, disk: Disk) -> None:
        acknowledged.clear()
        withdrawn.clear()
        log = Log(disk, folder, [1])
        for epoch in (3, 4, 5):
            log.sync(add(log, epoch, 700))
            acknowledged.append(epoch)
        tickets = [add(log, epoch, 700) for epoch in (6, 7, 8)]
        log.withdraw(tickets[-1])
        withdrawn.append(8)
        log.sync(tickets[1])
        acknowledged.extend((6, 7))
        log.close()

    def prepare(name: str) -> Path:
        filled(tmp_path / name, [1, 2], size=700)
        return tmp_path / name

    folder = prepare("count")
    count = points(lambda disk: run(folder, disk))
    rng = random.Random(3)
    for at in range(1, count + 1):
        for tear in (None, 0.4):
            for power in (True, False):
                folder = prepare(f"{at}-{tear}-{power}")
                disk = Unplugged(at, tear=tear)
                assert dies(lambda disk, folder=folder: run(folder, disk), disk)
                if power:
                    disk.lose_power(rng)
                log = Log(Disk(), folder, [1])
                found = contents(folder)
                assert found == numbered([1, 2, 3, 4, 5, 6, 7, 8][: len(found)], 700)
                assert 2 + len(acknowledged) <= len(found) <= 8 - len(withdrawn)
                log.sync(add(log, 9, 700))
                log.close()
                assert contents(folder) == found + numbered([9], 700)


# Reading along


def test_a_reader_follows_a_growing_log(tmp_path: Path) -> None:
    path = filled(tmp_path / "whole", [1, 2, 3])
    data, grown = path.read_bytes(), tmp_path / "00000001.log"
    reader, seen = Reader(tmp_path), []
    for length in range(FILE_HEADER, len(data) + 1):
        grown.write_bytes(data[:length])
        for record in reader.read([1]):
            seen.append((length, record.epoch))
    size = RECORD_HEADER + 30
    assert seen == [(FILE_HEADER + n * size, n) for n in (1, 2, 3)]


def test_a_reader_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    log, reader = Log(Disk(), tmp_path, []), Reader(tmp_path)

    def news() -> list[int]:
        return [record.epoch for record in reader.read(log.segments)]

    add(log, 1)
    assert news() == [1]
    add(log, 2)
    log.rotate()
    add(log, 3)
    assert news() == [2, 3]
    assert (reader.segment, reader.offset) == (2, log.segment_size)
    add(log, 4)
    later = Reader(tmp_path, segment=reader.segment, offset=reader.offset)
    assert [record.epoch for record in later.read(log.segments)] == [4]
    log.rotate()
    log.drop([1, 2])
    with pytest.raises(StorageError, match="moved on"):
        news()
    log.close()


@pytest.mark.parametrize("size", [10, 30, 50])
def test_a_reader_notices_that_a_record_was_taken_back(tmp_path: Path, size: int) -> None:
    log, reader = Log(Disk(), tmp_path, []), Reader(tmp_path)
    add(log, 1)
    ticket = add(log, 2)
    assert [record.epoch for record in reader.read([1])] == [1, 2]
    log.withdraw(ticket)
    log.append(EPOCH, 2, 0, [bytes(size)])
    add(log, 3)
    with pytest.raises(StorageError, match="withdrew"):
        list(reader.read([1]))
    log.close()


def test_a_reader_beside_a_busy_writer(tmp_path: Path) -> None:
    log, reader, total = Log(Disk(), tmp_path, [], durability="none"), Reader(tmp_path), 3000
    writer = threading.Thread(target=lambda: [add(log, epoch, epoch % 700) for epoch in range(1, total + 1)])
    writer.start()
    seen: Contents = []
    while len(seen) < total:
        seen += [(record.kind, record.epoch, record.time, bytes(record.payload)) for record in reader.read([1])]
    writer.join()
    log.close()
    assert seen == [(EPOCH, epoch, 1000 + epoch, payload(epoch, epoch % 700)) for epoch in range(1, total + 1)]
