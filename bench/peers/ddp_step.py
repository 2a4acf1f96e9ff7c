"""One rank that trains ResNet-18 with PyTorch: step time under DDP over Gloo, and of the plain module.

Both are trained by the same processes in alternating blocks, so both see the same machine and the same
neighbor on the other core; their quotient is DDP's efficiency. With `--best` a short block of each of
CANDIDATES comes first, and the fastest is measured. Rank 0 prints one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import ranks
from resnet18 import ResNet18, parameter_count

CLASSES = 10
HOOKS = ("none", "fp16", "bf16", "powersgd")
PARAMETERS = 11_181_642
POOL = 4
"""Batches made before the clock runs and used in turn."""


@dataclass(frozen=True)
class Settings:
    """How PyTorch is used. `tuned`: AdamW as one fused loop, gradients that are views of their buckets, and a
    graph that DDP may take for the same in every step."""

    bucket_cap_mb: float
    tuned: bool = False
    channels_last: bool = False

    def __str__(self) -> str:
        words = ["fused AdamW", "bucket views", "static graph"] if self.tuned else ["defaults"]
        words += ["channels_last"] if self.channels_last else []
        return ", ".join([*words, f"buckets of {self.bucket_cap_mb:g} MB"])


CANDIDATES = [
    Settings(25),
    *[Settings(cap, True, channels_last) for cap in (1, 5, 25) for channels_last in (False, True)],
]
"""What its best users choose between. The first is what one gets without asking."""
TRIAL_STEPS = 8


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


def trainer(
    model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], settings: Settings
) -> Callable[[int], None]:
    """A function that does whole step number i: clear, forward, backward (DDP reduces here), AdamW."""
    fused = True if settings.tuned else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4, fused=fused)

    def step(number: int) -> None:
        images, labels = batches[number % len(batches)]
        if settings.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
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


def network(settings: Settings) -> nn.Module:
    torch.manual_seed(7)
    model = ResNet18(CLASSES)
    assert parameter_count(model) == PARAMETERS, parameter_count(model)
    return model.to(memory_format=torch.channels_last) if settings.channels_last else model


def replicated(settings: Settings, hook: str = "none") -> nn.Module:
    model = DistributedDataParallel(
        network(settings),
        bucket_cap_mb=settings.bucket_cap_mb,
        gradient_as_bucket_view=settings.tuned,
        static_graph=settings.tuned,
    )
    match hook:
        case "none":
            pass
        case "fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        case "bf16":
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        case "powersgd":
            # Its earliest step: it needs the buckets that DDP lays after the first one.
            state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook)
    return model


def fastest(batches: list[tuple[torch.Tensor, torch.Tensor]], warm_up: int) -> Settings:
    """The candidate with the shortest median step; all ranks see the same times."""

    def trial(settings: Settings) -> float:
        ddp = trainer(replicated(settings), batches, settings)
        run_block(ddp, warm_up)
        return ranks.percentile(ranks.slowest_rank(run_block(ddp, TRIAL_STEPS)), 50)

    return min(CANDIDATES, key=trial)


def measure(options: argparse.Namespace) -> dict:
    """Alternates blocks with and without synchronization and reduces their times to the reported numbers."""
    batches = make_batches(options.batch_size)
    settings = Settings(options.bucket_cap_mb, options.tuned)
    if options.best:
        settings = fastest(batches, options.warm_up)
    without = trainer(network(settings), batches, settings)
    ddp = trainer(replicated(settings, options.hook), batches, settings)

    # DDP lays its buckets anew after the first step; both sides allocate what they keep.
    run_block(without, options.warm_up)
    run_block(ddp, options.warm_up)
    seconds, seconds_no_sync = [], []
    for _ in range(options.blocks):
        seconds_no_sync += run_block(without, options.steps)
        seconds += run_block(ddp, options.steps)

    synchronized, alone = ranks.slowest_rank(seconds), ranks.slowest_rank(seconds_no_sync)
    step_seconds, step_seconds_no_sync = ranks.percentile(synchronized, 50), ranks.percentile(alone, 50)
    return {
        "step_seconds": step_seconds,
        "step_seconds_no_sync": step_seconds_no_sync,
        "efficiency": step_seconds_no_sync / step_seconds,
        "images_per_second": options.batch_size * dist.get_world_size() / step_seconds,
        "step_seconds_p95": ranks.percentile(synchronized, 95),
        "steps": len(seconds),
        "settings": str(settings),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32, help="images a rank and step")
    parser.add_argument("--bucket-cap-mb", type=float, default=25.0)
    parser.add_argument("--best", action="store_true", help="with the fastest of some settings")
    parser.add_argument("--tuned", action="store_true", help="fused AdamW, bucket views, static graph")
    parser.add_argument("--hook", choices=HOOKS, default="none", help="how gradients are compressed")
    parser.add_argument(
        "--blocks", type=int, default=4, help="blocks with and as many without synchronization"
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
