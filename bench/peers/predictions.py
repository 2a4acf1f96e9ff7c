#!/usr/bin/env python3
"""Measures every all-reduce algorithm of Kolo over TCP and shows beside it what its cost model predicts.

Writes the part "predictions" of docs/benchmarks.md. The model's figures are those that the group measures when it forms, in
some milliseconds before the first sample: nothing is fitted to what is predicted.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

import arguments
import namespaces
import parts
import programs
from figures import byte_size, duration
from measure import place_of
from processes import run_together
from settings import ALL_REDUCES, Setting
from systems import Job, Programs, kolo_ranks

PART = "predictions"
SIZES = [1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20, 46_758_048, 100_000_000]
SECONDS = 0.3
TIMEOUT = 900.0

Row = dict
"""One size by one algorithm, as `kolo bench` tells it."""


def main() -> int:
    options = parse()

    def text() -> str:
        ready = Programs(programs.kolo(options.kolo), python=None, open_mpi=None, mpich=None)
        found = {setting.title: rows for setting in settings() if (rows := measured(ready, setting, options))}
        return section(found, f"`{parts.command('predictions.py')}`")

    return parts.write(PART, options.docs, text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kolo", type=Path, help="measure this program (default: build target/release/kolo)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for each row (default: %(default)s)")
    parser.add_argument("--docs", type=Path, default=arguments.DOCS, help="file to write")
    return parser.parse_args()


def settings() -> list[Setting]:
    """Those over TCP, as in the comparison with the peers."""
    return [setting for setting in ALL_REDUCES if setting.transport == "tcp"]


def measured(ready: Programs, setting: Setting, options: argparse.Namespace) -> list[Row]:
    """Every algorithm at every size; nothing where the link cannot be made."""
    if setting.rate and (reason := namespaces.obstacle()):
        print(f"warning: {setting.title} is left out: {reason}", file=sys.stderr)
        return []
    sizes = ["--sizes", ",".join(map(str, SIZES)), "--seconds", f"{options.seconds:g}"]
    words = ["bench", "all-reduce", "--nproc", str(setting.nproc), "--algorithm", "all", "--json", *sizes]
    with tempfile.TemporaryDirectory(prefix="kolo-peers-") as folder, place_of(setting) as place:
        job = Job(setting, place, Path(folder), SIZES, options.seconds)
        output = run_together(kolo_ranks(ready, job, words), TIMEOUT)[0]
    return json.loads(output)["rows"]


def errors(rows: list[Row]) -> list[float]:
    """How far each prediction is off, relative to what was measured."""
    return [abs(row["predicted_us"] / row["p50_us"] - 1) for row in rows if "predicted_us" in row]


def section(found: dict[str, list[Row]], called: str) -> str:
    """A table of medians, and one of every prediction for each setting."""
    lines = [
        "## Predicted and measured",
        "",
        "Every all-reduce algorithm over TCP, 1 KiB to 100 MB: what the cost model says, and the p50 of what it takes.",
        "The model knows what the group measured when it formed; nothing is fitted to these figures.",
        f"Command: {called}.",
        "",
        "| setting | predictions off by, median | |",
        "| --- | ---: | --- |",
    ]
    for title, rows in found.items():
        off = median(errors(rows))
        lines.append(f"| {title} | {off:.1%} | target below 15 %: {'met' if off < 0.15 else 'missed'} |")
    for title, rows in found.items():
        lines += ["", f"### {title}", "", *table(rows)]
    return "\n".join(lines)


def table(rows: list[Row]) -> list[str]:
    """One line for each algorithm, one column for each size: predicted / measured."""
    sizes = list(dict.fromkeys(row["bytes"] for row in rows))
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    cells = {(row["algorithm"], row["bytes"]): row for row in rows}
    head = " | ".join(["predicted / measured", *map(byte_size, sizes)])
    lines = [f"| {head} |", "| --- |" + " ---: |" * len(sizes)]
    for name in names:
        row = [cell(cells.get((name, size))) for size in sizes]
        lines.append("| " + " | ".join([name, *row]) + " |")
    return lines


def cell(row: Row | None) -> str:
    if row is None or "predicted_us" not in row:
        return "–"
    return f"{duration(row['predicted_us'] / 1e6)} / {duration(row['p50_us'] / 1e6)}"


if __name__ == "__main__":
    sys.exit(main())
