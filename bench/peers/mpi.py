"""Open MPI and MPICH: how the one C program is compiled and started with each.

Both get what makes them fast on one machine: no binding to cores (which would put several ranks on one),
and Open MPI the leave to run more ranks than cores, upon which it gives up its core while it waits. MPICH has
no such setting; with more ranks than cores its waiting ranks keep the working ones from a core.

Over the link the remote rank is started by `rsh_agent.sh`, in place of ssh.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from places import Namespaces, Place
from processes import Command, run
from settings import Setting

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "mpi_all_reduce.c"
AGENT = HERE / "rsh_agent.sh"
AGENT_NAMESPACE = "PEERS_NAMESPACE"
"""By which the agent is told where the remote rank goes."""
COMPILE_SECONDS = 120


@dataclass(frozen=True)
class Mpi:
    """One implementation, as Debian names its programs."""

    name: str
    suffix: str
    packages: str

    @property
    def compiler(self) -> str:
        return f"mpicc.{self.suffix}"

    @property
    def launcher(self) -> str:
        return f"mpirun.{self.suffix}"

    def missing(self) -> str | None:
        """What to install, None if nothing."""
        absent = [program for program in (self.compiler, self.launcher) if shutil.which(program) is None]
        if not absent:
            return None
        return f"{self.name}: {' and '.join(absent)} not found: apt-get install {self.packages}"

    def build(self, folder: Path) -> Path:
        """The program compiled into `folder`."""
        folder.mkdir(exist_ok=True)
        program = folder / f"mpi_all_reduce.{self.suffix}"
        argv = [self.compiler, "-O2", "-o", str(program), str(SOURCE)]
        run(Command(self.compiler, argv), COMPILE_SECONDS)
        return program


OPEN_MPI = Mpi("Open MPI", "openmpi", "openmpi-bin libopenmpi-dev")
MPICH = Mpi("MPICH", "mpich", "mpich libmpich-dev")


def open_mpi_launch(setting: Setting, place: Place) -> list[str]:
    """`mpirun` and its options. Shared memory is its default; for TCP all other transports are closed."""
    argv = [OPEN_MPI.launcher, *_as_root(), "--bind-to", "none", "--oversubscribe"]
    if setting.transport == "tcp":
        argv += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        argv += ["--mca", "btl_tcp_if_include", place.interface]
    if isinstance(place, Namespaces):
        hosts = ",".join(f"{address}:1" for address in place.addresses)
        argv += ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", str(AGENT)]
        argv += ["--mca", "oob_tcp_if_include", place.interface, "-H", hosts]
    return place.inside(0, [*argv, "-n", str(setting.nproc)])


def mpich_launch(setting: Setting, place: Place) -> list[str]:
    """`mpirun` and its options. UCX carries MPICH's bytes, so UCX is told to use nothing but TCP."""
    argv = [MPICH.launcher, "-bind-to", "none"]
    if setting.transport == "tcp":
        argv += ["-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self"]
        argv += ["-genv", "UCX_NET_DEVICES", place.interface]
    if isinstance(place, Namespaces):
        argv += ["-launcher", "ssh", "-launcher-exec", str(AGENT)]
        argv += ["-iface", place.interface, "-hosts", ",".join(place.addresses)]
    else:
        argv += ["-launcher", "fork"]
    return place.inside(0, [*argv, "-n", str(setting.nproc)])


def environment(place: Place) -> dict[str, str]:
    """What the agent has to know."""
    return {AGENT_NAMESPACE: place.names[1]} if isinstance(place, Namespaces) else {}


def _as_root() -> list[str]:
    """Open MPI refuses root unless it is told that this is meant."""
    return ["--allow-run-as-root"] if os.geteuid() == 0 else []
