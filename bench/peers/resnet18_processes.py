#!/usr/bin/env python3
"""Measures training of ResNet-18 by several processes with PyTorch on CPUs, over Gloo and over Kolo.

    python3 bench/peers/resnet18_processes.py --python PYTHON    # PYTHON has torch, and Kolo's wheel

Writes the part "resnet18-ddp" of docs/benchmarks.md. Each way first tries its settings, and the fastest is measured. All
take turns, round by round. A step over a backend cannot be faster than the step that sends nothing.
"""

import argparse
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import arguments
import machine
import parts
from figures import spread, table
from gpt2_processes import Job, Settings, ratio
from places import Loopback
from processes import end_on_sigterm

WAYS = {
    "DDP over Gloo": ("gloo", "stock"),
    "DDP over Kolo": ("kolo", "stock"),
    "DDP that sends nothing": ("kolo", "silent"),
    "`kolo.torch`'s": ("kolo", "shards"),
}
SETTINGS: dict[str, list[Settings]] = {
    "stock": list(itertools.product((5, 25), (0, 1), (0, 1))),
    "silent": list(itertools.product((5, 25), (0, 1), (0, 1))),
    "shards": list(itertools.product((5, 25), (0,), (0, 1))),
}


@dataclass(frozen=True)
class Batch:
    """Line that a program is asked for."""

    settings: Settings
    images: int

    def words(self) -> str:
        return " ".join(map(str, [*self.settings, self.images]))


def main() -> int:
    options = parse()
    end_on_sigterm()
    return parts.write("resnet18-ddp", options.docs, lambda: section(options))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--nproc", type=arguments.positive, default=2, help="processes (default: 2)")
    parser.add_argument("--batch", type=arguments.positive, default=32, help="images of a process (default: 32)")
    parser.add_argument("--rounds", type=arguments.positive, default=7)
    parser.add_argument("--steps", type=arguments.positive, default=6, help="of each way and round (default: 6)")
    parser.add_argument("--python", type=Path, help="a Python with torch and kolo")
    parser.add_argument("--docs", type=Path, default=arguments.DOCS)
    return parser.parse_args()


def section(options: argparse.Namespace) -> str:
    python = parts.pytorch(options.python)
    script = [python, "-P", str(Path(__file__).with_name("resnet18_processes_pytorch.py"))]
    jobs = {name: Job(name, [*script, *way], options.nproc, Loopback()) for name, way in WAYS.items()}
    try:
        best = {name: fastest(job, SETTINGS[WAYS[name][1]], options) for name, job in jobs.items()}
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(options.rounds):
            for name, job in jobs.items():
                times[name].append(job.measure(Batch(best[name], options.batch), options.steps))
    finally:
        for job in jobs.values():
            job.end()
    gloo, _, nothing, _ = times.values()
    images = options.nproc * options.batch
    rows = [
        [
            name,
            spread(1e3 * images / time for time in own).show(lambda rate: f"{rate:.0f}"),
            ratio(gloo, own),
            ratio(nothing, own),
            described(best[name]),
        ]
        for name, own in times.items()
    ]
    columns = ["", "images/s", "/ Gloo", "/ nothing sent", "settings"]
    return f"{head(options)}\n\n{table(columns, rows)}"


def fastest(job: Job, tried: list[Settings], options: argparse.Namespace) -> Settings:
    """The settings with the shortest step in a short trial."""
    times = {settings: job.measure(Batch(settings, options.batch), options.steps) for settings in tried}
    for settings, time in times.items():
        print(f"{job.name}: {described(settings)}: {time:.1f} ms", file=sys.stderr, flush=True)
    return min(times, key=lambda settings: times[settings])


def described(settings: Settings) -> str:
    bucket, static, channels_last = settings
    return f"buckets of {bucket} MB" + ", static graph" * static + ", channels_last" * channels_last


def head(options: argparse.Namespace) -> str:
    return f"""### ResNet-18 by PyTorch

A step of {options.nproc} processes of one thread with fused AdamW, 3×32×32, {options.batch} images a process, f32 ({machine.cpu_model()}). Images a
second of all processes by the clock, median of all rounds (lowest–highest); ratios are taken round by round.
Command: `{parts.command("resnet18_processes.py")}`."""


if __name__ == "__main__":
    sys.exit(main())
