"""Common parts of bench/kubernetes.py and bench/slurm.py: a run whose weights are compared, and host names of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "KOLO_BENCH_CLUSTER_FOLDER"
"""Set in the mount namespace: the folder of everything."""
PATIENCE = 180
"""Seconds for something to happen; only a hang takes that long."""
LOOK = 0.2


class Failure(Exception):
    """A problem, in one sentence."""


def training(steps: int) -> list[str]:
    """Options of `kolo train` for so many small steps."""
    return f"--model small --batch-size 1 --steps {steps} --checkpoint-epochs 1000".split()


def slow(workers: int, milliseconds: int) -> list[str]:
    """Options that make each worker sleep for each of its shards, so that a job lasts without taking processors."""
    return [word for rank in range(workers) for word in ("--slow", f"{rank}:compute:{milliseconds}")]


def in_namespace(script: str, words: list[str], hosts: str) -> int:
    """Runs a script again with a host table of its own. Its folder goes with it."""
    with tempfile.TemporaryDirectory(prefix=f"kolo-{Path(script).stem}-") as folder:
        table = Path(folder) / "hosts"
        table.write_text(hosts)
        mount = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        inside = [sys.executable, str(Path(script).resolve()), *words]
        argv = ["unshare", "--mount", "sh", "-c", mount, "sh", str(table), *inside]
        return subprocess.run(argv, env=os.environ | {FOLDER: folder}, check=False).returncode


def undisturbed(kolo: Path, options: list[str]) -> str:
    """The weights after a run of one worker."""
    argv = [str(kolo), "train", "--nproc", "1", "--shards", "8", *options, "--out", "undisturbed"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"the undisturbed run: {done.stderr}")
    return weights(Path("undisturbed"))


def weights(run: Path) -> str:
    return json.loads((run / "summary.json").read_text())["weights_sha256"]


def steps(run: Path) -> int:
    """Number of steps that a run has reported."""
    file = run / "steps.jsonl"
    return len(file.read_bytes().splitlines()) if file.exists() else 0


def wait(until: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        if time.monotonic() > deadline:
            raise Failure(otherwise())
        time.sleep(LOOK)
