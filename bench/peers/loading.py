#!/usr/bin/env python3
"""Compares loading JPEG files for training: Kolo's folder data set with torchvision's ImageFolder and DataLoader.

Pillow writes the files into a temporary folder. Both decode, crop, flip and normalize all of them; Kolo with
so many threads, torchvision with as many worker processes. The two take turns; ratios are taken round by round.

    python3 bench/peers/loading.py --docs docs/benchmarks.md
"""

import argparse
import datetime
import os
import statistics
import sys
import tempfile
from pathlib import Path

import arguments
import environment
import machine
import parts
from arguments import ROOT
from processes import BenchError, Command, run
from programs import BUILD_SECONDS

PART = "loading"
TIMEOUT = 900.0
EXAMPLE = ["-p", "kolo-data", "--example", "loading_speed", "--manifest-path", str(ROOT / "Cargo.toml")]
SCRIPT = Path(__file__).with_name("loading_pytorch.py")
KOLO, TORCHVISION = "Kolo", "torchvision"


def main() -> int:
    options = parse()

    def text() -> str:
        python = environment.with_torchvision(options.python)
        program = example(options.example)
        load = machine.load()
        with tempfile.TemporaryDirectory() as images:
            make = [python, str(SCRIPT), "make", images, str(options.images), str(options.size)]
            run(Command("images by Pillow", make), TIMEOUT)
            return report(measure(commands(program, python, images, options), options.rounds), options, load)

    return parts.write(PART, options.docs, text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--images", type=arguments.positive, default=2000)
    parser.add_argument("--size", type=arguments.positive, default=224, help="of the files, and of what is loaded")
    parser.add_argument("--batch", type=arguments.positive, default=32)
    parser.add_argument("--threads", type=arguments.positive, default=2, help="threads, and worker processes")
    parser.add_argument("--rounds", type=arguments.positive, default=5)
    parser.add_argument("--python", type=Path, help="a Python that has torch, torchvision and safetensors")
    parser.add_argument("--example", type=Path, help="measure this program (default: build the example loading_speed)")
    parser.add_argument("--docs", type=Path, help="put the figures into this document, as docs/benchmarks.md")
    return parser.parse_args()


def example(given: Path | None) -> str:
    """The program that loads by Kolo. It is built unless one is given."""
    if given:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise BenchError(f"--example {given}: no such program; leave the option out to have it built")
        return str(given.resolve())
    run(Command("cargo build", ["cargo", "build", "--release", *EXAMPLE], show=True), BUILD_SECONDS)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    return str(target / "release" / "examples" / "loading_speed")


def commands(program: str, python: str, images: str, options: argparse.Namespace) -> dict[str, Command]:
    """One epoch of each side."""
    numbers = [str(number) for number in (options.size, options.batch, options.threads)]
    return {
        KOLO: Command("loading_speed", [program, images, *numbers]),
        TORCHVISION: Command("torchvision", [python, str(SCRIPT), "load", images, *numbers]),
    }


def measure(sides: dict[str, Command], rounds: int) -> dict[str, list[float]]:
    """Images a second of each side, in turn."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, command in sides.items():
            rates[side].append(rate(run(command, TIMEOUT)))
    return rates


def rate(line: str) -> float:
    """Images a second, of a line `IMAGES SECONDS`."""
    try:
        images, seconds = line.split()
        return int(images) / float(seconds)
    except (ValueError, ZeroDivisionError):
        raise BenchError(f"the answer is not `IMAGES SECONDS`: {line[:200]!r}") from None


def report(rates: dict[str, list[float]], options: argparse.Namespace, load: float) -> str:
    """The part of the document."""
    ratios = [own / other for own, other in zip(rates[KOLO], rates[TORCHVISION], strict=True)]
    cells = [*(spread(numbers, 0) for numbers in rates.values()), f"{spread(ratios, 2)} ×"]
    size, threads = f"{options.size}×{options.size}", options.threads
    return f"""## Loading images

Images a second from {options.images} JPEG files of {size} pixels, decoded, cropped, flipped and normalized: Kolo by
{threads} threads, torchvision by a DataLoader with {threads} workers. Median (lowest–highest) of {len(ratios)} rounds
in turn; the ratio is taken round by round.

- machine: {machine.describe()}; load average before the run {load:.2f}
- date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, commit {machine.commit(ROOT)}
- command: `{parts.command("loading.py")}`

| Kolo | torchvision | Kolo / torchvision |
| ---: | ---: | ---: |
| {" | ".join(cells)} |"""


def spread(numbers: list[float], digits: int) -> str:
    median = statistics.median(numbers)
    return f"{median:.{digits}f} ({min(numbers):.{digits}f}–{max(numbers):.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
