"""One rank that trains ResNet-18 with PyTorch: step time under DDP over Gloo, and of the plain module.

Both are trained by the same processes in alternating blocks, so both see the same machine and the same
neighbour on the other core; their quotient is DDP's efficiency. Rank 0 prints one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks
from resnet18 import ResNet18, parameter_count

CLASSES = 10
PARAMETERS = 11_181_642
POOL = 4
"""Batches made before the clock runs and used in turn."""


def make_batches(batch_size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random images and labels, different ones on each rank."""
    random = torch.Generator().manual_seed(1000 + dist.get_rank())
    return [
        (
            torch.randn(batch_size, 3, 32, 32, generator=random),
            torch.randint(CLASSES, (batch_size,), generator=random),
        )
        for _ in range(POOL)
    ]


def trainer(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[int], None]:
    """A function that does whole step number i: clear, forward, backward (DDP reduces here), AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4)

    def step(number: int) -> None:
        images, labels = batches[number % len(batches)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def run_block(step: Callable[[int], None], steps: int) -> list[float]:
    """Seconds of each of `steps` steps; the ranks begin together."""
    dist.barrier()
    seconds = []
    for number in range(steps):
        start = time.perf_counter()
        step(number)
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(options: argparse.Namespace) -> dict:
    """Alternates blocks with and without synchronisation and reduces their times to the reported numbers."""
    torch.manual_seed(7)
    plain, replicated = ResNet18(CLASSES), ResNet18(CLASSES)
    assert parameter_count(plain) == PARAMETERS, parameter_count(plain)
    batches = make_batches(options.batch_size)
    without = trainer(plain, batches)
    ddp = trainer(DistributedDataParallel(replicated, bucket_cap_mb=options.bucket_cap_mb), batches)

    # DDP lays its buckets anew after the first step; both sides allocate what they keep.
    run_block(without, options.warm_up)
    run_block(ddp, options.warm_up)
    seconds, seconds_no_sync = [], []
    for _ in range(options.blocks):
        seconds_no_sync += run_block(without, options.steps)
        seconds += run_block(ddp, options.steps)

    synchronised, alone = ranks.slowest_rank(seconds), ranks.slowest_rank(seconds_no_sync)
    step_seconds, step_seconds_no_sync = ranks.percentile(synchronised, 50), ranks.percentile(alone, 50)
    return {
        "step_seconds": step_seconds,
        "step_seconds_no_sync": step_seconds_no_sync,
        "efficiency": step_seconds_no_sync / step_seconds,
        "images_per_second": options.batch_size * dist.get_world_size() / step_seconds,
        "step_seconds_p95": ranks.percentile(synchronised, 95),
        "steps": len(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32, help="images a rank and step")
    parser.add_argument("--bucket-cap-mb", type=float, default=25.0)
    parser.add_argument(
        "--blocks", type=int, default=4, help="blocks with and as many without synchronisation"
    )
    parser.add_argument("--steps", type=int, default=10, help="steps a block")
    parser.add_argument(
        "--warm-up", type=int, default=5, help="steps of each kind before the measured blocks"
    )
    options = parser.parse_args()
    with ranks.gloo_group():
        result = measure(options)
        if dist.get_rank() == 0:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
