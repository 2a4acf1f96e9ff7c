"""Runs Accelerate's own test scripts over Kolo, beside Gloo, and prints a table.

    python accelerate_tests.py [--nproc 2] [--backends kolo,gloo]

It needs the wheel, torch and `pip install accelerate`. The scripts are `accelerate.test_utils.scripts.test_script`,
`test_sync` and `test_ops`, on CPUs, each with its own processes.
"""

import argparse
import importlib.util
import os
import subprocess
import sys

from tests.processes import free_port

SCRIPTS = ["test_ops", "test_sync", "test_script"]


def script(name, backend):
    """Runs a script in this process, with a group that is there before Accelerate asks for one."""
    import torch.distributed as dist

    dist.init_process_group(backend)
    importlib.import_module(f"accelerate.test_utils.scripts.{name}").main()


def run(name, backend, nproc):
    """Runs a script with `nproc` processes; returns true if all of them end well."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(nproc), "--master-port", str(free_port())]
    variables = dict(os.environ, ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
    done = subprocess.run([*launcher, os.path.abspath(__file__), "--script", name, "--backends", backend], text=True,
                          capture_output=True, timeout=600, env=variables)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-5000:], sep="\n")
    return done.returncode == 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--nproc", type=int, default=2, help="number of processes (default 2)")
    arguments.add_argument("--backends", default="kolo,gloo", help="default kolo,gloo")
    arguments.add_argument("--script", help=argparse.SUPPRESS)
    arguments = arguments.parse_args()
    if arguments.script:
        return script(arguments.script, arguments.backends)
    if importlib.util.find_spec("accelerate") is None:
        sys.exit("error: no accelerate; `pip install accelerate`")
    failed = {backend: [name for name in SCRIPTS if not run(name, backend, arguments.nproc)]
              for backend in arguments.backends.split(",")}
    for backend, names in failed.items():
        print(f"{backend:5} {arguments.nproc} processes: {len(SCRIPTS) - len(names)} of {len(SCRIPTS)} pass", *names, sep="  ")
    sys.exit(bool(failed.get("kolo")))


if __name__ == "__main__":
    main()
