"""Runs the programs in examples/ with torchrun and prints what they print; `kolo launch` and mpirun run some again.

    python examples.py [--nproc 2] [--kolo PROGRAM] [--only PATTERN]

It needs the wheel and torch. With the command, `kolo verify` tries the exact one. Those of Accelerate and Lightning are
left out where these are not installed, and so is mpirun.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.processes import free_port

FOLDER = Path(__file__).resolve().parent / "examples"
NEEDS = {"with_accelerate": "accelerate", "with_lightning": "lightning"}


def run(launcher, path, **variables):
    """Runs an example; returns its result, or None after it has printed the error."""
    done = subprocess.run([*launcher, str(path)], text=True, capture_output=True, timeout=600,
                          env=dict(os.environ, OMP_NUM_THREADS="1", **variables))
    found = re.findall(r"result: (.*)", done.stdout)
    if done.returncode == 0 and len(found) == 1:
        return found[0]
    print(done.stdout[-3000:], done.stderr[-5000:], sep="\n")
    return None


def verified(kolo, nproc):
    """Has `kolo verify` run a few steps of the exact example in several ways; returns true if all bits agree."""
    few = ["--workers", nproc, "--steps", "4", "--bucket-caps-mb", "25,0.001", "--transport", "shm"]
    done = subprocess.run([kolo, "verify", *few, "--", sys.executable, str(FOLDER / "data_parallel.py")], text=True,
                          capture_output=True, timeout=600, env=dict(os.environ, OMP_NUM_THREADS="1"))
    result = re.search(r"all \d+ runs went through the same bits", done.stdout + done.stderr)
    print(f"{'kolo verify':12} {'data_parallel':16} {result.group() if result else 'FAILED'}", flush=True)
    if not result:
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
    return bool(result)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--nproc", type=int, default=2, help="number of processes (default 2)")
    arguments.add_argument("--kolo", help="the command line, for `kolo launch`")
    arguments.add_argument("--only", default=".", metavar="PATTERN", help="examples whose names match")
    chosen = arguments.parse_args()
    nproc, failed, results = str(chosen.nproc), [], {}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", nproc]
    trials = [("torchrun", torchrun, path) for path in sorted(FOLDER.glob("*.py"))]
    if chosen.kolo:
        launch = [chosen.kolo, "launch", "--nproc", nproc, "--", sys.executable]
        trials.append(("kolo launch", launch, FOLDER / "data_parallel.py"))
    if shutil.which("mpirun"):
        trials.append(("mpirun", ["mpirun", "-n", nproc, sys.executable], FOLDER / "with_mpirun.py"))
        # Open MPI refuses root and more processes than cores otherwise.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    for launcher, command, path in trials:
        if not re.search(chosen.only, path.stem):
            continue
        if (package := NEEDS.get(path.stem)) and not importlib.util.find_spec(package):
            print(f"{launcher:12} {path.stem:16} left out: {package} is not installed", flush=True)
            continue
        result = run(command, path, MASTER_PORT=str(free_port())) if launcher == "mpirun" else run(command, path)
        print(f"{launcher:12} {path.stem:16} {result or 'FAILED'}", flush=True)
        if result is None or results.setdefault(path.stem, result) != result:
            failed.append(f"{path.stem} with {launcher}")
    if chosen.kolo and re.search(chosen.only, "data_parallel") and not verified(chosen.kolo, nproc):
        failed.append("data_parallel with kolo verify")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
