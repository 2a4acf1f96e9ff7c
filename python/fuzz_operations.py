"""Random sequences of operations on random groups, each result beside the one that numpy works out.

    python fuzz_operations.py [--sequences 2000] [--seed 0] [--world 4]

A sequence splits the ranks at random, and runs up to six operations on the group of all and on the new groups in turn,
of any kind, type and length. A failure prints the sequence, which `--seed` and `--first` repeat. It needs numpy, not torch.
"""

import argparse
import random
import sys

import kolo
from tests.processes import Processes
from tests.test_group import one_operation


def sequences(first, count, seed):
    with kolo.Group() as world:
        ranks = list(range(world.size))
        for sequence in range(int(first), int(first) + int(count)):
            dice = random.Random(f"{seed} {sequence}")
            colors = [dice.choice([0, 1, None]) for _ in ranks]
            group = world.split(colors[world.rank], key=(keys := [dice.randrange(3) for _ in ranks])[world.rank])
            groups = [(world, ranks)]
            if group is not None:
                members = sorted((rank for rank in ranks if colors[rank] == colors[world.rank]), key=lambda rank: (keys[rank], rank))
                groups.append((group, members))
            for number in range(dice.randrange(1, 7)):
                for group, members in groups:
                    try:
                        one_operation(group, int(seed) * 1_000_000_000 + sequence * 10 + number, members)
                    except BaseException:
                        print(f"sequence {sequence}, operation {number}, members {members}", flush=True)
                        raise
            for group, _ in groups[1:]:
                group.close()
        print(f"rank {world.rank}: {count} sequences are right")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--sequences", type=int, default=2000, help="default 2000")
    arguments.add_argument("--first", type=int, default=0, help="number of the first one")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--world", type=int, default=4, help="number of processes (default 4)")
    chosen = arguments.parse_args()
    # The ranks import this module by its name.
    import fuzz_operations

    results = Processes(chosen.world, fuzz_operations.sequences, chosen.first, chosen.sequences, chosen.seed).outputs(timeout=3600)
    for code, output in results:
        print(output.rstrip())
    if any(code for code, _ in results):
        sys.exit("some sequence is wrong")


if __name__ == "__main__":
    main()
