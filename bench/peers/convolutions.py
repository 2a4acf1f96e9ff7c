#!/usr/bin/env python3
"""Measures the convolutions of ResNet-18 on one core: those of burn-flex-nn, of Burn's flex, and PyTorch's.

Writes the part "convolutions" of docs/benchmarks.md. The sides take turns; the fastest of all rounds counts.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import arguments
import parts
from figures import table
from processes import BenchError, Command, run

PART = "convolutions"
IMAGES = ((32, 32), (64, 8), (224, 8))
"""Height and width, and batch."""
ROW = re.compile(r"^(\d)x\d/(\d) (\d+) -> (\d+) at (\d+)x\d+ +x(\d+) +([\d. ]+)$")
TIMEOUT = 900.0
KEEP_PAGES = {
    "MIMALLOC_PURGE_DELAY": "-1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}
"""For both sides: training allocates the same tensors in every step, and does not want cleared pages."""
EXAMPLE = ["cargo", "run", "--release", "-q", "-p", "burn-flex-nn", "--example", "convolutions"]


@dataclass
class Layer:
    """Its shape, how many there are, and of each side the three passes' times in milliseconds."""

    shape: tuple[int, ...]
    count: int
    times: dict[str, list[float]] = field(default_factory=dict)

    def keep(self, side: str, times: list[float]) -> None:
        self.times[side] = [min(pair) for pair in zip(times, self.times.get(side, times), strict=True)]


OURS, FLEX, PYTORCH = "burn-flex-nn", "flex", "PyTorch"


def main() -> int:
    options = parse()

    def section() -> str:
        python = parts.pytorch()
        return "\n\n".join([head(), *[measured(python, options, *image) for image in IMAGES]])

    return parts.write(PART, options.docs, section)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=arguments.positive, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each pass (default: 0.2)")
    parser.add_argument("--docs", type=Path, default=arguments.DOCS)
    return parser.parse_args()


def head() -> str:
    return f"""## Convolutions

All convolutions of ResNet-18 on one core, f32: milliseconds of the forward pass / the gradient of the input /
that of the weights, the fastest of all rounds. PyTorch's are the faster ones of its two memory formats,
pass by pass.
Command: `{parts.command("convolutions.py")}`."""


def measured(python: str, options: argparse.Namespace, image: int, samples: int) -> str:
    layers: dict[tuple[int, ...], Layer] = {}
    for _ in range(options.rounds):
        for layer, ours, flex in own(image, samples, options.seconds):
            known = layers.setdefault(layer.shape, layer)
            known.keep(OURS, ours)
            known.keep(FLEX, flex)
        peers = pytorch(python, list(layers), samples, options.seconds)
        for layer, times in zip(layers.values(), peers, strict=True):
            # Nobody asks for the gradient of the images.
            layer.keep(PYTORCH, [times[0], 0.0 if layer.shape[2] == 3 else times[1], times[2]])
    return f"### {image}×{image}, batch {samples}\n\n{rows(list(layers.values()))}"


def own(image: int, samples: int, seconds: float) -> list[tuple[Layer, list[float], list[float]]]:
    """The example's lines."""
    argv = [*EXAMPLE, "--", str(image), str(samples), str(seconds)]
    output = run(Command("convolutions", argv, KEEP_PAGES), TIMEOUT)
    found = []
    for line in output.splitlines():
        if match := ROW.match(line):
            *shape, count = (int(number) for number in match.groups()[:6])
            times = [float(number) for number in match[7].split()]
            found.append((Layer(tuple(shape), count), times[:3], times[3:]))
    if not found:
        raise BenchError(f"the example answered no layer: {output[:200]!r}")
    return found


def pytorch(python: str, shapes: list[tuple[int, ...]], samples: int, seconds: float) -> list[list[float]]:
    lines = "".join(" ".join(map(str, shape)) + "\n" for shape in shapes)
    script = [python, str(Path(__file__).with_name("convolutions_pytorch.py")), str(samples), str(seconds)]
    environment = os.environ | KEEP_PAGES
    done = subprocess.run(
        script, input=lines, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment
    )
    if done.returncode:
        raise BenchError(f"convolutions_pytorch.py failed: {done.stderr[-400:]}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def rows(layers: list[Layer]) -> str:
    shown = []
    for layer in layers:
        kernel, stride, source, target, size = layer.shape
        name = f"{kernel}×{kernel}, {source} → {target}{', stride 2' if stride == 2 else ''}, {size}×{size}"
        shown.append([name, str(layer.count), *cells({side: layer.times[side] for side in layer.times})])
    totals = {
        side: [sum(layer.count * layer.times[side][index] for layer in layers) for index in range(3)]
        for side in (OURS, FLEX, PYTORCH)
    }
    shown.append(["**all**", "", *cells(totals)])
    return table(["", "layers", OURS, FLEX, PYTORCH, f"{FLEX} / {OURS}", f"{PYTORCH} / {OURS}"], shown)


def cells(times: dict[str, list[float]]) -> list[str]:
    """The times of the sides, and how many times longer the other two take."""
    text = [" / ".join(f"{time:.2f}" for time in times[side]) for side in (OURS, FLEX, PYTORCH)]
    quotients = [f"{sum(times[side]) / sum(times[OURS]):.1f} ×" for side in (FLEX, PYTORCH)]
    return [*text, *quotients]


if __name__ == "__main__":
    sys.exit(main())
