#!/usr/bin/env python3
"""Slurm for real: starts a Slurm of two nodes on this machine, submits the templates of examples/slurm/, disturbs
their jobs, and compares the weights of each with those of an undisturbed run.

    python3 bench/slurm.py [--jobs 20] [--seed 0] [--kolo PROGRAM]

A job is preempted (with and without grace time), requeued, sent the signal before its time limit, canceled and
submitted again, or loses a worker: once to three times, by the seed. Where Slurm, munge or root is missing, it says
so and ends. Everything is in a temporary folder; a mount namespace has the names of the two nodes.
"""

import argparse
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster_trial import FOLDER, ROOT, Failure, in_namespace, slow, steps, training, undisturbed, wait, weights

TEMPLATES = ROOT / "examples" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "srun", "scontrol", "unshare", "mount")
STEPS = 120
TRAINING = training(STEPS)
SLOW = slow(workers=4, milliseconds=15)

SIZES = {
    "one-node.sbatch": ["--cpus-per-task=2"],
    "tasks.sbatch": ["--ntasks=3"],
    "nodes.sbatch": ["--cpus-per-task=1"],
}
"""What of a template's size does not fit on this machine."""

CONFIGURATION = """
ClusterName=kolo
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
FirstJobId={job}
KillWait=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4
PartitionName=grace Nodes=ALL PriorityTier=1 GraceTime=15
PartitionName=low Nodes=ALL PriorityTier=1
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "debug" / "kolo")
    options = parser.parse_args()
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing or os.geteuid() != 0:
        print(f"note: Slurm is not tried: {f'no {missing[0]}' if missing else 'it needs root'}")
        return 0
    if not options.kolo.exists():
        print(f"error: {options.kolo} does not exist; build it, or give --kolo", file=sys.stderr)
        return 2
    if FOLDER not in os.environ:
        words = ["--jobs", str(options.jobs), "--seed", str(options.seed), "--kolo", str(options.kolo.resolve())]
        return in_namespace(__file__, words, Path("/etc/hosts").read_text() + "127.0.0.1 n1 n2\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        return trials(options, Path(os.environ[FOLDER]))
    except Failure as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def trials(options: argparse.Namespace, folder: Path) -> int:
    path = f"{options.kolo.resolve().parent}:{os.environ['PATH']}"
    os.environ |= {"PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    del os.environ[FOLDER]
    os.chdir(folder)
    draw, same = random.Random(options.seed), 0
    with slurm(folder):
        expected = undisturbed(options.kolo, TRAINING)
        print(f"undisturbed: {expected}", flush=True)
        for number in range(options.jobs):
            template = list(SIZES)[number % len(SIZES)]
            kinds = draw.choices(list(DISTURBANCES), k=draw.randint(1, 3))
            try:
                found = disturbed(template, kinds, f"job{number}")
            except Failure as error:
                found = str(error)
            same += found == expected
            verdict = "the same" if found == expected else found
            print(f"job {number}, {template}, {', '.join(kinds)}: {verdict}", flush=True)
    print(f"{same} of {options.jobs} jobs end in the undisturbed weights")
    return int(same < options.jobs)


@contextmanager
def slurm(folder: Path) -> Iterator[None]:
    """A Slurm of two nodes, ended with its jobs."""
    ports = free_ports()
    first = next(port for port in ports if port + 1 in ports)
    port = next(port for port in ports if port not in (first, first + 1))
    settings = {"host": socket.gethostname().split(".")[0], "folder": folder, "port": port}
    # Ports are derived from a job's number, and another Slurm of this machine may have the same ones.
    settings["job"] = os.getpid() % 50_000 + 1
    text = CONFIGURATION.format(**settings, first=first, last=first + 1)
    (folder / "slurm.conf").write_text(text)
    for name in ("state", "spool", "log"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    files = {"key-file": key, "socket": folder / "munge.sock", "pid-file": folder / "munged.pid"}
    files |= {"log-file": folder / "log" / "munged", "seed-file": folder / "munge.seed"}
    munged = ["munged", "--foreground", "--force", *(f"--{name}={file}" for name, file in files.items())]
    daemons = []
    try:
        daemons.append(daemon(munged))
        wait(lambda: files["socket"].exists(), lambda: "munged does not start")
        daemons.append(daemon(["slurmctld", "-D", "-L", str(folder / "log" / "slurmctld")]))
        for node in ("n1", "n2"):
            (folder / "spool" / node).mkdir()
            words = ["-L", str(folder / "log" / node), "-d", str(shutil.which("slurmstepd"))]
            daemons.append(daemon(["slurmd", "-D", "-N", node, *words]))
        wait(lambda: output("sinfo", "-h", "-N", "-p", "low", "-o", "%T").split() == ["idle"] * 2, lambda: "no nodes")
        yield
    finally:
        output("scancel", "--full", "--signal=KILL", "--user=root")
        time.sleep(1)
        for process in reversed(daemons):
            process.terminate()
        for process in daemons:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def daemon(argv: list[str]) -> subprocess.Popen:
    quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen(argv, start_new_session=True, **quiet)


def free_ports() -> list[int]:
    """Ports below those of outgoing connections at which nothing listens."""
    found = []
    for port in range(16800, 16900):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found


class Job:
    """A submitted template."""

    def __init__(self, template: str, run: str, options: list[str]) -> None:
        self.template, self.run, self.options = template, run, options
        self.submit()

    def submit(self) -> None:
        sbatch = ["sbatch", "--parsable", f"--output={self.run}.out", *SIZES[self.template], *self.options]
        words = [*TRAINING, *SLOW, "--out", self.run]
        submitted = subprocess.run([*sbatch, str(TEMPLATES / self.template), *words], capture_output=True, text=True)
        if submitted.returncode:
            raise Failure(f"sbatch {self.template}: {submitted.stderr.strip()}")
        self.id, self.released = submitted.stdout.strip(), 0

    def field(self, name: str) -> str:
        found = re.search(rf"\b{name}=(\S+)", output("scontrol", "show", "job", self.id, "-o"))
        return found[1] if found else ""

    def state(self) -> str:
        """Slurm's word. A requeued job need not wait until the two minutes of its hold are over, only until a second
        has passed: a node refuses credentials as old as those of the job's last life."""
        state, restarts = self.field("JobState"), self.restarts()
        if state == "PENDING" and restarts > self.released:
            self.released = restarts
            output("scontrol", "update", f"JobId={self.id}", "StartTime=now+3seconds")
        return state

    def steps(self) -> int:
        return steps(Path(self.run))

    def wait_for_steps(self, number: int) -> bool:
        """True if the run gets there before its end."""
        there = lambda: self.steps() >= number or self.ended()  # noqa: E731
        wait(there, lambda: f"{self.run} does not reach step {number}: {self.log()}")
        return not self.ended()

    def ended(self) -> bool:
        return self.state() in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")

    def requeued(self, times: int) -> None:
        """Waits until the job runs again."""
        again = lambda: self.field("Restarts") == str(times) and self.state() == "RUNNING"  # noqa: E731
        wait(lambda: again() or self.ended(), lambda: f"{self.run} is not started again: {self.state()}, {self.log()}")
        if self.ended() and self.field("Restarts") != str(times):
            raise Failure(f"{self.run} has ended as {self.state()}, not requeued: {self.log()}")

    def log(self) -> str:
        file = Path(f"{self.run}.out")
        return " | ".join(file.read_text(errors="replace").splitlines()[-12:]) if file.exists() else "no output"

    def restarts(self) -> int:
        return int(self.field("Restarts") or 0)


