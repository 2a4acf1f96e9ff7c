"""The training step of both sides, and how each is called: ResNet-18, with Kolo and with PyTorch DDP.

DDP is measured as it comes, and as its best users have it: the fastest of some settings, tried before the
clock runs (CANDIDATES in ddp_step.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from processes import Command
from systems import KOLO, Job, Programs, gloo_ranks, kolo_ranks


@dataclass(frozen=True)
class Blocks:
    """How long a side trains: pairs of blocks with and without synchronization, and steps in each."""

    blocks: int
    steps: int
    warm_up: int


@dataclass(frozen=True)
class Extent:
    """The batch of one rank, and how long each side trains; Kolo warms up by two pairs of blocks always."""

    batch_size: int
    kolo: Blocks
    ddp: Blocks


FULL = Extent(32, Blocks(5, 8, 2), Blocks(4, 10, 5))
SMOKE = Extent(32, Blocks(1, 1, 2), Blocks(1, 2, 1))


def kolo_step(programs: Programs, job: Job, extent: Extent) -> list[Command]:
    options = ["--batch-size", str(extent.batch_size), "--nproc", str(job.setting.nproc)]
    options += ["--blocks", str(extent.kolo.blocks), "--steps", str(extent.kolo.steps), "--json"]
    return kolo_ranks(programs, job, ["bench", "step", "--model", "resnet18", *options])


def ddp_step(programs: Programs, job: Job, extent: Extent, *options: str) -> list[Command]:
    arguments = ["--batch-size", str(extent.batch_size), *options]
    arguments += ["--blocks", str(extent.ddp.blocks), "--steps", str(extent.ddp.steps)]
    arguments += ["--warm-up", str(extent.ddp.warm_up)]
    return gloo_ranks(programs, job, "ddp_step.py", arguments)


@dataclass(frozen=True)
class Training:
    """One side."""

    name: str
    program: Callable[[Programs], str | None]
    step: Callable[[Programs, Job, Extent], list[Command]]


DDP = "PyTorch DDP"
DDP_BEST = "PyTorch DDP at its best"
TRAININGS = (
    Training(KOLO, lambda programs: programs.kolo, kolo_step),
    Training(DDP, lambda programs: programs.python, ddp_step),
    Training(
        DDP_BEST, lambda programs: programs.python, lambda p, job, extent: ddp_step(p, job, extent, "--best")
    ),
)
