"""Hosts of a job on one machine: a network namespace for each, around one with a switch. Their links can be cut.

A cut link stays cut. The switch's end goes down, so that the host's packets are lost, as after a power loss: no
process on either side receives an end of a connection. Only what was made here is removed here.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from namespaces import Runner, remove, run_command, undisturbed
from places import inside

INTERFACE, SWITCH = "eth0", "switch"
MASK = "/24"
NAMED = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class Hosts:
    """Host h in the namespace `names[h]`, at `addresses[h]`; the last one has the switch, and is never cut off."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    table: Path
    """The file that is `/etc/hosts` there."""

    def inside(self, host: int, argv: list[str]) -> list[str]:
        """The command on a host with a name of its own, by which torchft's workers meet. `ip netns exec` has mounts
        of its own, so that no other process sees this `/etc/hosts`."""
        named = ["unshare", "--uts", "sh", "-c", NAMED, str(self.table), host_name(host), *argv]
        return inside(self.names[host], named)

    def cutting(self, host: int) -> list[str]:
        """The command that cuts a host's link."""
        return ["ip", "-n", self.names[-1], "link", "set", link(host), "down"]

    def cut(self, host: int) -> None:
        run_command(self.cutting(host))


def place(count: int, folder: Path) -> Hosts:
    names = [f"kolo-peers-{os.getpid()}-host{host}" for host in range(count)]
    addresses = [f"10.78.0.{1 + host}" for host in range(count)]
    return Hosts((*names, f"kolo-peers-{os.getpid()}-switch"), (*addresses, "10.78.0.254"), folder / "hosts")


def host_name(host: int) -> str:
    return f"host{host}"


def table(at: Hosts) -> str:
    """What `/etc/hosts` says on each host."""
    named = [f"{address} {host_name(host)}" for host, address in enumerate(at.addresses)]
    return "\n".join(["127.0.0.1 localhost", *named, ""])


def link(host: int) -> str:
    """Name of the switch's end of a host's link."""
    return f"link{host}"


def creating(at: Hosts) -> list[list[str]]:
    """The commands that make the hosts, in order."""
    hub = at.names[-1]
    commands = [["ip", "netns", "add", name] for name in at.names]
    commands.append(["ip", "-n", hub, "link", "add", SWITCH, "type", "bridge"])
    for host, name in enumerate(at.names[:-1]):
        pair = ["type", "veth", "peer", "name", INTERFACE, "netns", name]
        commands.append(["ip", "-n", hub, "link", "add", link(host), *pair])
        commands.append(["ip", "-n", hub, "link", "set", link(host), "master", SWITCH, "up"])
    ends = [*(INTERFACE for _ in at.names[:-1]), SWITCH]
    for name, address, interface in zip(at.names, at.addresses, ends, strict=True):
        commands.append(["ip", "-n", name, "addr", "add", address + MASK, "dev", interface])
        commands += [["ip", "-n", name, "link", "set", each, "up"] for each in ("lo", interface)]
    return commands


@contextmanager
def joined(count: int, runner: Runner = run_command) -> Iterator[Hosts]:
    """The hosts, removed at the end however the body ends."""
    with tempfile.TemporaryDirectory(prefix="kolo-hosts-") as folder:
        at = place(count, Path(folder))
        at.table.write_text(table(at))
        try:
            for command in creating(at):
                runner(command)
            yield at
        finally:
            with undisturbed():
                remove(at.names, runner)
