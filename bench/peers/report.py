"""From the rounds' numbers to the tables of docs/benchmarks.md. Nothing here measures or runs anything."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from processes import BenchError

BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
MIB = 1 << 20


@dataclass(frozen=True)
class Round:
    """One pass over both sides, measured one right after the other."""

    kolo_step: dict
    peer_step: dict
    kolo_all_reduce: dict[int, dict]
    peer_all_reduce: dict[int, dict]


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


@dataclass(frozen=True)
class Target:
    """What is aimed at: shown beside the result, never enforced."""

    text: str
    least: float

    def cells(self, value: float) -> list[str]:
        return [self.text, "met" if value >= self.least else "missed"]


IMAGES_TARGET = Target("≥ 0.8 × PyTorch", 0.8)
EFFICIENCY_TARGET = Target("Kolo ≥ 95 %", 0.95)
ALL_REDUCE_TARGET = Target("≥ 4 ×", 4.0)
ALL_REDUCE_TARGET_FROM = MIB
NO_TARGET = ["", ""]


def spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def pair_ratios(tops: list[float], bottoms: list[float]) -> Spread:
    """Each round's own quotient: a machine that is slower in one round is so for both of its halves."""
    return spread([top / bottom for top, bottom in zip(tops, bottoms, strict=True)])


def step_table(rounds: list[Round]) -> str:
    """The training step of both sides, with Kolo's part in PyTorch's images a second."""

    def values(field: str) -> tuple[list[float], list[float]]:
        return [each.kolo_step[field] for each in rounds], [each.peer_step[field] for each in rounds]

    def row(title: str, field: str, form: Callable[[float], str]) -> list[str]:
        kolo, peer = values(field)
        return [title, spread(kolo).show(form), spread(peer).show(form), pair_ratios(kolo, peer).show(ratio)]

    images, efficiency = pair_ratios(*values("images_per_second")), spread(values("efficiency")[0])
    rows = [
        row("images a second", "images_per_second", lambda value: f"{value:.1f}")
        + IMAGES_TARGET.cells(images.median),
        row("scaling efficiency", "efficiency", lambda value: f"{100 * value:.1f} %")
        + EFFICIENCY_TARGET.cells(efficiency.median),
        row("step, synchronised", "step_seconds", duration) + NO_TARGET,
        row("step, not synchronised", "step_seconds_no_sync", duration) + NO_TARGET,
    ]
    return table(["", "Kolo", "PyTorch DDP, Gloo", "Kolo / PyTorch", "target", ""], rows)


def all_reduce_table(rounds: list[Round], nproc: int) -> str:
    """The all-reduce of both sides by size, with how many times faster Kolo's is."""
    rows = []
    for size in rounds[0].kolo_all_reduce:
        kolo = [each.kolo_all_reduce[size] for each in rounds]
        peer = [each.peer_all_reduce[size] for each in rounds]
        faster = pair_ratios([record["p50_us"] for record in peer], [record["p50_us"] for record in kolo])
        target = ALL_REDUCE_TARGET.cells(faster.median) if size >= ALL_REDUCE_TARGET_FROM else NO_TARGET
        cells = _all_reduce_cells(kolo, size, nproc) + _all_reduce_cells(peer, size, nproc)
        rows.append([byte_size(size), *cells, faster.show(ratio), *target])
    head = ["size", *[f"{side} {what}" for side in ("Kolo", "Gloo") for what in ("p50", "p99", "GB/s")]]
    return table([*head, "Gloo / Kolo time", "target", ""], rows)


def _all_reduce_cells(records: list[dict], size: int, nproc: int) -> list[str]:
    """p50 with its range, the median round's p99, and the bus bandwidth at the p50."""
    p50 = spread([record["p50_us"] / 1e6 for record in records])
    p99 = [record["p99_us"] / 1e6 for record in records if "p99_us" in record]
    bandwidth = three_digits(bus_bandwidth(size, p50.median, nproc))
    return [p50.show(duration), duration(median(p99)) if p99 else "", bandwidth]


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


def byte_size(size: int) -> str:
    """Powers of two where they are whole, else decimal."""
    for unit, scale in (("MiB", MIB), ("KiB", 1 << 10)):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size / 1e6:.4g} MB" if size >= 1_000_000 else f"{size} B"


def splice(document: str, section: str) -> str:
    """`document` with `section` between the markers, appended where it has none; the rest is kept."""
    generated = f"{BEGIN}\n\n{section.strip()}\n\n{END}"
    counts = (document.count(BEGIN), document.count(END))
    if counts == (0, 0):
        return (document.rstrip() + "\n\n" if document.strip() else "# Benchmarks\n\n") + generated + "\n"
    before, _, rest = document.partition(BEGIN)
    if counts != (1, 1) or END not in rest:
        raise BenchError(
            f"expected one {BEGIN} and after it one {END}, found {counts[0]} and {counts[1]}: mend them"
        )
    return before + generated + rest.partition(END)[2]