def preempt(job: Job) -> None:
    before = job.restarts()
    done = output("sbatch", "--parsable", "-p", "high", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")
    if not done.strip():
        raise Failure("the job that preempts is not accepted")
    job.requeued(before + 1)


def requeue(job: Job) -> None:
    before = job.restarts()
    output("scontrol", "requeue", job.id)
    job.requeued(before + 1)


def time_limit(job: Job) -> None:
    """Sends what `--signal=USR1@120` sends before the end."""
    before = job.restarts()
    output("scancel", "--signal=USR1", job.id)
    job.requeued(before + 1)


def cancel(job: Job) -> None:
    before = job.restarts()
    output("scancel", job.id)
    wait(lambda: job.state() == "CANCELLED", lambda: f"{job.run} is not canceled: {job.state()}")
    wait(lambda: not output("squeue", "-h", "-j", job.id).strip(), lambda: f"{job.run} is canceled and stays")
    if job.restarts() != before:
        raise Failure(f"{job.run} was canceled and has come back")
    job.submit()


def kill_worker(job: Job) -> None:
    """Kills one worker: `kolo launch` replaces it; a job of tasks is requeued by its script."""
    before, worker = job.restarts(), None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            pairs = (process / "environ").read_bytes().split(b"\0")
            variables = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        # Workers of a launcher have RANK; tasks of srun have Slurm's variables alone.
        rank = b"SLURM_PROCID" if job.template == "tasks.sbatch" else b"RANK"
        if name == "kolo" and (variables.get(b"SLURM_JOB_ID"), variables.get(rank)) == (job.id.encode(), b"1"):
            worker = int(process.name)
    if worker is None:
        raise Failure(f"{job.run} has no worker of rank 1")
    os.kill(worker, signal.SIGKILL)
    if job.template == "tasks.sbatch":
        job.requeued(before + 1)


DISTURBANCES: dict[str, Callable[[Job], None]] = {
    "preempted": preempt,
    "preempted with grace": preempt,
    "requeued": requeue,
    "near its time limit": time_limit,
    "canceled and submitted again": cancel,
    "a worker killed": kill_worker,
}


def disturbed(template: str, kinds: list[str], run: str) -> str:
    """The weights of a job that meets all of these."""
    # A job's partition cannot change while it runs.
    partition = "grace" if "preempted with grace" in kinds else "low"
    job = Job(template, run, [f"--partition={partition}"])
    for number, kind in enumerate(kinds):
        if not job.wait_for_steps((number + 1) * STEPS // (len(kinds) + 2)):
            raise Failure(f"it ended early as {job.state()}: {job.log()}")
        DISTURBANCES[kind](job)
    wait(job.ended, lambda: f"{run} does not end: {job.log()}")
    if job.state() != "COMPLETED":
        raise Failure(f"{job.state()}: {job.log()}")
    return weights(Path(run))


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
