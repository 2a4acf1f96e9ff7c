#!/usr/bin/env python3
"""Measures transformers on one core: a forward and a backward pass, Kolo's beside PyTorch's.

Writes the part "transformers" of docs/benchmarks.md. Both sides take turns, shape by shape and round by
round. Processor time counts, so other programs disturb little.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Protocol

import arguments
import machine
import parts
from convolutions import KEEP_PAGES
from figures import Spread, spread, table
from processes import BenchError

PART = "transformers"
PEAK = 110.0
"""GFLOP/s of `f32` that products reach on one core of the processor of docs/benchmarks.md."""
EXAMPLE = ["cargo", "run", "--release", "-q", "-p", "burn-flex-nn", "--example", "transformers"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer and of its input."""

    batch: int
    time: int
    width: int
    heads: int
    layers: int

    def floor(self, peak: float) -> float:
        """Milliseconds of the products alone: 24 width² for each position of each layer, those of attention
        4 · time · width, hidden scores counted; backward twice as many."""
        position = 24 * self.width**2 + 4 * self.time * self.width
        return 3 * position * self.batch * self.time * self.layers / peak / 1e6

    def words(self) -> str:
        return f"{self.batch} {self.time} {self.width} {self.heads} {self.layers}"


SHAPES = (
    Shape(12, 64, 128, 4, 4),
    Shape(4, 256, 128, 4, 2),
    Shape(2, 128, 384, 6, 2),
    Shape(32, 16, 64, 2, 2),
    Shape(4, 256, 768, 12, 2),
)


class Words(Protocol):
    """Sizes that a program reads from a line."""

    def words(self) -> str: ...


class Side:
    """A program that answers each line with milliseconds."""

    def __init__(self, name: str, argv: list[str], environment: Mapping[str, str] = MappingProxyType({})):
        self.name = name
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | KEEP_PAGES | environment,
            cwd=arguments.ROOT,
        )

    def measure(self, shape: Words, seconds: float) -> float:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{shape.words()} {seconds}\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()):
            raise BenchError(f"{self.name} ended without an answer for {shape}")
        return float(answer)

    def end(self) -> None:
        """Ends the program, so that its memory is free."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    options = parse()
    return parts.write(PART, options.docs, lambda: section(options))


def section(options: argparse.Namespace) -> str:
    python = parts.pytorch(options.python)
    example = [str(options.example.resolve())] if options.example else EXAMPLE
    ours = Side("Kolo", example)
    peer = Side("PyTorch", [python, str(Path(__file__).with_name("transformers_pytorch.py"))])
    return f"{head(options.peak)}\n\n{measured(ours, peer, options)}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=arguments.positive, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each side and shape (default: 1)")
    parser.add_argument("--peak", type=float, default=PEAK, help=f"GFLOP/s of a core (default: {PEAK:g})")
    parser.add_argument("--python", type=Path, help="a Python with torch (default: make .venv here)")
    parser.add_argument("--example", type=Path, help="measure this program (default: build the example)")
    parser.add_argument("--docs", type=Path, default=arguments.DOCS)
    return parser.parse_args()


def head(peak: float) -> str:
    return f"""## Transformers

A forward and a backward pass of a transformer of GPT-2's blocks without dropout, f32, on one core
({machine.cpu_model()}): milliseconds of processor time, the median of all rounds (lowest–highest). The ratio
is the median of each round's. The floor is the time of the products alone at {peak:g} GFLOP/s.
Command: `{parts.command("transformers.py")}`."""


def measured(ours: Side, peer: Side, options: argparse.Namespace) -> str:
    times: dict[tuple[Shape, str], list[float]] = {}
    for _ in range(options.rounds):
        for shape in SHAPES:
            for side in (ours, peer):
                times.setdefault((shape, side.name), []).append(side.measure(shape, options.seconds))
    shown, all_ratios = [], []
    for shape in SHAPES:
        floor = shape.floor(options.peak)
        of_ours, of_peer = (times[shape, side.name] for side in (ours, peer))
        ratios = spread(b / a for a, b in zip(of_ours, of_peer, strict=True))
        all_ratios.append(ratios.median)
        shown.append([
            ", ".join(shape.words().split()),
            f"{floor:.1f}",
            cell(spread(of_ours)),
            cell(spread(of_peer)),
            f"{spread(of_ours).median / floor:.2f} ×",
            ratios.show(lambda ratio: f"{ratio:.2f} ×"),
        ])
    shown.append(["geometric mean", "", "", "", "", f"{geometric_mean(all_ratios):.2f} ×"])
    sizes = "batch, time, width, heads, layers"
    return table([sizes, "floor", "Kolo", "PyTorch", "Kolo / floor", "PyTorch / Kolo"], shown)


def cell(times: Spread) -> str:
    return times.show(lambda time: f"{time:.1f}" if time < 100 else f"{time:.0f}")


if __name__ == "__main__":
    sys.exit(main())
