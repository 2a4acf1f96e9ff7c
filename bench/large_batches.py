#!/usr/bin/env python3
"""Test accuracy by the size of the global batch, of several recipes, each as often as there are seeds; and a
learning rate that is cut beside a batch that grows.

    cargo build --release && python3 bench/large_batches.py [--write]

Runs that are in --results already are not made again, so what was cut off goes on; bench/large-batches.jsonl
has those that docs/large-batches.md shows. With --write the tables take their place in
docs/large-batches.md, and the picture beside it.
"""

import argparse
import math
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from trainings import ROOT, Trainings, add_options, shown, write_between

DOC = ROOT / "docs" / "large-batches.md"
SVG = DOC.with_suffix(".svg")
BEGIN, END = "<!-- bench/large_batches.py: begin -->", "<!-- end -->"

SHARD = 64
"""Images of a shard, whatever the global batch, so that batch normalization sees as many in all runs."""
BASE = 256
"""The global batch that learning rates are stated for."""

RECIPES = {
    "sgd": "--optimizer sgd --lr 0.1",
    "sgd, √ rule": "--optimizer sgd --lr 0.1 --scale-lr sqrt",
    "sgd, linear rule": "--optimizer sgd --lr 0.1 --scale-lr linear",
    "sgd, linear rule, no warm-up": "--optimizer sgd --lr 0.1 --scale-lr linear --warmup-epochs 0",
    "lars, √ rule": "--optimizer lars --lr 2 --scale-lr sqrt --no-decay norm,bias",
    "lamb, √ rule": "--optimizer lamb --lr 0.005 --scale-lr sqrt --weight-decay 0.01 --no-decay norm,bias",
}
"""Options besides those of `words`. Rates are not searched for: one for all batches, which the rule
scales."""

SCHEDULES = {
    "cut the rate": "--schedule step --lr-factor 0.2 --lr-step-epochs {epochs}",
    "grow the batch": "--schedule constant --grow-batch {epochs}:5,{twice}:5",
}
"""After one and two thirds of the run."""

