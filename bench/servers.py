#!/usr/bin/env python3
"""What summation servers save: an all-reduce by `kolo bench all-reduce` of workers and servers that each have
a link of their own, with different numbers of servers, beside the formula of BytePS (Jiang et al. 2020).

    python3 bench/servers.py [--workers 4] [--servers 0,1,2,4] [--mbit 100] [--bytes 46800000]

Every rank is in a network namespace of its own, at a switch (a bridge, in a namespace as well); both ends of
its cable let so many bits a second pass (`tc … tbf`). Needs root, and iproute2. `--kolo PROGRAM` is the
program to measure, by default a release build of this repository.
"""

import argparse
import json
import os
import pathlib
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import link_rate  # noqa: E402
from namespaces import obstacle  # noqa: E402
from processes import BenchError, Command, run, run_together  # noqa: E402

PORT = 29500
BURST, LARGEST_PACKET = 32 << 10, 16 << 10
"""Bytes that pass at once, and of the kernel's packets, which must fit (see peers/namespaces.py)."""
FAST, FAST_BURST, FAST_PACKET = 5000, 128 << 10, 64 << 10
"""From so many Mbit/s on, the same."""
QUEUE = "200ms"
"""What may wait at a port of the switch, where several ranks send to one."""
PAYLOAD = 1448 / 1514
"""Of a full Ethernet frame, what TCP carries of the message."""
SECONDS = 1200
"""For one measurement; 30 for a command that makes a network."""
STARTED, WATCHED = 1.0, 2.0
"""Seconds in which a connection has found its rate, and in which its cost is measured."""


def ip(*words: str) -> str:
    return run(Command(f"ip {' '.join(words[:4])}", ["ip", *words]), 30)


def namespace(rank: int) -> str:
    return f"kolo-servers-{os.getpid()}-{rank}"


def address(rank: int) -> str:
    return f"10.78.0.{rank + 1}"


def shape(at: str, interface: str, mbit: float) -> None:
    burst, packet = (FAST_BURST, FAST_PACKET) if mbit >= FAST else (BURST, LARGEST_PACKET)
    ip("-n", at, "link", "set", interface, "gso_max_size", str(packet))
    bucket = ["rate", f"{mbit:g}mbit", "burst", str(burst), "latency", QUEUE]
    run(Command("tc", ["tc", "-n", at, "qdisc", "add", "dev", interface, "root", "tbf", *bucket]), 30)
    ip("-n", at, "link", "set", interface, "up")


@contextmanager
def network(mbits: list[float]) -> Iterator[None]:
    """A switch and a rank at it for each link of so many Mbit/s; removed at the end, whatever happens."""
    ranks = len(mbits)
    switch = f"kolo-servers-{os.getpid()}-switch"
    made = []
    try:
        for name in [switch, *map(namespace, range(ranks))]:
            ip("netns", "add", name)
            made.append(name)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for rank in range(ranks):
            at, port = namespace(rank), f"port{rank}"
            ip("link", "add", "eth0", "netns", at, "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", at, "addr", "add", f"{address(rank)}/24", "dev", "eth0")
            ip("-n", at, "link", "set", "lo", "up")
            ip("-n", switch, "link", "set", port, "master", "bridge")
            shape(at, "eth0", mbits[rank])
            shape(switch, port, mbits[rank])
        yield
    finally:
        for name in made:
            ip("netns", "del", name)


def ranks(words: list[str], workers: int, servers: int, seconds: float) -> list[str]:
    """What a command prints on each rank of the network, in which it is a worker or, behind these, a server."""
    world, token = workers + servers, secrets.token_hex(16)

    def command(rank: int) -> Command:
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": address(0),
            "MASTER_PORT": str(PORT),
            "KOLO_SERVER": str(int(rank >= workers)),
            "KOLO_TOKEN": token,
            "KOLO_IFACE": "eth0",
        }
        return Command(f"rank {rank}", ["ip", "netns", "exec", namespace(rank), *words], env)

    return run_together([command(rank) for rank in range(world)], seconds)


def measured(kolo: pathlib.Path, workers: int, servers: int, size: int) -> float:
    """Median seconds of an all-reduce, the slowest rank's."""
    words = [str(kolo), "bench", "all-reduce", "--sizes", str(size), "--json"]
    (row,) = json.loads(ranks(words, workers, servers, SECONDS)[0])["rows"]
    return row["p50_us"] / 1e6


def socket_ns() -> float:
    """Nanoseconds of a core for each byte that the first two ranks send and receive by a plain TCP connection;
    nothing else may run. The switch is on the same cores, and counts."""
    tail = [address(0), f"{STARTED + WATCHED + STARTED:g}", "both"]

    def end(rank: int, role: str) -> Command:
        words = [sys.executable, link_rate.__file__, role, *tail]
        return Command(f"link_rate.py {role}", ["ip", "netns", "exec", namespace(rank), *words])

    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(run_together, [end(0, "listen"), end(1, "call")], 30)
        time.sleep(STARTED)
        before = busy()
        time.sleep(WATCHED)
        spent = busy() - before
    sent = sum(json.loads(line)["bytes_per_second"] for line in told.result()) * WATCHED
    return 1e9 * spent / sent


def busy() -> float:
    """Seconds that all cores of the host have not been idle."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    idle = sum(map(int, fields[3:5]))
    return (sum(map(int, fields)) - idle) / os.sysconf("SC_CLK_TCK")


def formula(workers: int, servers: int) -> float:
    """An all-reduce's time, in that of its bytes on one link."""
    n, k = workers, min(servers, workers)
    return 2 * n * (n - 1) / (n * n + k * n - 2 * k) if n > 1 else 0.0


def built() -> pathlib.Path:
    command = ["cargo", "build", "--release", "-p", "kolo", "--manifest-path", str(ROOT / "Cargo.toml")]
    run(Command("cargo build", command, show=True), 3600)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kolo"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", default="0,1,2,4", help="numbers of servers, behind commas, 0 first")
    parser.add_argument("--mbit", type=float, default=100.0, help="10⁶ bits a second of each rank's link")
    parser.add_argument("--bytes", type=int, default=46_800_000)
    parser.add_argument("--kolo", type=pathlib.Path)
    options = parser.parse_args()
    if why := obstacle():
        sys.exit(why)
    kolo = options.kolo or built()
    link = options.bytes * 8 / (options.mbit * 1e6 * PAYLOAD)
    print(f"{options.workers} workers, {options.bytes / 1e6:g} MB, {options.mbit:g} Mbit/s each: nβ = {link:.2f} s\n")
    print("| servers | formula | formula, s | measured, s | times as fast as without, formula | measured |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    without = None
    for servers in map(int, options.servers.split(",")):
        with network([options.mbit] * (options.workers + servers)):
            seconds = measured(kolo, options.workers, servers, options.bytes)
        without = without or seconds
        share = formula(options.workers, servers)
        faster = formula(options.workers, 0) / share
        figures = f"{share:.3f} nβ | {share * link:.2f} | {seconds:.2f} | {faster:.2f} | {without / seconds:.2f}"
        print(f"| {servers} | {figures} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(str(error))
