"""Starts jobs of two processes that end in every way, and looks for hangs and crashes.

    python starts_and_exits.py [--count 200] [--world 2]

The ends: with and without destroy_process_group, with an operation under way, with a future that nobody waits for, by
sys.exit, by an exception, and by a rank that leaves while the others wait for it.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

from tests.processes import free_port

ENDS = ["destroyed", "left", "under_way", "future", "exit", "exception", "early"]
# The exit codes that each end may have.
CODES = {"exit": {3}, "exception": {1}, "early": {0, 1}}


def job(end, rank):
    import torch
    import torch.distributed as dist

    dist.init_process_group("kolo")
    data = torch.ones(1000)
    dist.all_reduce(data)
    if end == "destroyed":
        dist.destroy_process_group()
    elif end == "under_way":
        job.work = dist.all_reduce(data, async_op=True)
    elif end == "future":
        dist.all_reduce(data, async_op=True).get_future().then(lambda future: future.value())
    elif end == "exit":
        sys.exit(3)
    elif end == "exception":
        raise ValueError("on purpose")
    elif end == "early" and rank != 0:
        dist.all_reduce(data)


def start(end, world, folder, limit):
    """Returns what went wrong in a job, or None. The processes are forked and end as Python does."""
    port, children = str(free_port()), []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            file = os.open(os.path.join(folder, str(rank)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            # The interpreter's own end, with its handlers, is what is tried: nothing catches or shortens it.
            job(end, rank)
            sys.exit(0)
        children.append(child)
    until, codes = time.monotonic() + limit, {}
    while len(codes) < world and time.monotonic() < until:
        for rank, child in enumerate(children):
            if rank not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[rank] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for rank, child in enumerate(children):
        if rank not in codes:
            os.kill(child, 9)
            os.waitpid(child, 0)
    for rank in range(world):
        if codes.get(rank) not in CODES.get(end, {0}):
            text = open(os.path.join(folder, str(rank))).read()
            return f"{end}: rank {rank} ended with {codes.get(rank, 'a hang')}: {text[-1500:]}"
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--count", type=int, default=200, help="number of jobs (default 200)")
    arguments.add_argument("--world", type=int, default=2, help="processes of each (default 2)")
    arguments.add_argument("--limit", type=float, default=60.0, help="seconds after which a job hangs (default 60)")
    chosen = arguments.parse_args()
    import torch
    import torch.distributed  # noqa: F401

    import kolo.torch  # noqa: F401

    torch.set_num_threads(1)
    problems, began = [], time.monotonic()
    # No context manager: a forked process that ends would leave it, too.
    folder = tempfile.mkdtemp(prefix="kolo-exits-")
    for number in range(chosen.count):
        problem = start(ENDS[number % len(ENDS)], chosen.world, folder, chosen.limit)
        if problem:
            problems.append(problem)
            print(f"job {number}: {problem}", flush=True)
        if (number + 1) % 10 == 0:
            print(f"{number + 1} jobs, {len(problems)} wrong", flush=True)
    shutil.rmtree(folder)
    print(f"{chosen.count} jobs of {chosen.world} processes in {time.monotonic() - began:.0f} s: {len(problems)} wrong")
    if problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
