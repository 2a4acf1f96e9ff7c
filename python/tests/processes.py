"""Starts the processes of a test: this interpreter with a function of a test module, on loopback."""

import importlib
import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes:
    """Ranks that run `module.function(group)`, with the environment that torchrun would give them."""

    def __init__(self, world, function, *arguments, **environment):
        here, port = os.path.dirname(os.path.abspath(__file__)), str(free_port())
        self.processes = []
        for rank in range(world):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                             MASTER_PORT=port, OMP_NUM_THREADS="1", KOLO_TIMEOUT="60", **environment)
            command = [sys.executable, "-m", "tests.processes", function.__module__, function.__qualname__, *map(str, arguments)]
            self.processes.append(subprocess.Popen(command, env=variables, cwd=os.path.dirname(here), text=True,
                                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT))

    def outputs(self, timeout=120):
        """Returns (exit code, output) of each rank; ends those that are not over in time."""
        until, results = time.monotonic() + timeout, []
        for process in self.processes:
            try:
                output, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                output = process.communicate()[0] + f"\nnot over after {timeout} s"
            results.append((process.returncode, output))
        return results


def run(test, world, function, *arguments, fails=(), timeout=120, **environment):
    """Runs a function on all ranks and returns their outputs. Ranks in `fails` may end with any code."""
    results = Processes(world, function, *arguments, **environment).outputs(timeout)
    for rank, (code, output) in enumerate(results):
        if rank not in fails:
            test.assertEqual(code, 0, f"rank {rank} of {function.__qualname__}:\n{output}")
    return [output for _, output in results]


if __name__ == "__main__":
    module, name, *arguments = sys.argv[1:]
    getattr(importlib.import_module(module), name)(*arguments)
