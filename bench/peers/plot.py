"""The all-reduces as a picture: bus bandwidth by size, both in powers of ten, one panel for each setting.

Written as SVG by hand, so that no plotting library is needed. Colors are of middle lightness and each line
has a mark of its own: it can be read on white, on black, and without seeing colors.
"""

import math
from dataclasses import dataclass
from statistics import median

import tables
from figures import bus_bandwidth, byte_size
from measure import LINK
from results import Results
from settings import ALL_REDUCES, GBIT, Setting
from systems import GLOO, KOLO, KOLO_SLICES

WIDTH, HEIGHT = 400, 270
"""Of one panel with its labels."""
LEFT, RIGHT, TOP, BOTTOM = 72, 14, 34, 42
"""Around the area of a panel that lines are drawn in."""
LEGEND = 40
COLUMNS = 2

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.title { font-weight: 600; font-size: 13px; }
.grid { stroke: #8c959f; stroke-opacity: .3; }
.line { fill: none; stroke-width: 1.8; }
.link { stroke: #8c959f; stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4; } }
"""


@dataclass(frozen=True)
class Look:
    """A system's color, and its mark around (0, 0)."""

    color: str
    mark: str


LOOKS = {
    KOLO: Look("#e5534b", '<circle r="3.6"/>'),
    KOLO_SLICES: Look("#f0a35e", '<circle r="2.6"/>'),
    GLOO: Look("#3b82d6", '<rect x="-3" y="-3" width="6" height="6"/>'),
    "Open MPI": Look("#2f9e58", '<path d="M0-4.2 4 3-4 3z"/>'),
    "MPICH": Look("#b07cd8", '<path d="M0-4.4 4.4 0 0 4.4-4.4 0z"/>'),
}


@dataclass(frozen=True)
class Axis:
    """Powers of ten from `low` to `high` onto `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        part = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return self.start + part * (self.end - self.start)


Lines = dict[str, list[tuple[int, float]]]
"""By system: size and GB/s, the median over the rounds."""


def svg(results: Results) -> str | None:
    """The picture, None where no all-reduce was measured."""
    panels = [(setting, lines(results, setting)) for setting in ALL_REDUCES if tables.sizes(results, setting)]
    if not panels:
        return None
    width, rows = COLUMNS * WIDTH, math.ceil(len(panels) / COLUMNS)
    height = LEGEND + rows * HEIGHT
    drawn = [legend(list(dict.fromkeys(name for _, each in panels for name in each)))]
    for index, (setting, each) in enumerate(panels):
        row, column = divmod(index, COLUMNS)
        drawn.append(f'<g transform="translate({column * WIDTH} {LEGEND + row * HEIGHT})">')
        drawn += [*panel(setting, each, ceiling(results, setting)), "</g>"]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    )
    title = "<title>All-reduce: bus bandwidth by size</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *drawn, "</svg>"]) + "\n"


def lines(results: Results, setting: Setting) -> Lines:
    """Every system's line in one setting."""
    found: Lines = {}
    for name in results.systems(setting.key):
        for size in tables.sizes(results, setting) if name != LINK else []:
            if times := tables.seconds(results, setting, name, size):
                value = bus_bandwidth(size, median(times.values()), setting.nproc)
                found.setdefault(name, []).append((size, value))
    return found


def ceiling(results: Results, setting: Setting) -> float | None:
    """GB/s of payload that the link carries."""
    return tables.link_rates(results, setting)[0].median / GBIT if setting.rate else None


def legend(names: list[str]) -> str:
    """Above all panels, which share their looks."""
    entries = [
        f'<g transform="translate({LEFT + 110 * index} 20)">{_stroke(name, "M-12 0H12")}'
        f'{_mark(name, 0, 0)}<text x="18" y="4">{name}</text></g>'
        for index, name in enumerate(names)
    ]
    says = "bus bandwidth by size, medians"
    entries.append(f'<text x="{COLUMNS * WIDTH - RIGHT}" y="24" text-anchor="end">{says}</text>')
    return "".join(entries)


def panel(setting: Setting, systems: Lines, link: float | None) -> list[str]:
    """One setting: grid, the link's rate where there is one, lines."""
    across, up = axes(systems, link)
    drawn = [f'<text class="title" x="{LEFT}" y="{TOP - 14}">{setting.title}</text>', *grid(across, up)]
    if link:
        y = up.place(link)
        drawn.append(f'<path class="link" d="M{across.start} {y:.1f}H{across.end}"/>')
        drawn.append(f'<text x="{across.start + 6}" y="{y - 5:.1f}">the link</text>')
    # Kolo last: where lines cross, its own stays on top.
    for name in sorted(systems, key=lambda name: name == KOLO):
        points = [(across.place(size), up.place(value)) for size, value in systems[name]]
        drawn.append(_stroke(name, "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)))
        drawn += [_mark(name, x, y) for x, y in points]
    return drawn


def axes(systems: Lines, link: float | None) -> tuple[Axis, Axis]:
    """From the smallest to the largest size, and over whole powers of ten."""
    all_sizes = [size for line in systems.values() for size, _ in line]
    values = [value for line in systems.values() for _, value in line] + ([link] if link else [])
    low, high = min(all_sizes), max(all_sizes)
    bottom, top = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    across = Axis(low, high if high > low else 10 * low, LEFT, WIDTH - RIGHT)
    return across, Axis(10.0**bottom, 10.0 ** max(top, bottom + 1), HEIGHT - BOTTOM, TOP)


def grid(across: Axis, up: Axis) -> list[str]:
    """A line and a label for each power of ten of bandwidth, and for some sizes."""
    drawn = []
    exponents = range(round(math.log10(up.low)), round(math.log10(up.high)) + 1)
    for exponent in exponents:
        y = up.place(10.0**exponent)
        drawn.append(f'<path class="grid" d="M{across.start} {y:.1f}H{across.end}"/>')
        drawn.append(
            f'<text x="{across.start - 6}" y="{y + 4:.1f}" text-anchor="end">{rate(exponent)}</text>'
        )
    for size in (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20):
        if across.low <= size <= across.high:
            x = across.place(size)
            drawn.append(f'<path class="grid" d="M{x:.1f} {up.start}V{up.end}"/>')
            drawn.append(
                f'<text x="{x:.1f}" y="{up.start + 16}" text-anchor="middle">{byte_size(size)}</text>'
            )
    return drawn


def rate(exponent: int) -> str:
    """10 to the power of `exponent` GB/s, in the unit that leaves no fraction."""
    units = ("B/s", "KB/s", "MB/s", "GB/s", "TB/s")
    thousands, ones = divmod(exponent + 9, 3)
    return f"{10**ones} {units[thousands]}"


def _stroke(name: str, path: str) -> str:
    return f'<path class="line" stroke="{LOOKS[name].color}" d="{path}"/>'


def _mark(name: str, x: float, y: float) -> str:
    return f'<g fill="{LOOKS[name].color}" transform="translate({x:.1f} {y:.1f})">{LOOKS[name].mark}</g>'
