"""Machines in a row, each a network namespace of this one, with cables that can be unplugged.

    root ──control── 0        every namespace has a link to the root, by which a test speaks to its servers
    0 ──cable 0── 1 ──cable 1── 2

`ip link set … down` on a cable is a partition: packets vanish, and no connection is told of it, unlike a proxy that
closes sockets. Namespaces need Linux, root and iproute2; `why_not` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import TracebackType
from typing import Self

_CONTROL, _CABLE = (f"10.{first + os.getpid() % 64}" for first in (100, 180))  # runs beside each other have others


def why_not() -> str | None:
    """Return why namespaces cannot be made here; None if they can."""
    if sys.platform != "linux" or os.geteuid():
        return "network namespaces need Linux and root"
    if shutil.which("ip") is None:
        return "iproute2 is not installed: there is no ip"
    name = f"whence{os.getpid()}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"ip netns add: {error.stderr.strip()}"
    try:
        _ip("netns", "exec", name, "true")
        _ip("link", "add", f"{name[:12]}a", "netns", name, "type", "veth", "peer", "name", f"{name[:12]}b")
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd[1:3])}: {error.stderr.strip()}"
    finally:
        _ip("netns", "del", name)
    return None


class Namespaces:
    """Some namespaces in a row, until the end of a `with` statement."""

    def __init__(self, count: int) -> None:
        self._names = [f"whence{os.getpid()}n{place}" for place in range(count)]
        self._count = count

    def address(self, place: int) -> str:
        """Return the address by which the root reaches a namespace."""
        return f"{_CONTROL}.{place}.2"

    def upstream_address(self, place: int) -> str:
        """Return the address by which the next namespace reaches one."""
        return f"{_CABLE}.{place}.1"

    def prefix(self, place: int) -> list[str]:
        """Return what begins a command that runs in a namespace."""
        return ["ip", "netns", "exec", self._names[place]]

    def cut(self, cable: int) -> None:
        """Unplug a cable."""
        _ip("-n", self._names[cable], "link", "set", f"down{cable}", "down")

    def heal(self, cable: int) -> None:
        """Plug a cable in again."""
        _ip("-n", self._names[cable], "link", "set", f"down{cable}", "up")

    def __enter__(self) -> Self:
        try:
            for place, name in enumerate(self._names):
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
                here = f"w{os.getpid()}c{place}"
                _ip("link", "add", here, "type", "veth", "peer", "name", "control", "netns", name)
                _ip("addr", "add", f"{_CONTROL}.{place}.1/30", "dev", here)
                _ip("link", "set", here, "up")
                self._plug(name, "control", f"{_CONTROL}.{place}.2/30")
            for cable in range(self._count - 1):
                upper, lower = self._names[cable : cable + 2]
                ends = f"down{cable}", f"up{cable}"
                _ip("link", "add", ends[0], "netns", upper, "type", "veth", "peer", "name", ends[1], "netns", lower)
                self._plug(upper, ends[0], f"{_CABLE}.{cable}.1/30")
                self._plug(lower, ends[1], f"{_CABLE}.{cable}.2/30")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @staticmethod
    def _plug(name: str, device: str, address: str) -> None:
        _ip("-n", name, "addr", "add", address, "dev", device)
        _ip("-n", name, "link", "set", device, "up")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for place, name in enumerate(self._names):
            subprocess.run(["ip", "link", "del", f"w{os.getpid()}c{place}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60)
