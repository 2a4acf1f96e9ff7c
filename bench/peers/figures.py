"""Numbers as people read them, and what several rounds of one number are reduced to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

MIB = 1 << 20


@dataclass(frozen=True)
class Spread:
    """What the rounds' values are reduced to."""

    median: float
    low: float
    high: float

    def show(self, form: Callable[[float], str]) -> str:
        """The median, and the range where there is one, its unit left out where it is the median's."""
        middle, low, high = form(self.median), form(self.low), form(self.high)
        if low == high:
            return middle
        unit = middle.partition(" ")[2]
        if low.partition(" ")[2] == high.partition(" ")[2] == unit:
            low, high = low.partition(" ")[0], high.partition(" ")[0]
        return f"{middle} ({low}–{high})"


def spread(values: Iterable[float]) -> Spread:
    values = list(values)
    return Spread(median(values), min(values), max(values))


def pair_ratios(tops: dict[int, float], bottoms: dict[int, float]) -> Spread:
    """Each round's own quotient: a machine that is slower in one round is so for both of its halves."""
    return spread(tops[number] / bottoms[number] for number in tops.keys() & bottoms.keys())


def bus_bandwidth(size: int, seconds: float, nproc: int) -> float:
    """GB/s that each rank has to send at least, and as many to receive: 2(n-1)/n of the buffer."""
    return 2 * (nproc - 1) / nproc * size / seconds / 1e9


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, all but the first column to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows])


def duration(seconds: float) -> str:
    """Three digits in the unit that fits."""
    if seconds >= 0.1:
        return f"{three_digits(seconds)} s"
    if seconds >= 1e-3:
        return f"{three_digits(seconds * 1e3)} ms"
    return f"{three_digits(seconds * 1e6)} µs"


def three_digits(value: float) -> str:
    """At most three digits before or after the point, and no exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:#.3g}" if value >= 0.001 else "< 0.001"


def ratio(value: float) -> str:
    return f"{three_digits(value)} ×"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def byte_size(size: int) -> str:
    """Powers of two where they are whole, else decimal."""
    for unit, scale in (("MiB", MIB), ("KiB", 1 << 10)):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size / 1e6:.4g} MB" if size >= 1_000_000 else f"{size} B"
