#!/usr/bin/env python3
"""What a worker costs that is three times slower than three others: seconds of training until a test
accuracy, by how workers synchronize.

    cargo build --release && python3 bench/stragglers.py [--write]

Each worker sleeps for each of its shards (`kolo train --slow`), so that four workers have what four
processors would give them also where there are two. With --write the table takes its place in
docs/stragglers.md.
"""

import argparse
import csv
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from trainings import ROOT, write_between

DOC = ROOT / "docs" / "stragglers.md"
BEGIN, END = "<!-- bench/stragglers.py -->", "<!-- /bench/stragglers.py -->"

WORKERS = 4
TRAINING = "--shards 12 --batch-size 16 --epochs 12"
FAST, SLOW = 10, 35
"""Milliseconds of sleep for each shard; its computation takes about 3."""

VARIANTS = [
    "",
    "--straggler rebalance",
    "--sync delayed:1",
    "--sync local:H=8",
    "--sync local:H=8 --islands 4",
    "--sync stale:3 --servers 1",
]


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--accuracy", type=float, default=88, help="in per cent")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--write", action="store_true", help=f"into {DOC.relative_to(ROOT)}")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    found = {}
    with tempfile.TemporaryDirectory(prefix="kolo-stragglers-") as scratch:
        try:
            # In turn, so that what else the machine does meets all of them.
            for seed in seeds:
                for more in VARIANTS:
                    out = Path(scratch) / f"{seed}-{VARIANTS.index(more)}"
                    found.setdefault(more, []).append(trained(options, more, seed, out))
        except subprocess.CalledProcessError as error:
            print(f"error: {shlex.join(error.cmd)}\n{error.stderr}", file=sys.stderr)
            return 1
    text = table(options, found)
    print(text)
    if options.write:
        write_between(DOC, BEGIN, END, text)
    return 0


def trained(options: argparse.Namespace, more: str, seed: int, out: Path) -> dict:
    """One training: milliseconds of a step, seconds until the accuracy (None: never), and the last one."""
    words = ["train", "--nproc", str(WORKERS), *shlex.split(TRAINING), "--seed", str(seed)]
    for rank in range(WORKERS):
        words += ["--slow", f"{rank}:compute:{SLOW if rank == WORKERS - 1 else FAST}"]
    words += [*shlex.split(more), "--out", str(out)]
    subprocess.run([str(options.kolo), *words], check=True, capture_output=True, text=True)
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    epochs = list(csv.DictReader((out / "metrics.csv").open(newline="")))
    accuracies = [100 * float(epoch["test_accuracy"]) for epoch in epochs]
    reached = next((n for n, accuracy in enumerate(accuracies) if accuracy >= options.accuracy), None)
    seconds = [sum(step["seconds"] for step in steps if step["epoch"] <= epoch) for epoch in range(len(epochs))]
    result = {
        "step": 1000 * seconds[-1] / len(steps),
        "until": None if reached is None else seconds[reached],
        "accuracy": accuracies[-1],
    }
    print(f"seed {seed} {more or 'every step'}: {result}", file=sys.stderr)
    return result


def table(options: argparse.Namespace, found: dict[str, list[dict]]) -> str:
    seeds = len(next(iter(found.values())))
    lines = [
        f"`python3 bench/stragglers.py --seeds {options.seeds}`: `kolo train --nproc {WORKERS} {TRAINING}` on the small Fashion-MNIST, one"
        f" of {WORKERS} workers three times slower than the others; mean and range of {seeds} seeds.",
        "",
        f"| | step, ms | seconds until {options.accuracy:g} % | accuracy at the end, % |",
        "|---|---:|---:|---:|",
    ]
    for more, rows in found.items():
        until = [row["until"] for row in rows]
        late = until.count(None)
        reached = [seconds for seconds in until if seconds is not None]
        told = ranged(reached) if reached else "never"
        told += f", {late} of {seeds} never" if late and reached else ""
        step, accuracy = (ranged([row[key] for row in rows]) for key in ("step", "accuracy"))
        lines.append(f"| {f'`{more}`' if more else 'every step'} | {step} | {told} | {accuracy} |")
    return "\n".join(lines)


def ranged(values: list[float]) -> str:
    mean = f"{statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f}–{max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
