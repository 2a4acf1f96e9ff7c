"""Runs a function of a test on several numbers of ranks, which one process forks after it has imported torch once.

    python -m tests.forked MODULE FUNCTION 1,2,4
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

from tests.processes import free_port


def outputs(test, worlds, function, timeout=600, **environment):
    """Returns the outputs of the ranks for each number of ranks; fails if a rank does not end with 0."""
    command = [sys.executable, "-m", "tests.forked", function.__module__, function.__qualname__, ",".join(map(str, worlds))]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    variables = dict(os.environ, OMP_NUM_THREADS="1", KOLO_TIMEOUT="120", **environment)
    done = subprocess.run(command, cwd=here, env=variables, text=True, capture_output=True, timeout=timeout)
    test.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
    results = json.loads(done.stdout.splitlines()[-1])
    for ranks in results:
        for rank, (code, output) in enumerate(ranks):
            test.assertEqual(code, 0, f"rank {rank} of {len(ranks)} of {function.__qualname__}:\n{output}")
    return [[output for _, output in ranks] for ranks in results]


def _rank(function, rank, world, port, path):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    file, code = os.open(path, os.O_WRONLY | os.O_CREAT), 1
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        function()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(function, world, folder, timeout=200):
    """Forks the ranks; returns (exit code, output) of each."""
    port, paths, children = free_port(), [os.path.join(folder, f"{world}-{rank}") for rank in range(world)], []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            _rank(function, rank, world, port, paths[rank])
        children.append(child)
    until, codes = time.monotonic() + timeout, {}
    while len(codes) < world and time.monotonic() < until:
        for child in children:
            if child not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for child in children:
        if child not in codes:
            os.kill(child, 9)
            os.waitpid(child, 0)
    return [(codes.get(child, "not over in time"), open(path).read()) for child, path in zip(children, paths)]


if __name__ == "__main__":
    module, name, worlds = sys.argv[1:]
    import torch
    import torch.distributed  # noqa: F401

    import kolo.torch  # noqa: F401

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        function = getattr(importlib.import_module(module), name)
        print(json.dumps([run(function, int(world), folder) for world in worlds.split(",")]))
