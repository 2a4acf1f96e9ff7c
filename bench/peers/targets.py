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


IMAGES = Target("≥ 0.8 × PyTorch", 0.8)
EFFICIENCY = Target("Kolo ≥ 95 %", 0.95)
LINK_STEP = Target("Kolo ≤ 1.10", 1.10, operator.le)
LINK_SHARE = Target("≥ 97 % of the link", 0.97)
LINK_SHARE_FROM = 4_000_000
GLOO = Target("≥ 2 × Gloo", 2.0)


def best_peer(size: int) -> Target:
    """For shared memory: how many times faster than the fastest of the others."""
    least = 3 if size >= 16 * MIB else 2 if size >= MIB else 1
    return Target(f"≥ {least} × the best", least)


def all_reduce_cells(
    setting: Setting, size: int, over_best: float | None, over_gloo: float | None
) -> list[str]:
    """The target of one all-reduce on one machine."""
    return best_peer(size).cells(over_best) if setting.transport == "shm" else GLOO.cells(over_gloo)


def link_cells(setting: Setting, size: int, share: float, over_gloo: float | None) -> list[str]:
    """The target over a link: a slow one is to be filled, on a fast one the CPU counts too."""
    if setting.rate != GBIT:
        return GLOO.cells(over_gloo)
    return LINK_SHARE.cells(share) if size >= LINK_SHARE_FROM else NO_TARGET
