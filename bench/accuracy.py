#!/usr/bin/env python3
"""Test accuracy of a network trained with fewer bytes, lower precision or rarer synchronization, beside that
of the same training without: each as often as there are seeds.

    cargo build --release && python3 bench/accuracy.py [--write]

Runs that are in --results already are not made again, so what was cut off goes on; bench/accuracy.jsonl has
those that docs/accuracy.md shows. With --write the tables take their place there, with --known without the
rows of which runs are missing.
"""

import argparse
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from trainings import ROOT, Trainings, add_options, shown, write_between

DOC = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- bench/accuracy.py -->", "<!-- /bench/accuracy.py -->"

SGD = "--optimizer sgd --lr 0.1"
ADAM = "--optimizer adam --lr 0.002 --weight-decay 0"
ADAMW = "--optimizer adamw --lr 0.002 --weight-decay 0.01"
WHOLE = {"sgd": SGD, "adam": ADAM, "adamw": ADAMW}
"""The trainings without: every gradient whole, in f32, in every step."""

ROWS = {
    "sgd": [
        "--precision bf16",
        "--precision f16",
        "--reduction bf16",
        "--reduction f16",
        "--reduction qsgd:bits=4,block=512",
        "--reduction ef-sign",
        "--reduction top-k:density=0.01",
        "--reduction random-k:density=0.01",
        "--reduction random-k:density=0.01,unbiased=true",
        "--reduction dgc:density=0.01,warmup_steps=500 --momentum 0",
        "--reduction powersgd:rank=4",
        "--sync post-local:H=8,T=1500",
        "--sync local:H=8",
        "--sync diloco:H=50",
        "--sync diloco:H=50,outer-momentum=0.6",
        "--sync diloco:H=50 --reduction qsgd:bits=4,block=512",
    ],
    "adam": ["--reduction onebit-adam:warmup_steps=500 --freeze-after 500"],
    "adamw": ["--reduction powersgd:rank=4", "--sync local:H=8", "--sync diloco:H=50"],
}
"""Under the training that each is compared with: the options that make the difference."""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add_options(parser)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=30, help="images a shard")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--known", action="store_true", help="make no runs: show those that are there")
    parser.add_argument("--write", action="store_true", help=f"into {DOC.relative_to(ROOT)}")
    options = parser.parse_args()
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    try:
        text = study(options)
    except subprocess.CalledProcessError as error:
        print(f"error: {shlex.join(error.cmd)}\n{error.stderr}", file=sys.stderr)
        return 1
    print(text)
    if options.write:
        write_between(DOC, BEGIN, END, text)
    return 0


def study(options: argparse.Namespace) -> str:
    """The table, all seeds of a row after another, so that a study that was cut off has whole rows."""
    with tempfile.TemporaryDirectory(prefix="kolo-accuracy-") as scratch:
        trainings = Trainings(options, Path(scratch))
        parts = []
        for name, whole in WHOLE.items():
            rows = {
                more: [words(options, whole, more, seed) for seed in options.seeds]
                for more in ["", *ROWS[name]]
            }
            if options.known:
                rows = {more: row for more, row in rows.items() if all(map(trainings.has, row))}
            of = {more: [trainings.made(run) for run in row] for more, row in rows.items()}
            if "" in of:
                parts.append(table(whole, of))
    heading = f"`{command(options)}`: {options.epochs} epochs of {options.data}, network `{options.model}`,"
    heading += f" {options.shards} shards of {options.batch_size} images; mean and range of"
    heading += f" {len(options.seeds)} seeds."
    return "\n\n".join([heading, *parts])


def words(options: argparse.Namespace, whole: str, more: str, seed: int) -> list[str]:
    words = ["--model", options.model, "--data", options.data, "--epochs", str(options.epochs)]
    words += ["--shards", str(options.shards), "--batch-size", str(options.batch_size)]
    words += ["--seed", str(seed), "--checkpoint-epochs", str(options.epochs)]
    return words + shlex.split(whole) + shlex.split(more)


def command(options: argparse.Namespace) -> str:
    told = ["python3", "bench/accuracy.py", "--data", options.data, "--model", options.model]
    told += ["--epochs", str(options.epochs), "--shards", str(options.shards)]
    told += ["--batch-size", str(options.batch_size), "--seeds", ",".join(map(str, options.seeds))]
    return shlex.join(told)


def table(whole: str, of: dict[str, list[dict]]) -> str:
    """One line a variant: its accuracy, how far that is from the whole training's, and its bytes."""
    lines = [f"| `{whole}` | test accuracy, % | points | bytes summed | × fewer |", "|---|---:|---:|---:|---:|"]
    base = mean(of[""], "test_accuracy")
    for more, rows in of.items():
        accuracies = shown([row["test_accuracy"] for row in rows])
        apart = 100 * (mean(rows, "test_accuracy") - base)
        told = f"{apart:+.2f}" if more else ""
        if any(row["steps"] is None for row in rows):
            lines.append(f"| `{more}` | {accuracies} | {told} | diverged | |")
            continue
        wire, dense = mean(rows, "wire_bytes"), mean(of[""], "wire_bytes")
        name = f"`{more}`" if more else "every gradient, in every step"
        lines.append(f"| {name} | {accuracies} | {told} | {wire / 1e6:.1f} MB | {dense / wire:.1f} |")
    return "\n".join(lines)


def mean(rows: list[dict], key: str) -> float:
    return statistics.mean(row[key] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
