#!/usr/bin/env python3
"""How runs of `kolo chaos` have ended and recovered: puts together what several have written with --json,
which may have run at the same time with other seeds.

    kolo chaos --seeds 250 --json > a.json & kolo chaos --seeds 250 --seed 250 --json > b.json
    python3 bench/recoveries.py "shared memory: a.json b.json" "TCP: c.json d.json"
"""

import argparse
import json
import sys
from pathlib import Path

FAULTS = {
    "kill": "`kill -9`",
    "stop": "SIGSTOP for good, of which 5 s are waited on purpose",
    "cut": "connections cut, where that ended a generation",
    "leave": "SIGTERM",
    "link": "a link that was cut for long",
}


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("column", nargs="+", help="a title, a colon, and files; they stand in a column")
    columns = {}
    for column in parser.parse_args().column:
        title, _, files = column.partition(":")
        runs = [run for file in files.split() for run in json.loads(Path(file).read_text())["runs"]]
        if len({run["seed"] for run in runs}) < len(runs):
            print(f"error: {title}: a seed is in two files", file=sys.stderr)
            return 2
        columns[title] = runs
    for title, runs in columns.items():
        bad = [run["seed"] for run in runs if run["verdict"] != "same"]
        faults = sum(fault["missed"] is None for run in runs for fault in run["hits"])
        counts = f"{len(runs)} seeds, {faults} faults, {len(bad)} runs not in the same bits"
        print(f"{title}: {counts} {bad or ''}".rstrip())
    print("\n| | " + " | ".join(f"{title}: p50 / p95 / most" for title in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for name, words in FAULTS.items():
        cells = [cell(runs, name) for runs in columns.values()]
        if any(cells):
            print(f"| {words} | " + " | ".join(cell or "–" for cell in cells) + " |")
    return 0


def cell(runs: list[dict], name: str) -> str | None:
    """Seconds from a fault to the next step done, and how often that was measured."""
    faults = (fault for run in runs for fault in run["hits"] if kind(fault["fault"]) == name)
    # The word "job-ended" is for faults after which the job was ended before a next step.
    ends = (fault["recovery"] for fault in faults)
    times = sorted(end["seconds"] for end in ends if isinstance(end, dict))
    if not times:
        return None
    p50, p95 = (times[min(len(times) * p // 100, len(times) - 1)] for p in (50, 95))
    return f"{p50:.2f} / {p95:.1f} / {times[-1]:.1f} ({len(times)} times)"


def kind(fault: str | dict) -> str:
    """The name of a fault, which may have a value."""
    return fault if isinstance(fault, str) else next(iter(fault))


if __name__ == "__main__":
    sys.exit(main())
