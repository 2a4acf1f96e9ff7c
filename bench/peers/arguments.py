"""The command line."""

import argparse
from pathlib import Path

import settings

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs" / "benchmarks.md"
PLOT = "all-reduce.svg"
"""Beside the document."""


def parse(description: str, words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kolo", type=Path, help="measure this program (default: build target/release/kolo)")
    parser.add_argument("--python", type=Path, help="a Python with torch (default: make .venv here)")
    parser.add_argument(
        "--only", type=parts, default=settings.PARTS, help="parts of shm,tcp,link,step (default: all)"
    )
    parser.add_argument("--rounds", type=positive, help="times that each system is measured (default: 3)")
    parser.add_argument("--sizes", type=sizes, help="bytes to all-reduce, as in 4,1048576")
    parser.add_argument("--seconds", type=float, help="time for each size (default: 1)")
    parser.add_argument(
        "--timeout", type=positive, default=900, help="seconds one program may take (default: 900)"
    )
    parser.add_argument(
        "--docs",
        type=Path,
        help="file to write, the plot beside it (default: docs/benchmarks.md; none with --smoke, --only)",
    )
    parser.add_argument(
        "--json", type=Path, help="also write every round's numbers to this file, as they come"
    )
    parser.add_argument("--render", type=Path, help="measure nothing, write the report of an earlier --json")
    parser.add_argument("--smoke", action="store_true", help="one short round that only shows that all works")
    options = parser.parse_args(words)
    if options.seconds is not None and not 0 < options.seconds < 3600:
        parser.error(f"--seconds {options.seconds:g}: give a time greater than 0")
    return with_defaults(options)


def with_defaults(options: argparse.Namespace) -> argparse.Namespace:
    """Parts alone would leave the document without the others, so they go there only on demand."""
    smoke = options.smoke
    options.rounds = options.rounds or (1 if smoke else 3)
    options.sizes = options.sizes or (settings.SMOKE_SIZES if smoke else settings.SIZES)
    options.seconds = options.seconds or (0.1 if smoke else 1.0)
    complete = not smoke and options.only == settings.PARTS
    options.docs = options.docs or (DOCS if complete else None)
    return options


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def sizes(text: str) -> list[int]:
    """Numbers of bytes, each whole f32 values."""
    values = [int(word) for word in text.split(",")]
    if any(value < 4 or value % 4 for value in values):
        raise argparse.ArgumentTypeError(f"each size is a positive multiple of 4 bytes: {text}")
    return values


def parts(text: str) -> tuple[str, ...]:
    """Names of parts, in the table's order."""
    words = text.split(",")
    if unknown := [word for word in words if word not in settings.PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {','.join(settings.PARTS)}")
    return tuple(part for part in settings.PARTS if part in words)
