"""The frame of a process that trains by PyTorch as the lines of its standard input ask."""

import statistics
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist


def answer(step: Callable[..., Callable[[], float]]) -> None:
    """Answers each line with the median of steps, in milliseconds. Arguments of the program: backend and way.
    The last number of a line is that of steps; `step` makes them from the way and the other numbers."""
    backend, way = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    made, take = None, None
    for line in sys.stdin:
        *setting, steps = map(int, line.split())
        if take is None or setting != made:
            # Two models at once would need more memory than the larger one.
            take = None
            made, take = setting, step(way, *setting)
        print(statistics.median(take() for _ in range(steps)), flush=True)
    dist.destroy_process_group()
