#!/usr/bin/env python3
"""Measures training steps of GPT-2 on one thread: forward, backward and AdamW, Kolo's beside PyTorch's.

    python3 bench/peers/gpt2.py --values PYTHON     # loss and gradients first; PYTHON has transformers, too

Writes the part "gpt2" of docs/benchmarks.md. PyTorch runs as it comes and compiled. All take turns, round by
round; processor time counts, so other programs disturb little.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import arguments
import machine
import parts
from figures import Spread, spread, table
from processes import BenchError
from transformers import Side

PART = "gpt2"
EXAMPLE = ["cargo", "run", "--release", "-q", "-p", "kolo-models", "--example", "gpt2_step"]
LARGE_PAGES = {
    "MIMALLOC_ALLOW_LARGE_OS_PAGES": "1",
    "THP_MEM_ALLOC_ENABLE": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""For both sides, as the workers of `kolo launch` have it."""
WIDTH, HEAD, POSITIONS = 768, 64, 1024
"""Of GPT-2's smallest published size."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batch."""

    layers: int
    vocabulary: int
    batch: int
    time: int
    width: int = WIDTH

    def words(self) -> str:
        return f"{self.layers} {self.width} {self.vocabulary} {self.batch} {self.time}"

    def tokens(self) -> int:
        return self.batch * self.time

    def parameters(self) -> int:
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + (2 + POSITIONS + self.vocabulary) * self.width


def main() -> int:
    options = parse()
    return parts.write(PART, options.docs, lambda: section(options))


def section(options: argparse.Namespace) -> str:
    python = parts.pytorch(options.python)
    example = [str(options.example.resolve())] if options.example else EXAMPLE
    shapes = [Shape(options.layers, each, options.batch, options.time) for each in options.vocabularies]
    if options.values:
        compare_values(options, example, shapes)
    script = [python, "-P", str(Path(__file__).with_name("gpt2_pytorch.py"))]
    argvs = {"Kolo": example, "PyTorch": script, "PyTorch, compiled": [*script, "--compile"]}
    return f"{head()}\n\n{measured(argvs, shapes, options)}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--layers", type=arguments.positive, default=12)
    parser.add_argument("--vocabularies", type=arguments.positive, nargs="+", default=[257, 50_257])
    parser.add_argument("--batch", type=arguments.positive, default=4)
    parser.add_argument("--time", type=arguments.positive, default=256, help="tokens of a window")
    parser.add_argument("--rounds", type=arguments.positive, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each side and round (default: 1)")
    parser.add_argument("--python", type=Path, help="a Python with torch (default: make .venv here)")
    parser.add_argument("--example", type=Path, help="measure this program (default: build the example)")
    parser.add_argument("--values", type=Path, help="a Python with torch and transformers: compare values first")
    parser.add_argument("--docs", type=Path, default=arguments.DOCS)
    return parser.parse_args()


def compare_values(options: argparse.Namespace, example: list[str], shapes: list[Shape]) -> None:
    """No times of a network that computes something else."""
    if example == EXAMPLE:
        raise BenchError("--values: give the program by --example, too")
    script = str(Path(__file__).with_name("gpt2_values.py"))
    for shape in shapes:
        argv = [str(options.values), "-P", script, "--example", example[0]]
        for name in ("layers", "vocabulary", "batch", "time"):
            argv += [f"--{name}", str(getattr(shape, name))]
        if subprocess.run(argv, check=False).returncode:
            raise BenchError(f"values differ from those of transformers: {shape}")


def head() -> str:
    return f"""## GPT-2

A training step of GPT-2 at width {WIDTH} ({WIDTH // HEAD} heads, tied embedding): forward, backward and AdamW without dropout,
f32, one thread ({machine.cpu_model()}). Tokens a second of processor time, the median of all rounds
(lowest–highest). PyTorch has fused AdamW and `scaled_dot_product_attention`, as it comes and by
`torch.compile`. The ratio is the median of each round's, to the faster of the two.
Command: `{parts.command("gpt2.py")}`."""


def measured(argvs: dict[str, list[str]], shapes: list[Shape], options: argparse.Namespace) -> str:
    """A table; each shape has programs of its own, so that only one model of each is in memory."""
    shown = []
    for shape in shapes:
        sides = [Side(name, argv, LARGE_PAGES) for name, argv in argvs.items()]
        times: dict[str, list[float]] = {name: [] for name in argvs}
        try:
            for _ in range(options.rounds):
                for side in sides:
                    times[side.name].append(side.measure(shape, options.seconds))
                    print(f"{shape.words()}: {side.name} {times[side.name][-1]:.0f} ms", file=sys.stderr)
        finally:
            for side in sides:
                side.end()
        ours, *peers = times.values()
        ratios = spread(min(both) / own for own, *both in zip(ours, *peers, strict=True))
        cells = [cell(spread(1e3 * shape.tokens() / time for time in each)) for each in times.values()]
        name = f"{shape.layers}, {shape.vocabulary:,}, {shape.parameters() / 1e6:.0f} million"
        ratio = ratios.show(lambda ratio: f"{ratio:.2f} ×")
        shown.append([f"{name}, {shape.batch} × {shape.time}", *cells, ratio])
    return table(["layers, vocabulary, parameters, tokens", *argvs, "Kolo / PyTorch's best"], shown)


def cell(rates: Spread) -> str:
    return rates.show(lambda rate: f"{rate:.1f}")


if __name__ == "__main__":
    sys.exit(main())
