"""The jobs that vanished.py disturbs: each system with a worker and its launcher on each of three hosts, and what
has to stay, a store or a lighthouse, on a host that is not cut off. One line in HOST_SYSTEMS for each.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hosts import INTERFACE, Hosts
from processes import Command
from recovery_systems import (
    HEARTBEAT_MS,
    KOLO,
    ONE_THREAD,
    OWN_STORE,
    README_LIGHTHOUSE,
    README_MANAGER,
    RESTARTS,
    SYSTEMS,
    TUNED_LIGHTHOUSE,
    TUNED_MANAGER,
    WORKERS,
    Job,
    System,
    kolo_train,
    marked,
    script,
)
from systems import Programs

PORT = 29_500
"""On hosts of our own, where nothing else listens."""
ALL = tuple(range(WORKERS))
TORCH_FILES, KOLO_FILES = "steps-{host}-*.jsonl", "trace-{host}.jsonl"
LATER_TRACES = tuple(KOLO_FILES.format(host=host) for host in ALL[1:])
"""The first rank 0, on host 0, makes its trace; a later one continues a file."""

Commands = Callable[[Programs, Job], list[Command]]


@dataclass(frozen=True)
class HostSystem(System):
    """A system on hosts; the first commands are those of hosts 0, 1 and 2."""

    one_host: System
    """The same training on one host, for the undisturbed weights."""
    cut: tuple[int, ...]
    """Hosts that are cut off, one in each run, in turn."""
    files: str
    """Pattern of the files with the steps of one host."""
    empty: tuple[str, ...] = ()
    """Files that have to be there before a host writes to them."""


def hosts_of(job: Job) -> Hosts:
    if job.hosts is None:
        raise ValueError("a job on one host has no hosts")
    return job.hosts


def kolo(environment: dict[str, str]) -> Commands:
    """A launcher on each host, which finds the job at any of the three."""

    def commands(programs: Programs, job: Job) -> list[Command]:
        hosts = hosts_of(job)
        master = ",".join(f"{address}:{PORT}" for address in hosts.addresses[:WORKERS])
        found = []
        for host in ALL:
            launch = ["launch", "--nnodes", str(WORKERS), "--node-rank", str(host), "--nproc", "1", "--master", master]
            # Without it the workers would find that their hosts are one machine.
            launch += ["--transport", "tcp", "--max-restarts", RESTARTS, "--arbiter", "majority", "--"]
            own = {"KOLO_TOKEN": str(job.folder), "KOLO_VERIFY_FILE": str(job.folder / KOLO_FILES.format(host=host))}
            argv = hosts.inside(host, [programs.kolo, *launch, programs.kolo, *kolo_train(job)])
            found.append(Command(f"kolo launch of host {host}", argv, marked(job) | own | environment))
        return found

    return commands


def torchft(settings: dict, lighthouse: list[str]) -> Commands:
    """The lighthouse is on the host with the switch."""

    def commands(programs: Programs, job: Job) -> list[Command]:
        hosts = hosts_of(job)
        address = f"{hosts.addresses[-1]}:{PORT}"
        program = str(Path(str(programs.python)).with_name("torchft_lighthouse"))
        argv = hosts.inside(WORKERS, [program, "--bind", address, *lighthouse])
        last = Command("torchft_lighthouse", argv, marked(job))
        common = marked(job) | ON_HOSTS | {"TORCHFT_LIGHTHOUSE": f"http://{address}"}
        found = []
        for host in ALL:
            own = settings | {"host": host, "hostname": hosts.addresses[host]}
            options = ["--standalone", "--nnodes", "1"]
            argv = hosts.inside(host, [*launcher(programs, hosts, host, options), *script("torchft", job, own)])
            env = common | {"REPLICA_GROUP_ID": str(host)}
            found.append(Command(f"torchrun of replica group {host}", argv, env))
        return [*found, last]

    return commands


def torchrun(settings: dict, options: list[str], rendezvous: dict[str, int]) -> Commands:
    """Host 0 has the store at which the launchers meet, and stays; with two left, these go on."""

    def commands(programs: Programs, job: Job) -> list[Command]:
        hosts = hosts_of(job)
        found = []
        for host in ALL:
            words = {"is_host": int(host == 0)} | rendezvous
            meeting = ["--nnodes", f"{WORKERS - 1}:{WORKERS}", "--rdzv-backend", "c10d", "--rdzv-id", "recovery"]
            meeting += ["--rdzv-endpoint", f"{hosts.addresses[0]}:{PORT}"]
            meeting += ["--rdzv-conf", ",".join(f"{name}={value}" for name, value in words.items()), *options]
            own = script("torchrun", job, settings | {"host": host})
            argv = hosts.inside(host, [*launcher(programs, hosts, host, meeting), *own])
            found.append(Command(f"torchrun of host {host}", argv, marked(job) | ON_HOSTS | OWN_STORE))
        return found

    return commands


ON_HOSTS = ONE_THREAD | {"GLOO_SOCKET_IFNAME": INTERFACE}


def launcher(programs: Programs, hosts: Hosts, host: int, options: list[str]) -> list[str]:
    counts = ["--nproc-per-node", "1", "--max-restarts", RESTARTS, "--local-addr", hosts.addresses[host]]
    return [str(programs.python), "-m", "torch.distributed.run", *options, *counts]


def peer(name: str, settings: str, commands: Commands, cut: tuple[int, ...]) -> HostSystem:
    one_host = next(system for system in SYSTEMS if system.name == name)
    changed = replace(one_host, settings=settings, commands=commands)
    return HostSystem(**vars(changed), one_host=one_host, cut=cut, files=TORCH_FILES)


def own(name: str, settings: str, environment: dict[str, str]) -> HostSystem:
    changed = replace(KOLO, name=name, settings=settings, commands=kolo(environment))
    return HostSystem(**vars(changed), one_host=KOLO, cut=ALL, files=KOLO_FILES, empty=LATER_TRACES)


BUT_THE_STORE = (1, 2)
HOST_SYSTEMS = (
    own("Kolo", "as it comes: an unreachable host counts as dead after 8 s; `--arbiter majority`", {}),
    own("Kolo, tuned", "`KOLO_HOST_TIMEOUT=2`", {"KOLO_HOST_TIMEOUT": "2"}),
    peer(
        "torchft",
        "heartbeats and Gloo time out after 5 s, as in its README; the lighthouse stays",
        torchft(README_MANAGER, README_LIGHTHOUSE),
        ALL,
    ),
    peer(
        "torchft, tuned",
        f"heartbeats every 50 ms time out after {HEARTBEAT_MS} ms, quorum tick 10 ms, join timeout 1 s, Gloo 2 s",
        torchft(TUNED_MANAGER, TUNED_LIGHTHOUSE),
        ALL,
    ),
    peer(
        "torchrun",
        "`--nnodes 2:3`, c10d on a host that stays; Gloo's timeout 30 minutes, last call 30 s, keep-alive 3 × 5 s",
        torchrun({"collective_seconds": 0}, [], {}),
        BUT_THE_STORE,
    ),
    peer(
        "torchrun, tuned",
        "the same with Gloo's timeout 5 s, last call 1 s, keep-alive 3 × 1 s, monitor interval 0.01 s",
        torchrun(
            {"collective_seconds": 5},
            ["--monitor-interval", "0.01"],
            {"last_call_timeout": 1, "keep_alive_interval": 1, "keep_alive_max_attempt": 3},
        ),
        BUT_THE_STORE,
    ),
)
