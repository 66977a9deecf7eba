"""A chain gives back what its last file was given, costs what changed, and tells damage from data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.depth import examples
from tests.faults import Failing, Unplugged, dies, points
from whence.engine.core.image import Image
from whence.model.errors import CorruptionError, StorageError
from whence.state import directory as directories
from whence.state.chain import ImageChain, Writer
from whence.state.directory import BLOCK, FRAME, Directory
from whence.state.disk import Disk
from whence.state.manifest import Link

Snapshot = dict[str, Image]
DISK = Disk()
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def write(
    folder: Path, number: int, parts: Snapshot, before: Directory | None = None, kept: Sequence[str] = ()
) -> Directory:
    with Writer(DISK, folder / f"{number}.image", before, {"format": "any"}) as writer:
        for part in kept:
            writer.keep_unchanged(part)
        for part, image in parts.items():
            writer.add(part, image)
        return writer.finish({"number": number})


def open_chain(folder: Path, files: int) -> ImageChain:
    kinds = ("base", "patch")
    return ImageChain(folder, [Link(kinds[number > 0], f"{number}.image", number, 0) for number in range(files)])


def contents(chain: ImageChain) -> Snapshot:
    with chain:
        return {part: chain.image(part) for part in chain.parts}


def plain(parts: Snapshot) -> object:
    return {p: {n: (a.dtype, a.shape, a.tobytes()) for n, a in image.items()} for p, image in parts.items()}


# Round trips

SHAPES = st.sampled_from([(), (0,), (0, 3), (5, 0), (1,), (3, 2), (2047,), (2048,), (2049,), (6000,), (50_000, 2)])
DTYPES = st.sampled_from([np.int64, np.int32, np.uint8, np.bool_, np.float64])


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape, dtype, seed = draw(SHAPES), draw(DTYPES), draw(st.integers(0, 3))
    values = np.random.default_rng(seed).integers(0, draw(st.sampled_from([1, 2, 100_000])), shape)
    return np.asarray(values).astype(dtype)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    names = st.sampled_from(["rows", "groups/rows", "ä"])
    return draw(
        st.dictionaries(st.sampled_from(["table/link", "op/1", "op/2"]), st.dictionaries(names, arrays(), max_size=3))
    )


def changed(draw: st.DrawFn, image: Image) -> Image:
    """The same arrays, a little different, longer or shorter."""
    out = {}
    for name, array in image.items():
        array = array.copy()
        match draw(st.sampled_from(["same", "touch", "grow", "shrink"])):
            case "touch" if array.size:
                array.reshape(-1)[draw(st.integers(0, array.size - 1))] = 7
            case "grow" if array.ndim:
                array = np.concatenate([array, np.ones((draw(st.integers(1, 5000)), *array.shape[1:]), array.dtype)])
            case "shrink" if array.ndim:
                array = array[: draw(st.integers(0, len(array)))]
        out[name] = array
    return out


@given(st.data())
@settings(SHARED_FOLDER, max_examples=examples(40))
def test_each_file_of_a_chain_gives_back_its_snapshot(tmp_path: Path, data: st.DataObject) -> None:
    current = data.draw(snapshots())
    directory = write(tmp_path, 0, current)
    taken = [current]
    for number in range(1, data.draw(st.integers(1, 4))):
        kept = [part for part in current if data.draw(st.booleans())]
        fresh = {part: changed(data.draw, image) for part, image in current.items() if part not in kept}
        added = {part: image for part, image in data.draw(snapshots()).items() if part not in kept}
        fresh = {part: image for part, image in fresh.items() if data.draw(st.booleans())} | added
        directory = write(tmp_path, number, fresh, directory, kept)
        current = fresh | {part: current[part] for part in kept}
        taken.append(current)
    for number, snapshot in enumerate(taken):
        chain = open_chain(tmp_path, number + 1)
        assert chain.meta == {"format": "any", "number": number}
        assert chain.raw_bytes == sum(array.nbytes for image in snapshot.values() for array in image.values())
        chain.verify()
        assert plain(contents(chain)) == plain(snapshot)


@given(
    hnp.arrays(st.sampled_from([np.int64, np.int32, np.uint8]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
@settings(SHARED_FOLDER, max_examples=examples(50))
def test_any_array_comes_back(tmp_path: Path, array: np.ndarray) -> None:
    write(tmp_path, 0, {"part": {"array": array, "turned": array.T}})
    assert plain(contents(open_chain(tmp_path, 1))) == plain({"part": {"array": array, "turned": array.T}})


def test_a_directory_read_from_disk_serves_as_well_as_the_one_just_written(tmp_path: Path) -> None:
    rows = np.arange(100_000)
    written = write(tmp_path, 0, {"part": {"rows": rows}})
    with open_chain(tmp_path, 1) as chain:
        read = chain.directory
    rows[70_000] = 0
    assert write(tmp_path, 1, {"part": {"rows": rows}}, written).written == (tmp_path / "1.image").stat().st_size
    first = (tmp_path / "1.image").read_bytes()
    write(tmp_path, 1, {"part": {"rows": rows}}, read)
    assert (tmp_path / "1.image").read_bytes() == first


@pytest.mark.parametrize("steps", [(2, 3, 7), (FRAME,), (FRAME - 1, FRAME + 1)])
def test_blocks_overwritten_here_and_there_are_taken_from_the_newest_file(tmp_path: Path, steps: Sequence[int]) -> None:
    rows = np.random.default_rng(1).integers(0, 1000, 9 * FRAME * BLOCK // 8 + 100)
    directory = write(tmp_path, 0, {"part": {"rows": rows}})
    for number, step in enumerate(steps, 1):
        rows[5 * BLOCK // 8 :: step * BLOCK // 8] += number
        directory = write(tmp_path, number, {"part": {"rows": rows}}, directory)
    assert contents(open_chain(tmp_path, 1 + len(steps)))["part"]["rows"].tolist() == rows.tolist()


def test_a_part_is_an_image_or_none(tmp_path: Path) -> None:
    write(tmp_path, 0, {"there": {"rows": np.arange(3)}})
    with open_chain(tmp_path, 1) as chain:
        assert chain.parts == ["there"]
        assert chain.get("there")["rows"].tolist() == [0, 1, 2]  # type: ignore[index]  # it is there
        assert chain.get("elsewhere") is None


# Sizes


def test_a_patch_costs_what_changed(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(-(2**62), 2**62, 10_000_000 // 8)
    base = write(tmp_path, 0, {"part": {"rows": noise}, "other": {"rows": noise}})
    noise[500_000] += 1
    patch = write(tmp_path, 1, {"part": {"rows": noise}}, base, kept=["other"])
    assert base.written > 20_000_000
    assert patch.written < BLOCK + 1000
    with open_chain(tmp_path, 2) as chain:
        assert chain.file_bytes == base.written + patch.written
        assert chain.raw_bytes == 20_000_000


def test_growth_costs_the_end(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(-(2**62), 2**62, 10_000_000 // 8)
    base = write(tmp_path, 0, {"part": {"rows": rows[:-100]}})
    assert write(tmp_path, 1, {"part": {"rows": rows}}, base).written < 2 * BLOCK + 1000


def test_small_codes_take_few_bytes(tmp_path: Path) -> None:
    codes = np.random.default_rng(1).integers(0, 100_000, 100_000)
    assert write(tmp_path, 0, {"part": {"codes": codes}}).written < 3 * len(codes)


# What a writer refuses, and what it leaves behind


def test_a_part_is_written_once(tmp_path: Path) -> None:
    with Writer(DISK, tmp_path / "0.image", None) as writer:
        writer.add("part", {})
        with pytest.raises(ValueError, match="part is in this file already"):
            writer.add("part", {})


def test_only_what_was_there_can_be_kept(tmp_path: Path) -> None:
    base = write(tmp_path, 0, {"part": {}})
    for before in (None, base):
        with (
            Writer(DISK, tmp_path / "1.image", before) as writer,
            pytest.raises(ValueError, match="other cannot be as before: it was not there"),
        ):
            writer.keep_unchanged("other")


def test_objects_are_no_image(tmp_path: Path) -> None:
    with Writer(DISK, tmp_path / "0.image", None) as writer, pytest.raises(ValueError, match="rows is of type object"):
        writer.add("part", {"rows": np.array([None])})


def test_a_writer_that_does_not_finish_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with Writer(DISK, tmp_path / "0.image", None) as writer:
            writer.add("part", {"rows": np.arange(1_000_000)})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with (
        Writer(DISK, tmp_path / "0.image", None) as writer,
        pytest.raises(TypeError, match="cannot be kept in the meta"),
    ):
        writer.finish({"set": {1}})
    assert list(tmp_path.iterdir()) == []


def small_patch(disk: Disk, folder: Path, before: Directory) -> Directory:
    with Writer(disk, folder / "1.image", before) as writer:
        writer.keep_unchanged("kept")
        writer.add("part", {"rows": np.random.default_rng(1).integers(-(2**62), 2**62, 300_000)})
        return writer.finish({"epoch": 1})


@pytest.mark.parametrize("tear", [None, 0.5])
def test_a_file_has_its_name_only_when_it_is_whole_and_stable(tmp_path: Path, tear: float | None) -> None:
    before = write(tmp_path, 0, {"kept": {"rows": np.arange(9)}, "part": {"rows": np.arange(9)}})
    count = points(lambda disk: small_patch(disk, tmp_path, before))
    assert count > 10
    for at in range(1, count + 1):
        (tmp_path / "1.image").unlink(missing_ok=True)
        disk = Unplugged(at, tear=tear)
        assert dies(lambda disk: small_patch(disk, tmp_path, before), disk)
        disk.lose_power(random.Random(at))
        if (tmp_path / "1.image").exists():
            open_chain(tmp_path, 2).verify()
    assert (tmp_path / "1.image").exists()


def test_a_full_disk_is_told_and_leaves_the_chain_as_it_was(tmp_path: Path) -> None:
    before = write(tmp_path, 0, {"kept": {"rows": np.arange(9)}, "part": {"rows": np.arange(9)}})
    for at in range(1, points(lambda disk: small_patch(disk, tmp_path, before)) + 1):
        disk = Failing(at)
        with pytest.raises(StorageError, match="No space left on device"):
            small_patch(disk, tmp_path, before)
        disk.release()
        open_chain(tmp_path, 1).verify()


# Damage


def small_chain(folder: Path) -> Snapshot:
    rng = np.random.default_rng(1)
    before = {
        "part": {"codes": rng.integers(0, 300, (40, 3)), "noise": rng.integers(0, 256, 50).astype(np.uint8)},
        "kept": {"ids": np.arange(30, dtype=np.int32)},
    }
    directory = write(folder, 0, before)
    after = {"part": {"codes": before["part"]["codes"] + 1, "noise": before["part"]["noise"]}}
    write(folder, 1, after, directory, kept=["kept"])
    return after | {"kept": before["kept"]}


@pytest.mark.parametrize("file", [0, 1])
def test_a_flipped_byte_is_told_or_does_no_harm(tmp_path: Path, file: int) -> None:
    expected = plain(small_chain(tmp_path))
    path = tmp_path / f"{file}.image"
    data = path.read_bytes()
    told = []
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        try:
            chain = open_chain(tmp_path, 2)
            chain.verify()
            assert plain(contents(chain)) == expected
        except StorageError as error:
            told.append(str(error))
    assert all(str(path) in message for message in told)
    assert len(told) > 0.9 * len(data)


@pytest.mark.parametrize("file", [0, 1])
def test_verify_finds_every_flipped_byte_of_a_frame_that_is_verbatim(tmp_path: Path, file: int) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 2 * BLOCK + 5).astype(np.uint8)
    directory = write(tmp_path, 0, {"part": {"noise": noise}})
    write(tmp_path, 1, {"part": {"noise": noise[::-1]}}, directory)
    path = tmp_path / f"{file}.image"
    data = bytearray(path.read_bytes())
    data[BLOCK] ^= 1
    path.write_bytes(data)
    with open_chain(tmp_path, 2) as chain, pytest.raises(CorruptionError, match="its digest differs") as caught:
        chain.verify()
    assert (caught.value.path, caught.value.offset) == (path, 8)


def test_a_cut_file_is_told(tmp_path: Path) -> None:
    small_chain(tmp_path)
    data = (tmp_path / "1.image").read_bytes()
    for end in range(len(data)):
        (tmp_path / "1.image").write_bytes(data[:end])
        with pytest.raises(CorruptionError, match=r"1\.image"):
            open_chain(tmp_path, 2)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    small_chain(tmp_path)
    (tmp_path / "0.image").unlink()
    with pytest.raises(StorageError, match=r"0\.image.*No such file") as caught:
        open_chain(tmp_path, 2)
    assert not isinstance(caught.value, CorruptionError)


def test_files_of_another_chain_are_refused(tmp_path: Path) -> None:
    small_chain(tmp_path)
    write(tmp_path, 0, {"part": {"codes": np.zeros((40, 3), np.int64)}, "kept": {}})
    with pytest.raises(CorruptionError, match=r"1\.image.*does not continue the one before it"):
        open_chain(tmp_path, 2)
    with pytest.raises(CorruptionError, match="does not continue"):
        ImageChain(tmp_path, [Link("base", "1.image", 1, 0)])


def test_a_newer_format_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "VERSION", 2)
    small_chain(tmp_path)
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"0\.image is written in format 2; this Whence reads 1"):
        open_chain(tmp_path, 2)


def forge(path: Path, old: str, new: str) -> None:
    """Changes the text of a directory, and its checksums with it."""
    data = path.read_bytes()
    end = len(data) - directories._ENDING
    start = directories._FOOTER.unpack_from(data, end)[2]
    table = data[start + 12 + int.from_bytes(data[start : start + 4], "little") : end]
    text = data[start + 12 : end - len(table)].replace(old.encode(), new.encode())
    assert text != data[start + 12 : end - len(table)]
    directory = len(text).to_bytes(4, "little") + data[start + 4 : start + 12] + text + table
    path.write_bytes(data[:start] + directory + directories.write_footer(directory, start))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[40,3]", "[40,300000000]"),
        ("[40,3]", "[40,1000000000000]"),
        ("[40,3]", "[40,2]"),
        ("[40,3]", "[-40,3]"),
        ("[40,3]", "[99999999999999999999,0]"),
        ("[40,3]", '"40"'),
        ('"codes","<i8"', '"codes","<i4"'),
        ('"codes","<i8"', '"codes","|O"'),
        ('"codes"', '"noise"'),
        ("[50]", "[51]"),
        ("[50]", "[49]"),
        ("[50]", "[1000000]"),
        ('"kept":null', '"gone":null'),
        ('"parts":{', '"parts":{"more":[["a","<i8",[1]]],'),
        ('"meta":{', '"meta":3,"m":{'),
        ('"parts":{', '"parts":['),
    ],
)
def test_a_directory_that_contradicts_itself_or_its_chain_is_refused(tmp_path: Path, old: str, new: str) -> None:
    small_chain(tmp_path)
    forge(tmp_path / "1.image", old, new)
    with pytest.raises(CorruptionError, match=r"1\.image"):
        open_chain(tmp_path, 2)


@pytest.mark.parametrize("field", directories._FRAME.names or ())
def test_frames_that_do_not_fit_are_refused(tmp_path: Path, field: str) -> None:
    expected = plain(small_chain(tmp_path))
    path = tmp_path / "1.image"
    data = path.read_bytes()
    end = len(data) - directories._ENDING
    start = directories._FOOTER.unpack_from(data, end)[2]
    text, frames, _ = directories._SIZES.unpack_from(data, start)
    table = start + directories._SIZES.size + text
    dtype = directories._FRAME
    for value in (0, 1, 2, 3, 8, 100, 255, 16384, 2**31, 2**32 - 1):
        forged = bytearray(data)
        frame = np.frombuffer(forged, dtype, frames, table)
        frame[field] = np.array(value, np.int64).astype(dtype[field])
        path.write_bytes(forged[:end] + directories.write_footer(bytes(forged[start:end]), start))
        try:
            assert plain(contents(open_chain(tmp_path, 2))) == expected
        except CorruptionError:
            continue


def test_a_block_that_is_nowhere_is_told(tmp_path: Path) -> None:
    base = write(tmp_path, 0, {"part": {"noise": np.zeros(BLOCK, np.uint8)}})
    write(tmp_path, 1, {"part": {"noise": np.ones(BLOCK, np.uint8)}}, base)
    forge(tmp_path / "1.image", f"[{BLOCK}]", f"[{BLOCK + 1}]")
    with pytest.raises(CorruptionError, match=r"1\.image.*a block of an array is nowhere"):
        open_chain(tmp_path, 2)


def test_frames_out_of_order_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0, {"part": {"a": np.zeros(9, np.int64), "b": np.ones(9, np.int64)}})
    path = tmp_path / "0.image"
    data = bytearray(path.read_bytes())
    end = len(data) - directories._ENDING
    start = directories._FOOTER.unpack_from(data, end)[2]
    text, frames, _ = directories._SIZES.unpack_from(data, start)
    table = np.frombuffer(data, directories._FRAME, frames, start + directories._SIZES.size + text)
    table["array"] = [1, 0]
    path.write_bytes(data[:end] + directories.write_footer(bytes(data[start:end]), start))
    with pytest.raises(CorruptionError, match="frames out of order"):
        open_chain(tmp_path, 1)


def test_progress_runs_from_nothing_to_all(tmp_path: Path) -> None:
    base = write(tmp_path, 0, {"part": {"noise": np.random.default_rng(1).integers(-(2**62), 2**62, 1_000_000)}})
    told: list[tuple[int, int]] = []
    with open_chain(tmp_path, 1) as chain:
        chain.verify(lambda done, total: told.append((done, total)))
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == (base.written, base.written)
