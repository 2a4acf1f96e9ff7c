"""A slow network on one machine: two network namespaces, joined by a veth pair whose ends are shaped.

The shape is a token bucket (`tc … tbf`): it lets `burst` bytes pass at memory speed and then `rate` bits a
second. A message has to be much larger than the burst for its time to tell the rate, and no packet may be
larger than the burst, or the bucket would have to cut it up: so the kernel's large packets (GSO) are limited
to less. Names carry this process's number, and only what was made here is removed here.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from places import Namespaces
from processes import BenchError, Command, run
from settings import GBIT

INTERFACE = "peers0"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
"""Known in the two namespaces only."""
PREFIX = "/30"
SECONDS = 30
"""For each of the commands here, which take milliseconds."""

Runner = Callable[[list[str]], str]


@dataclass(frozen=True)
class Shape:
    """One end of the link: bits a second, and what may pass at once, in bytes."""

    rate: int
    burst: int
    largest_packet: int


SHAPES = {
    GBIT // 10: Shape(GBIT // 10, 12 << 10, 8 << 10),
    GBIT: Shape(GBIT, 32 << 10, 16 << 10),
    10 * GBIT: Shape(10 * GBIT, 128 << 10, 64 << 10),
}
"""Bursts of 1, 0.26 and 0.1 ms. At 10 Gbit/s smaller packets would measure this machine's cores instead."""


def obstacle() -> str | None:
    """Why no link can be made here, None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not found: apt-get install iproute2" if missing else None


def names() -> tuple[str, str]:
    return f"kolo-peers-{os.getpid()}-a", f"kolo-peers-{os.getpid()}-b"


def place() -> Namespaces:
    return Namespaces(names(), ADDRESSES, INTERFACE)


def creating(at: Namespaces, shape: Shape) -> list[list[str]]:
    """The commands that make the link, in order."""
    first, second = at.names
    pair = ["type", "veth", "peer", "name", at.interface, "netns", second]
    commands = [
        ["ip", "netns", "add", first],
        ["ip", "netns", "add", second],
        ["ip", "link", "add", at.interface, "netns", first, *pair],
    ]
    for name, address in zip(at.names, at.addresses, strict=True):
        commands += _end(name, at.interface, address, shape)
    return commands


def _end(name: str, interface: str, address: str, shape: Shape) -> list[list[str]]:
    """One end, shaped before it is up: nothing passes at another rate."""
    link = ["ip", "-n", name, "link", "set", interface]
    bucket = ["rate", f"{shape.rate}bit", "burst", str(shape.burst), "latency", "50ms"]
    return [
        ["ip", "-n", name, "addr", "add", address + PREFIX, "dev", interface],
        ["ip", "-n", name, "link", "set", "lo", "up"],
        [*link, "gso_max_size", str(shape.largest_packet)],
        ["tc", "-n", name, "qdisc", "add", "dev", interface, "root", "tbf", *bucket],
        [*link, "up"],
    ]


@contextmanager
def shaped_link(rate: int, runner: Runner | None = None) -> Iterator[Namespaces]:
    """The link, removed at the end however the body ends; `runner` runs a command and returns its output."""
    runner = runner or run_command
    at = place()
    try:
        for command in creating(at, SHAPES[rate]):
            runner(command)
        yield at
    finally:
        with undisturbed():
            remove(at.names, runner)


def remove(names: tuple[str, ...], runner: Runner) -> None:
    """Ends what still runs inside, ours as the namespaces are, and removes them, the pair with them."""
    try:
        there = {line.split()[0] for line in runner(["ip", "netns", "list"]).splitlines() if line.strip()}
        for name in names:
            if name in there:
                for pid in runner(["ip", "netns", "pids", name]).split():
                    _end_process(int(pid))
                runner(["ip", "netns", "del", name])
    except BenchError as error:
        left = " and ".join(names)
        print(f"warning: remove by `ip netns del` what is left of {left}: {error}", file=sys.stderr)


def _end_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@contextmanager
def undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave half of the link behind; this takes well under a second."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def run_command(argv: list[str]) -> str:
    return run(Command(" ".join(argv[:4]), argv), SECONDS)
