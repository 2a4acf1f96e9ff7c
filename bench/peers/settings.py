"""What is measured: all-reduces in six settings, and the training step in three.

A setting is where the ranks run and what carries their bytes. Everything else (programs, tables, plot) goes
by this table: a further setting is one line here.
"""

from dataclasses import dataclass

GBIT = 1_000_000_000
PARTS = ("shm", "tcp", "link", "step")
"""What `--only` can name."""


@dataclass(frozen=True)
class Setting:
    """`rate`: bits a second of the link between the ranks' network namespaces; None on one machine."""

    key: str
    part: str
    title: str
    transport: str
    nproc: int
    rate: int | None = None


ALL_REDUCES = (
    Setting("shm-2", "shm", "Shared memory, 2 ranks", "shm", 2),
    Setting("shm-4", "shm", "Shared memory, 4 ranks", "shm", 4),
    Setting("tcp-2", "tcp", "TCP on loopback, 2 ranks", "tcp", 2),
    Setting("tcp-4", "tcp", "TCP on loopback, 4 ranks", "tcp", 4),
    Setting("link-1", "link", "1 Gbit/s between 2 ranks", "tcp", 2, GBIT),
    Setting("link-10", "link", "10 Gbit/s between 2 ranks", "tcp", 2, 10 * GBIT),
)
STEPS = (
    Setting("step", "step", "Training step", "shm", 2),
    Setting("step-1", "step", "Training step over 1 Gbit/s", "tcp", 2, GBIT),
    Setting("step-alone", "step", "One worker alone", "shm", 1),
)

SIZES = [
    4,
    1 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    46_758_048,
    100_000_000,
]
"""The ninth are the gradients of ResNet-18 with 1000 classes."""
SMOKE_SIZES = [4, 64 << 10, 1 << 20, 4 << 20]
STEP_BYTES = 4 * 11_181_642
"""The gradients of ResNet-18 with the 10 classes that the training step has."""
