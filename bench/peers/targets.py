"""What is aimed at in each table: shown beside the results, never enforced."""

import operator
from collections.abc import Callable
from dataclasses import dataclass

from figures import MIB
from settings import GBIT, Setting

NO_TARGET = ["", ""]


@dataclass(frozen=True)
class Target:
    """A bound in words and as a number; `holds` compares a value with it."""

    text: str
    bound: float
    holds: Callable[[float, float], bool] = operator.ge

    def cells(self, value: float | None) -> list[str]:
        """The target, and whether a value meets it; without a value there is nothing to judge."""
        if value is None:
            return [self.text, ""]
        return [self.text, "met" if self.holds(value, self.bound) else "missed"]


IMAGES = Target("≥ 1.5 × PyTorch's best", 1.5)
ALONE = Target("≥ 1.3 × PyTorch's best", 1.3)
EFFICIENCY = Target("Kolo ≥ 95 %", 0.95)
LINK_STEP = Target("Kolo ≤ 1.08", 1.08, operator.le)
LINK_SHARE = Target("≥ 97 % of the link", 0.97)
LINK_SHARE_FROM = 4_000_000
GLOO = Target("≥ 2 × Gloo", 2.0)
SLICES = Target("≥ 2 × the best", 2.0)
SLICES_FROM = MIB
CROWDED_TCP = Target("≥ 1.3 × the best", 1.3)


def best_peer(size: int) -> Target:
    """For shared memory: how many times faster than the fastest of the others."""
    least = 3 if size >= 16 * MIB else 2 if size >= MIB else 1
    return Target(f"≥ {least} × the best", least)


def all_reduce_cells(
    setting: Setting, size: int, over_best: float | None, over_gloo: float | None
) -> list[str]:
    """The target of one all-reduce on one machine."""
    if setting.transport == "shm":
        return best_peer(size).cells(over_best)
    crowded = setting.nproc > 2 and size >= MIB
    return CROWDED_TCP.cells(over_best) if crowded else GLOO.cells(over_gloo)


def slices_cells(setting: Setting, size: int, over_best: float | None) -> list[str]:
    """The target of Kolo in memory of the program's own, where copies have to be hidden."""
    if setting.transport != "shm" or size < SLICES_FROM:
        return NO_TARGET
    return SLICES.cells(over_best)


def link_cells(setting: Setting, size: int, share: float, over_gloo: float | None) -> list[str]:
    """The target over a link: to fill it. On a fast one the CPU counts for what is shorter."""
    if size >= LINK_SHARE_FROM:
        return LINK_SHARE.cells(share)
    return NO_TARGET if setting.rate == GBIT else GLOO.cells(over_gloo)
