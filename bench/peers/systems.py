"""The systems that are measured, and how each is called in a setting: one line in SYSTEMS for each.

A call is a list of commands that run together, one for each rank or one launcher. The first one's standard
output is the answer.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import mpi
from places import Loopback, Namespaces, Place
from processes import Command
from settings import Setting

HERE = Path(__file__).resolve().parent
MASTER_PORT = "29500"
"""In a namespace of our own, where nothing else listens."""


@dataclass(frozen=True)
class Programs:
    """What was found, built or installed; None for a peer that is not there."""

    kolo: str
    python: str | None
    open_mpi: str | None
    mpich: str | None


@dataclass(frozen=True)
class Job:
    """One measurement of one system: `folder` is empty and its own."""

    setting: Setting
    place: Place
    folder: Path
    sizes: list[int]
    seconds: float


def kolo_all_reduce(programs: Programs, job: Job) -> list[Command]:
    options = ["--sizes", _comma(job.sizes), "--seconds", f"{job.seconds:g}", "--json"]
    return kolo_ranks(programs, job, ["bench", "all-reduce", "--nproc", str(job.setting.nproc), *options])


def kolo_slices_all_reduce(programs: Programs, job: Job) -> list[Command]:
    """On memory of the program's own, where every peer's numbers are, too."""
    commands = kolo_all_reduce(programs, job)
    return [replace(command, argv=[*command.argv, "--memory", "slice"]) for command in commands]


def gloo_all_reduce(programs: Programs, job: Job) -> list[Command]:
    """Gloo has no transport through shared memory: its bytes pass over TCP in every setting."""
    arguments = ["--sizes", _comma(job.sizes), "--seconds", f"{job.seconds:g}"]
    return gloo_ranks(programs, job, "gloo_all_reduce.py", arguments)


def open_mpi_all_reduce(programs: Programs, job: Job) -> list[Command]:
    return _mpi(mpi.OPEN_MPI, mpi.open_mpi_launch(job.setting, job.place), programs.open_mpi, job)


def mpich_all_reduce(programs: Programs, job: Job) -> list[Command]:
    return _mpi(mpi.MPICH, mpi.mpich_launch(job.setting, job.place), programs.mpich, job)


def kolo_ranks(programs: Programs, job: Job, arguments: list[str]) -> list[Command]:
    """`kolo` starts its own workers on one machine; in two namespaces each is started by hand."""
    argv = [programs.kolo, *arguments]
    common = {"KOLO_TRANSPORT": job.setting.transport}
    if isinstance(job.place, Loopback):
        return [Command(f"kolo {' '.join(arguments[:2])}", argv, common)]
    common |= {
        "WORLD_SIZE": str(job.setting.nproc),
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": job.place.addresses[0],
        "MASTER_PORT": MASTER_PORT,
        "KOLO_TOKEN": secrets.token_hex(16),
    }
    return _one_each_rank(job, f"kolo {' '.join(arguments[:2])}", argv, common)


def gloo_ranks(programs: Programs, job: Job, script: str, arguments: list[str]) -> list[Command]:
    """One of the PyTorch scripts, once a rank; they meet over a file, which all namespaces see."""
    common = {
        "WORLD_SIZE": str(job.setting.nproc),
        "LOCAL_WORLD_SIZE": str(job.setting.nproc),
        "PEERS_RENDEZVOUS": f"file://{job.folder}/rendezvous",
        "GLOO_SOCKET_IFNAME": job.place.interface,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    return _one_each_rank(job, script, [str(programs.python), str(HERE / script), *arguments], common)


def _mpi(which: mpi.Mpi, launch: list[str], program: str | None, job: Job) -> list[Command]:
    argv = [*launch, str(program), _comma(job.sizes), f"{job.seconds:g}"]
    return [Command(f"{which.name} all-reduce", argv, mpi.environment(job.place))]


def _one_each_rank(job: Job, name: str, argv: list[str], common: dict[str, str]) -> list[Command]:
    def command(rank: int) -> Command:
        own = {"RANK": str(rank)} | ({} if isinstance(job.place, Namespaces) else {"LOCAL_RANK": str(rank)})
        return Command(f"{name}, rank {rank},", job.place.inside(rank, argv), common | own)

    return [command(rank) for rank in range(job.setting.nproc)]


def _comma(sizes: list[int]) -> str:
    return ",".join(map(str, sizes))


@dataclass(frozen=True)
class System:
    """`program` picks what it needs from the programs: None there means that it cannot run. Over a link,
    where bytes take longer than copies of them, some systems have nothing to show: `over_links`."""

    name: str
    program: Callable[[Programs], str | None]
    all_reduce: Callable[[Programs, Job], list[Command]]
    over_links: bool = True


KOLO = "Kolo"
KOLO_SLICES = "Kolo, slices"
GLOO = "Gloo"
SYSTEMS = (
    System(KOLO, lambda programs: programs.kolo, kolo_all_reduce),
    System(KOLO_SLICES, lambda programs: programs.kolo, kolo_slices_all_reduce, over_links=False),
    System(GLOO, lambda programs: programs.python, gloo_all_reduce),
    System(mpi.OPEN_MPI.name, lambda programs: programs.open_mpi, open_mpi_all_reduce),
    System(mpi.MPICH.name, lambda programs: programs.mpich, mpich_all_reduce),
)
