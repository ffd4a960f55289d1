"""A network of its own for each server, so that any two can be cut apart: Linux network namespaces on a bridge.

A cut is silent, as that of a broken switch: packets leave for a hardware address that nobody has. Connections stay up
until somebody's patience ends.
"""

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

_NOWHERE = "02:00:00:00:00:01"
_NETWORKS = count()


@dataclass(frozen=True)
class Host:
    """One namespace with one address. The tests themselves are a host without a namespace."""

    name: str
    address: str
    device: str
    namespace: str | None = None

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs on this host."""
        return () if self.namespace is None else ("ip", "netns", "exec", self.namespace)


class Network:
    """Hosts that reach one another, and the tests, until they are cut apart."""

    def __init__(self) -> None:
        _remove_leftovers()
        number = next(_NETWORKS)
        self._tag = f"il{os.getpid()}n{number}"
        # 198.18.0.0/15 is set aside for tests of network devices.
        self._subnet = f"198.18.{(os.getpid() + number) % 256}"
        self._bridge = f"{self._tag}b"
        self._hosts: list[Host] = []
        self._cuts: set[tuple[Host, Host]] = set()
        self.tests = Host("tests", f"{self._subnet}.254", self._bridge)
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self.tests.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    @staticmethod
    def possible() -> bool:
        """Whether this machine lets us make networks."""
        probe = f"il{os.getpid()}probe"
        try:
            _ip("netns", "add", probe)
            _ip("netns", "delete", probe)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def join(self, name: str) -> Host:
        """A new host."""
        number = len(self._hosts) + 1
        namespace = f"{self._tag}-{name}"
        host = Host(name, f"{self._subnet}.{number}", "eth0", namespace)
        port = f"{self._tag}p{number}"
        _ip("netns", "add", namespace)
        self._hosts.append(host)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", port, "master", self._bridge, "up")
        _ip("-n", namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        return host

    def cut(self, one: Host, other: Host) -> None:
        """Nothing passes between two hosts, either way."""
        self.mute(one, other)
        self.mute(other, one)

    def mute(self, one: Host, other: Host) -> None:
        """Nothing that `one` sends reaches `other`."""
        if (one, other) not in self._cuts:
            self._cuts.add((one, other))
            _ip(*_at(one), "neigh", "replace", other.address, "lladdr", _NOWHERE, "dev", one.device, "nud", "permanent")

    def heal(self) -> None:
        """Takes back every cut."""
        while self._cuts:
            one, other = self._cuts.pop()
            _ip(*_at(one), "neigh", "delete", other.address, "dev", one.device)

    def close(self) -> None:
        for host in self._hosts:
            assert host.namespace is not None
            _ip("netns", "delete", host.namespace)
        _ip("link", "delete", self._bridge)


def _at(host: Host) -> tuple[str, ...]:
    return () if host.namespace is None else ("-n", host.namespace)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def _remove_leftovers() -> None:
    """Networks of tests that were killed: their process is gone."""
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.startswith("il")]
    links = [line.split(": ")[1].split("@")[0] for line in _ip("-o", "link", "show", "type", "bridge").splitlines()]
    for kind, name in [*(("netns", name) for name in names), *(("link", name) for name in links)]:
        pid = name.removeprefix("il").partition("n")[0]
        if name.startswith("il") and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with suppress(subprocess.CalledProcessError):
                _ip(kind, "delete", name)
