#!/usr/bin/env python3
"""Draws the pictures of documents from the tables that stand in them, which other scripts have measured.

    python3 bench/pictures.py            # after bench/accuracy.py, bench/peers/run.py or bench/peers/compression.py
    python3 bench/pictures.py --check    # writes nothing; fails where a picture is not that of its table
"""

import argparse
import math
import re
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DRAWN = {
    "accuracy": DOCS / "accuracy.md",
    "compression": DOCS / "compression.md",
    "recovery": DOCS / "benchmarks.md",
    "speed": ROOT / "README.md",
}
"""Pictures, and the documents with their tables."""

WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 860, 410, 90, 56, 22, 40
SERIES = [("#2f81f7", "●"), ("#db6d28", "■")]
"""Color and mark of what is compared: it can be read without seeing colors."""
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.title { font-weight: 600; font-size: 13px; }
.grid { stroke: #8c959f; stroke-opacity: .3; }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4; } }
"""


@dataclass
class Row:
    """A line of a picture."""

    label: str
    points: list[tuple[int, float, float, float]]
    """Of a series: a value, and from where to where it was measured."""
    note: str = ""


@dataclass
class Picture:
    """Rows of marks over one axis."""

    title: str
    unit: str
    rows: list[Row]
    series: list[str] = field(default_factory=list)
    note: str = ""
    """What the notes at the end of the rows say."""
    is_log: bool = False


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    for name, document in DRAWN.items():
        text, file = svg(globals()[name](document.read_text())), DOCS / f"{name}.svg"
        if is_check and (not file.exists() or file.read_text() != text):
            stale.append(file.name)
        elif not is_check:
            file.write_text(text)
    if stale:
        print(f"error: {', '.join(stale)}: not of its table; run python3 bench/pictures.py", file=sys.stderr)
    return 1 if stale else 0


def accuracy(document: str) -> Picture:
    """Points of accuracy that each variant wins or loses, of the first table."""
    base, *variants = cells(document, "| `--optimizer")
    dense = numbers(base[1])[0]
    rows = []
    for name, shown, points, _, fewer in variants:
        _, low, high = numbers(shown)
        told = float(points)
        rows.append(Row(plain(name), [(0, told, low - dense, high - dense)], f"{fewer} ×"))
    title = "Test accuracy beside every gradient in every step: mean and range"
    return Picture(title, "points", rows, note="fewer bytes")


def compression(document: str) -> Picture:
    """A step's time with each reduction, at each rate."""
    head, *rows = cells(document, "| system | reduction |", with_head=True)
    at = [n for n, title in enumerate(head) if title.startswith("step at ")]
    drawn = []
    for row in rows:
        times = [(series, numbers(row[n])[0]) for series, n in enumerate(at) if n < len(row) and row[n]]
        points = [(series, time, time, time) for series, time in times]
        drawn.append(Row(f"{row[0]}: {plain(row[1])}", points))
    rates = [head[n].removeprefix("step at ") for n in at]
    title = "A training step of ResNet-18 on two workers"
    return Picture(title, "ms", drawn, series=rates, is_log=True)


def recovery(document: str) -> Picture:
    """Seconds from a killed worker to the next step: the median, and from there to the worst."""
    rows = []
    for system, shown, _, _, _, same, *_ in cells(document, "|  | next step |"):
        middle, *worst = numbers(shown)
        note = "as undisturbed" if same == "yes" else "others"
        rows.append(Row(system, [(0, middle, middle, worst[0] if worst else middle)], note))
    title = "From a killed worker to the next step: median, and to the worst"
    return Picture(title, "s", rows, note="weights", is_log=True)


def speed(document: str) -> Picture:
    """How many times as fast as the best of the others, of README's figures."""
    rows = []
    for title, _, _, ratio in cells(document, "|  | Kolo |"):
        times, low, high = numbers(ratio)
        rows.append(Row(title, [(0, times, low, high)]))
    title = "Speed beside the fastest of PyTorch DDP, Gloo, Open MPI and MPICH: median and range"
    return Picture(title, "×", rows)


def cells(document: str, first: str, with_head: bool = False) -> list[list[str]]:
    """The rows of the table whose head begins so."""
    lines = iter(document.splitlines())
    table = [next(line for line in lines if line.startswith(first))]
    for line in lines:
        if not line.startswith("|"):
            break
        table.append(line)
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table]
    return [rows[0], *rows[2:]] if with_head else rows[2:]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def plain(text: str) -> str:
    return text.replace("`", "")


def svg(picture: Picture) -> str:
    """The picture as SVG, written by hand, so that no plotting library is needed."""
    values = [value for row in picture.rows for point in row.points for value in point[1:]]
    place, ticks = axis(min(values), max(values), picture.is_log)
    bottom = TOP + ROW * len(picture.rows)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + BOTTOM}" role="img">'
    drawn = [head, f"<title>{escape(picture.title)}</title><style>{STYLE}</style>"]
    drawn.append(f'<text class="title" x="10" y="20">{escape(picture.title)}</text>')
    for number, name in enumerate(picture.series):
        color, mark = SERIES[number]
        words = f'<tspan style="fill:{color}">{mark}</tspan> {escape(name)}'
        drawn.append(f'<text x="{LEFT + 140 * number}" y="40">{words}</text>')
    if picture.note:
        drawn.append(f'<text x="{WIDTH - 10}" y="40" text-anchor="end">{escape(picture.note)}</text>')
    for tick in ticks:
        x = place(tick)
        drawn.append(f'<path class="grid" d="M{x:.1f} {TOP - 6}V{bottom}"/>')
        drawn.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    drawn.append(f'<text x="{WIDTH - RIGHT + 30}" y="{bottom + 18}">{escape(picture.unit)}</text>')
    for number, row in enumerate(picture.rows):
        drawn += line(row, TOP + ROW * number + ROW // 2, place)
    return "\n".join([*drawn, "</svg>", ""])


def line(row: Row, y: int, place) -> list[str]:
    """One row: its name, its marks with their ranges, its note."""
    drawn = [f'<text x="{LEFT - 20}" y="{y + 4}" text-anchor="end">{escape(row.label)}</text>']
    for series, value, low, high in row.points:
        color, mark = SERIES[series]
        if low < high:
            span = f"M{place(low):.1f} {y}H{place(high):.1f}"
            drawn.append(f'<path d="{span}" stroke="{color}" stroke-width="1.5"/>')
        where = f'x="{place(value):.1f}" y="{y + 4}" text-anchor="middle"'
        drawn.append(f'<text {where} style="fill:{color}">{mark}</text>')
    if row.note:
        drawn.append(f'<text x="{WIDTH - 10}" y="{y + 4}" text-anchor="end">{escape(row.note)}</text>')
    return drawn


def axis(low: float, high: float, is_log: bool):
    """Where a value lies, and at which values lines are drawn."""
    if is_log:
        steps = [factor * 10**power for power in range(-3, 7) for factor in (1, 2, 5)]
        first = max(step for step in steps if step <= low)
        last = min(step for step in steps if step >= high)
        ticks = [step for step in steps if first <= step <= last]
        scale = math.log
    else:
        first, last = math.floor(low), math.ceil(high)
        ticks = list(range(first, last + 1))
        scale = float
    span = scale(last) - scale(first)
    return lambda value: LEFT + (WIDTH - RIGHT - LEFT) * (scale(value) - scale(first)) / span, ticks


if __name__ == "__main__":
    sys.exit(main())
