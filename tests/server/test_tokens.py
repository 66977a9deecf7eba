"""Tokens of a server: who a caller is."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import pickle
import stat
import time
from pathlib import Path

import pytest

from whence import AuthenticationError, DataError, StorageError
from whence.server.access.tokens import Caller, Tokens, make_token, read_tokens, remove_token

REFUSED = "the token is missing, wrong or expired"


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 2  # so that every call looks at the file again
        return self.now


def test_token_is_accepted_until_it_expires(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "tokens"
    always, soon = make_token(file, "ann"), make_token(file, "bob", expires=clock.now + 100)
    tokens = Tokens(file, clock)
    assert tokens.check(always).who == "ann"
    assert (tokens.check(soon).who, tokens.check(soon).expires) == ("bob", 1_000_100.0)
    clock.now += 100
    with pytest.raises(AuthenticationError, match=f"^{REFUSED}$"):
        tokens.check(soon)
    assert tokens.check(always).who == "ann"


def test_every_refusal_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    good = make_token(file, "ann")
    expired = make_token(file, "bob", expires=1)
    tokens = Tokens(file)
    digest = file.read_text().split("sha256:")[1][:64]
    wrong = ["", "x", None, 7, b"whence_", good[:-1], good + "x", good.upper(), expired, digest, "é\ud800", "a" * 10**6]
    for token in wrong:
        with pytest.raises(AuthenticationError, match=f"^{REFUSED}$"):
            tokens.check(token)


def test_hash_of_nothing_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"ann sha256:{hashlib.sha256(b'').hexdigest()}\n")
    for token in ("", None, "a" * 10**6):
        with pytest.raises(AuthenticationError):
            Tokens(file).check(token)


def test_token_is_random_and_nowhere_but_in_the_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file, clock = tmp_path / "tokens", Clock()
    made = [make_token(file, "ann") for _ in range(3)]
    assert len(set(made)) == 3
    tokens = Tokens(file, clock)
    caller = tokens.check(made[0])
    printed = Tokens(None)
    secrets = [*made, printed.printed()]
    shown = repr(tokens) + repr(caller) + str(caller) + repr(printed) + file.read_text() + caplog.text
    for token in secrets:
        assert token.startswith("whence_")
        assert len(token) == len("whence_") + 43  # 32 bytes in base64
        assert token not in shown
        assert token.removeprefix("whence_") not in shown
    assert caller.digest.hex() not in repr(caller)


def test_without_a_file_one_printed_token_is_the_owners() -> None:
    tokens = Tokens(None)
    with pytest.raises(AuthenticationError):
        tokens.check("")
    token = tokens.printed()
    assert tokens.printed() == token
    assert tokens.check(token) == tokens.check(token)
    assert (tokens.check(token).who, tokens.owner) == ("owner", "owner")
    with pytest.raises(AuthenticationError):
        Tokens(None).check(token)


def test_owner_of_a_file_is_nobody(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    make_token(file, "owner")
    tokens = Tokens(file)
    assert tokens.owner is None
    with pytest.raises(DataError):
        tokens.printed()


def test_tokens_are_added_and_revoked_in_place(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens", Clock()
    first = make_token(file, "ann")
    tokens = Tokens(file, clock)
    caller, version = tokens.check(first), tokens.version
    second = make_token(file, "ann")
    assert tokens.check(second).who == "ann"
    assert tokens.version > version
    assert tokens.is_valid(caller)
    assert remove_token(file, "ann", first) == 1
    with pytest.raises(AuthenticationError):
        tokens.check(first)
    assert not tokens.is_valid(caller)
    assert tokens.check(second).who == "ann"
    assert remove_token(file, "ann") == 1
    assert remove_token(file, "ann") == 0
    with pytest.raises(AuthenticationError):
        tokens.check(second)


def test_file_is_looked_at_once_a_second(tmp_path: Path) -> None:
    now, file = 5.0, tmp_path / "tokens"
    make_token(file, "ann")
    tokens = Tokens(file, lambda: now)
    token = make_token(file, "bob")
    with pytest.raises(AuthenticationError):
        tokens.check(token)
    now = 5.9
    with pytest.raises(AuthenticationError):
        tokens.check(token)
    now = 6.0
    assert tokens.check(token).who == "bob"
    remove_token(file, "bob")
    now = 1.0  # the clock was set back
    with pytest.raises(AuthenticationError):
        tokens.check(token)


def test_connection_renews_with_a_token_of_the_same_name_only(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    old, new, other = make_token(file, "ann", expires=4e9), make_token(file, "ann"), make_token(file, "bob")
    tokens = Tokens(file)
    caller = tokens.check(old)
    assert tokens.renew(caller, new).expires is None
    for wrong in (other, "x", None):
        with pytest.raises(AuthenticationError, match=f"^{REFUSED}$"):
            tokens.renew(caller, wrong)


BROKEN = {
    "a torn line": b"ann sha256:" + b"a" * 64 + b"\nbob sha256:abc",
    "a line without an end": b"ann sha256:" + b"a" * 64,
    "a token itself": b"ann whence_" + b"a" * 43 + b"\n",
    "no name": b"sha256:" + b"a" * 64 + b"\n",
    "everyone": b"* sha256:" + b"a" * 64 + b"\n",
    "a time that is none": b"ann sha256:" + b"a" * 64 + b" expires soon\n",
    "more words": b"ann sha256:" + b"a" * 64 + b" expires 2030-01-01 12:00\n",
    "not text": b"\xff\xfe\n",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_broken_file_leaves_what_was_known(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    file, clock = tmp_path / "tokens", Clock()
    token = make_token(file, "ann")
    whole = file.read_bytes()
    tokens = Tokens(file, clock)
    version = tokens.version
    file.write_bytes(content)
    assert tokens.check(token).who == "ann"
    assert tokens.version == version
    assert f"{file}, line " in caplog.text
    assert "whence_" not in caplog.text
    with pytest.raises(DataError, match="line"):
        Tokens(file, clock)
    file.write_bytes(whole.replace(b"ann", b"eve"))
    assert tokens.check(token).who == "eve"


def test_missing_file_leaves_what_was_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, clock = tmp_path / "tokens", Clock()
    token = make_token(file, "ann")
    tokens = Tokens(file, clock)
    file.unlink()
    assert tokens.check(token).who == "ann"
    assert str(file) in caplog.text
    with pytest.raises(StorageError):
        Tokens(file)
    with pytest.raises(StorageError):
        remove_token(file, "ann")
    assert not file.exists()


def test_file_has_comments_and_keeps_them(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    token = make_token(file, "ann")
    file.write_text(f"# ours\n\n{file.read_text().strip()}   # of Ann\n  # more\nc#o sha256:{'b' * 64}\n")
    make_token(file, "bob")
    assert [caller.who for caller in read_tokens(file)] == ["ann", "c#o", "bob"]
    remove_token(file, "bob")
    assert Tokens(file).check(token).who == "ann"
    assert file.read_text().startswith("# ours\n\nann sha256:")
    assert "# more" in file.read_text()


def test_modes_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, clock = tmp_path / "tokens", Clock()
    before = os.umask(0)
    try:
        token = make_token(file, "ann")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    tokens = Tokens(file, clock)
    assert tokens.check(token).who == "ann"
    assert "others may read" in caplog.text
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(StorageError, match="others may write"):
            Tokens(file)
        with pytest.raises(StorageError, match="others may write"):
            make_token(file, "eve")
        assert tokens.check(token).who == "ann"  # as it was known before
    file.chmod(0o600)
    make_token(file, "bob")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_link_to_the_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, file = tmp_path / "tokens", tmp_path / "real" / "tokens"
    link.symlink_to(file)
    make_token(link, "ann")
    assert link.is_symlink()
    assert [caller.who for caller in read_tokens(file)] == ["ann"]
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["tokens"]


@pytest.mark.parametrize("who", ["", "*", "a b", "a\nb", "#a", "x" * 201, "a\tb", None])
def test_names_that_are_none(tmp_path: Path, who: str) -> None:
    with pytest.raises(DataError):
        make_token(tmp_path / "tokens", who)
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("expires", [1e20, float("nan"), "tomorrow"])
def test_times_that_are_none(tmp_path: Path, expires: float) -> None:
    with pytest.raises(DataError):
        make_token(tmp_path / "tokens", "ann", expires)


def _make_some(file: Path, who: str) -> None:
    for _ in range(20):
        make_token(file, who)


def test_processes_that_add_tokens_lose_none(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_make_some, args=(file, f"user{i}")) for i in range(3)]
    for other in others:
        other.start()
    while any(other.is_alive() for other in others):
        if file.exists():
            read_tokens(file)  # never half a line
        time.sleep(0.001)
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert len(read_tokens(file)) == 60
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]


def test_caller_is_plain_data() -> None:
    caller = Caller("ann", 5.0, b"digest")
    assert pickle.loads(pickle.dumps(caller)) == caller
    assert caller.is_expired(5.0)
    assert not caller.is_expired(4.9)
