#!/usr/bin/env python3
"""Compares loading JPEG files for training: Kolo's folder data set with torchvision's ImageFolder and DataLoader.

Pillow writes the files into a temporary folder. Both decode, crop, flip and normalize all of them; Kolo with
so many threads, torchvision with as many worker processes. The two take turns; the median of the ratios, round
by round, is printed.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import arguments
import environment
from processes import BenchError, Command, run

TIMEOUT = 900.0
EXAMPLE = ["cargo", "run", "--release", "-q", "-p", "kolo-data", "--example", "loading_speed", "--"]
SCRIPT = Path(__file__).with_name("loading_pytorch.py")
KOLO, TORCHVISION = "Kolo", "torchvision"


def main() -> int:
    options = parse()
    try:
        folder = Path(__file__).with_name(".venv")
        python = environment.with_torchvision(options.python, folder)
        with tempfile.TemporaryDirectory() as images:
            make = [python, str(SCRIPT), "make", images, str(options.images), str(options.size)]
            run(Command("images by Pillow", make), TIMEOUT)
            print(report(measure(commands(python, images, options), options.rounds), options))
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--images", type=arguments.positive, default=2000)
    parser.add_argument("--size", type=arguments.positive, default=224, help="of the files, and of what is loaded")
    parser.add_argument("--batch", type=arguments.positive, default=32)
    parser.add_argument("--threads", type=arguments.positive, default=2, help="threads, and worker processes")
    parser.add_argument("--rounds", type=arguments.positive, default=5)
    parser.add_argument("--python", type=Path, help="a Python that has torch, torchvision and safetensors")
    return parser.parse_args()


def commands(python: str, images: str, options: argparse.Namespace) -> dict[str, Command]:
    """One epoch of each side."""
    numbers = [str(number) for number in (options.size, options.batch, options.threads)]
    return {
        KOLO: Command("loading_speed", [*EXAMPLE, images, *numbers]),
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


def report(rates: dict[str, list[float]], options: argparse.Namespace) -> str:
    ratios = [own / other for own, other in zip(rates[KOLO], rates[TORCHVISION], strict=True)]
    what = f"{options.images} JPEG files of {options.size}×{options.size}, {options.threads} threads"
    lines = [f"{what}, median and range of {len(ratios)} rounds in turn:"]
    lines += [f"{side}: {spread(numbers, 0)} images/s" for side, numbers in rates.items()]
    return "\n".join([*lines, f"Kolo / torchvision: {spread(ratios, 2)}"])


def spread(numbers: list[float], digits: int) -> str:
    median = statistics.median(numbers)
    return f"{median:.{digits}f} ({min(numbers):.{digits}f}–{max(numbers):.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
