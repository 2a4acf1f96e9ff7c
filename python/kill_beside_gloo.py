"""Kills a rank in the middle of an all-reduce, over Kolo and over Gloo in turn: how long until every other rank has an
exception, and whether it names the rank.

    python kill_beside_gloo.py [--world 4] [--rounds 5] [--bytes 67108864] [--check]

With `--check` it fails if a rank over Kolo needs more than 2 s or does not name the one that was killed.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time

from tests.processes import free_port

LIMIT = 30.0


def survive(backend, rank, world, port, elements, begun):
    """Reduces until it fails; returns the error's text."""
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(backend)
    data = torch.ones(elements)
    dist.all_reduce(data)
    os.write(begun, b".")
    while True:
        try:
            dist.all_reduce(data)
        except RuntimeError as error:
            return str(error)


def trial(backend, world, elements, delay, victim):
    """Returns for each survivor the seconds until its exception, None beyond the limit, and the exception's text."""
    port, (ready, begun), children = free_port(), os.pipe(), []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(world):
            child = os.fork()
            if child == 0:
                text = survive(backend, rank, world, port, elements, begun)
                with open(os.path.join(folder, f"{rank}.part"), "w") as file:
                    file.write(f"{time.time()}\n{text}")
                os.rename(file.name, os.path.join(folder, str(rank)))
                os._exit(0)
            children.append(child)
        os.close(begun)
        count = 0
        while count < world:
            got = os.read(ready, world)
            if not got:
                sys.exit(f"the ranks have not started over {backend}")
            count += len(got)
        os.close(ready)
        time.sleep(delay)
        killed = time.time()
        os.kill(children[victim], signal.SIGKILL)
        paths = [os.path.join(folder, str(rank)) for rank in range(world) if rank != victim]
        while time.time() < killed + LIMIT and not all(map(os.path.exists, paths)):
            time.sleep(0.01)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        results = []
        for path in paths:
            if os.path.exists(path):
                at, text = open(path).read().split("\n", 1)
                results.append((float(at) - killed, text))
            else:
                results.append((None, "nothing"))
        return results


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--world", type=int, default=4, help="number of processes (default 4)")
    arguments.add_argument("--rounds", type=int, default=5, help="kills over each backend (default 5)")
    arguments.add_argument("--bytes", type=int, default=64 << 20, help="length of the all-reduce (default 64 MiB)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--check", action="store_true", help="fail if Kolo does not keep its promise")
    chosen = arguments.parse_args()
    import torch
    import torch.distributed  # noqa: F401

    import kolo.torch  # noqa: F401

    torch.set_num_threads(1)
    dice, worst, wrong = random.Random(chosen.seed), {}, []
    for number in range(chosen.rounds):
        victim, delay = dice.randrange(1, chosen.world), dice.uniform(0.1, 0.6)
        for backend in ("kolo", "gloo"):
            results = trial(backend, chosen.world, chosen.bytes // 4, delay, victim)
            times = [LIMIT if seconds is None else seconds for seconds, _ in results]
            named = sum(f"rank {victim}" in text for _, text in results)
            worst.setdefault(backend, []).append((max(times), named, len(results)))
            print(f"{backend}: rank {victim} killed; the last of {len(results)} has its exception after {max(times):.2f} s, "
                  f"{named} name the rank: {results[0][1].splitlines()[0][:110]}", flush=True)
            if backend == "kolo" and (max(times) > 2.0 or named < len(results)):
                wrong.append(number)
    for backend, rounds in worst.items():
        print(f"{backend}: at most {max(seconds for seconds, _, _ in rounds):.2f} s; "
              f"named by {sum(named for _, named, _ in rounds)} of {sum(count for _, _, count in rounds)}")
    if chosen.check and wrong:
        sys.exit(f"rounds that broke the promise: {wrong}")


if __name__ == "__main__":
    main()
