"""What the two PyTorch scripts share: joining the Gloo group, and one number out of many ranks' times.

A script is one rank. It is told which by torchrun's variables, so `torchrun --nproc-per-node 2 ddp_step.py`
works as well. The runner meets over a file (PEERS_RENDEZVOUS) instead: a store over TCP listens on every
interface.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist


@contextmanager
def gloo_group() -> Iterator[None]:
    """One compute thread and a Gloo group of WORLD_SIZE ranks, over loopback by default, left at the end."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=os.environ.get("PEERS_RENDEZVOUS", "env://"),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=120),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def slowest_rank(seconds: list[float]) -> torch.Tensor:
    """Sample by sample the longest time over the ranks, sorted: a step is over when its last rank is."""
    times = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.sort().values


def percentile(sorted_times: torch.Tensor, percent: int) -> float:
    """The smallest sample that `percent` of them do not exceed, as Kolo takes it."""
    place = -(-percent * sorted_times.numel() // 100)
    return sorted_times[max(place, 1) - 1].item()