COLORS = ["#2f81f7", "#3fb950", "#d29922", "#db6d28", "#a371f7", "#f778ba"]
MARKS = ["●", "■", "▲", "◆", "▼", "★"]
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.grid { stroke: #8c959f; stroke-opacity: .3; }
.line { fill: none; stroke-width: 1.8; }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4; } }
"""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add_options(parser)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--warmup-epochs", type=int, default=2)
    parser.add_argument("--batches", default="256,512,1024,2048,4096,8192")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", help="names, separated by semicolons; all that there are otherwise")
    parser.add_argument("--write", action="store_true", help=f"into {DOC.relative_to(ROOT)}")
    options = parser.parse_args()
    options.batches = [int(batch) for batch in options.batches.split(",")]
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    try:
        return run(options)
    except subprocess.CalledProcessError as error:
        print(f"error: {shlex.join(error.cmd)}\n{error.stderr}", file=sys.stderr)
        return 1


def run(options: argparse.Namespace) -> int:
    wrong = [batch for batch in options.batches if batch < SHARD or batch % SHARD]
    if wrong:
        print(f"error: --batches {wrong[0]}: it must be a multiple of {SHARD}", file=sys.stderr)
        return 2
    names = options.recipes.split(";") if options.recipes else list(RECIPES)
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        print(f"error: --recipes {unknown[0]}: known are {'; '.join(RECIPES)}", file=sys.stderr)
        return 2
    recipes = {name: RECIPES[name] for name in names}
    with tempfile.TemporaryDirectory(prefix="kolo-large-batches-") as scratch:
        trainings = Trainings(options, Path(scratch))

        def accuracy(batch: int, more: str, seed: int) -> float:
            return trainings.made(words(options, batch, more, seed))["test_accuracy"]

        accuracies = {
            name: {
                batch: [accuracy(batch, more, seed) for seed in options.seeds]
                for batch in options.batches
            }
            for name, more in recipes.items()
        }
        third = max(options.epochs // 3, 1)
        schedules = {}
        for name, more in SCHEDULES.items():
            more = more.format(epochs=third, twice=2 * third)
            schedules[name] = [trainings.made(words(options, BASE, more, seed)) for seed in options.seeds]
    text = tables(options, accuracies, schedules)
    print(text)
    if options.write:
        write_between(DOC, BEGIN, END, text)
        SVG.write_text(picture(accuracies))
    return 0


def words(options: argparse.Namespace, batch: int, more: str, seed: int) -> list[str]:
    words = ["--model", options.model, "--data", options.data, "--epochs", str(options.epochs)]
    words += ["--batch-size", str(SHARD), "--shards", str(batch // SHARD)]
    words += ["--seed", str(seed), "--checkpoint-epochs", str(options.epochs)]
    if "--warmup-epochs" not in more:
        words += ["--warmup-epochs", str(options.warmup_epochs)]
    if "--scale-lr" in more:
        words += ["--base-batch", str(BASE)]
    return words + shlex.split(more)


def tables(options: argparse.Namespace, accuracies: dict, schedules: dict) -> str:
    listed = ",".join(map(str, options.batches))
    command = f"python3 bench/large_batches.py --data {options.data} --model {options.model}"
    command += f" --epochs {options.epochs} --warmup-epochs {options.warmup_epochs}"
    command += f" --batches {listed} --seeds {','.join(map(str, options.seeds))}"
    if options.recipes:
        command += f" --recipes {shlex.quote(options.recipes)}"
    lines = [f"`{command}`: test accuracy in %, mean and range of {len(options.seeds)} seeds.", ""]
    lines += ["| recipe | " + " | ".join(map(str, options.batches)) + " |"]
    lines += ["| --- |" + " ---: |" * len(options.batches)]
    for name, cells in accuracies.items():
        lines.append(f"| {name} | " + " | ".join(shown(cells[batch]) for batch in options.batches) + " |")
    lines += ["", f"![Test accuracy by the size of the global batch]({SVG.name})", ""]
    lines += [f"From a global batch of {BASE}, after one and two thirds of the epochs:", ""]
    lines += ["| | updates | test accuracy |", "| --- | ---: | ---: |"]
    for name, rows in schedules.items():
        steps = rows[0]["steps"] or "diverged"
        lines.append(f"| {name} | {steps} | {shown([row['test_accuracy'] for row in rows])} |")
    return "\n".join(lines)


def picture(accuracies: dict) -> str:
    """Accuracy over the logarithm of the batch: a line a recipe."""
    width, height, left, right, top, bottom = 640, 360, 60, 200, 20, 46
    batches = sorted({batch for cells in accuracies.values() for batch in cells})
    values = [100 * statistics.mean(cell) for cells in accuracies.values() for cell in cells.values()]
    low, high = math.floor(min(values)), math.ceil(max(values))
    span = max(math.log2(batches[-1] / batches[0]), 1)

    def x(batch: int) -> float:
        return left + (width - left - right) * math.log2(batch / batches[0]) / span

    def y(value: float) -> float:
        return height - bottom - (height - top - bottom) * (value - low) / max(high - low, 1)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>{STYLE}</style>']
    for n in range(5):
        value = low + (high - low) * n / 4
        parts.append(f'<path class="grid" d="M{left} {y(value):.1f}H{width - right}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g} %</text>')
    for batch in batches:
        parts.append(f'<text x="{x(batch):.1f}" y="{height - bottom + 20}" text-anchor="middle">{batch}</text>')
    middle = (left + width - right) / 2
    parts.append(f'<text x="{middle}" y="{height - 8}" text-anchor="middle">images in a global batch</text>')
    for number, (name, cells) in enumerate(accuracies.items()):
        color, mark = COLORS[number % len(COLORS)], MARKS[number % len(MARKS)]
        points = [(x(batch), y(100 * statistics.mean(cells[batch]))) for batch in batches]
        path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        parts.append(f'<path class="line" stroke="{color}" d="{path}"/>')
        for px, py in points:
            parts.append(
                f'<text x="{px:.1f}" y="{py + 4:.1f}" text-anchor="middle" style="fill:{color}">{mark}</text>'
            )
        place = top + 12 + 20 * number
        legend = f'<tspan style="fill:{color}">{mark}</tspan> {name}'
        parts.append(f'<text x="{width - right + 14}" y="{place}">{legend}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())
