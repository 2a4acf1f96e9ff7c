"""The training step of both sides, and how each is called: ResNet-18, with Kolo and with PyTorch DDP.

DDP's time over a slow link depends on the size of its buckets, so it is measured with small ones as well.
"""

from collections.abc import Callable
from dataclasses import dataclass

from processes import Command
from settings import Setting
from systems import KOLO, Job, Programs, gloo_ranks, kolo_ranks


@dataclass(frozen=True)
class Blocks:
    """How long a side trains: pairs of blocks with and without synchronisation, and steps in each."""

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


def ddp_step(programs: Programs, job: Job, extent: Extent, bucket_cap_mb: int) -> list[Command]:
    arguments = ["--batch-size", str(extent.batch_size), "--bucket-cap-mb", str(bucket_cap_mb)]
    arguments += ["--blocks", str(extent.ddp.blocks), "--steps", str(extent.ddp.steps)]
    arguments += ["--warm-up", str(extent.ddp.warm_up)]
    return gloo_ranks(programs, job, "ddp_step.py", arguments)


@dataclass(frozen=True)
class Training:
    """One side; `everywhere` if it is measured on one machine too, not only over the link."""

    name: str
    everywhere: bool
    program: Callable[[Programs], str | None]
    step: Callable[[Programs, Job, Extent], list[Command]]

    def takes_part(self, setting: Setting) -> bool:
        return self.everywhere or setting.rate is not None


DDP = "PyTorch DDP"
DDP_SMALL = "PyTorch DDP, 1 MB"
TRAININGS = (
    Training(KOLO, True, lambda programs: programs.kolo, kolo_step),
    Training(
        DDP, True, lambda programs: programs.python, lambda p, job, extent: ddp_step(p, job, extent, 25)
    ),
    Training(
        DDP_SMALL, False, lambda programs: programs.python, lambda p, job, extent: ddp_step(p, job, extent, 1)
    ),
)
