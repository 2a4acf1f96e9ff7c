#!/usr/bin/env python3
"""Measures training of GPT-2 with divided parameters: Kolo's `--shard parameters`, and PyTorch's FSDP2 over Gloo and
over Kolo, all on CPUs.

    python3 bench/peers/fsdp2.py --python PYTHON     # PYTHON has torch, and Kolo's wheel

Prints a table. Each way of FSDP2 first tries its settings, and the fastest is measured. All take turns, round by round.
"""

import argparse
import itertools
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import arguments
import machine
import parts
from figures import Spread, spread, table
from gpt2 import EXAMPLE, LARGE_PAGES
from gpt2 import Shape as Model
from processes import BenchError
from transformers import Side

RESHARD, AHEAD = (0, 1), (0, 1, 2)
"""The settings of FSDP2 that are tried: parameters freed after the forward pass or not, blocks gathered ahead."""


@dataclass(frozen=True)
class Line:
    """Line that a program is asked for; the settings of FSDP2 come first."""

    settings: tuple[int, ...]
    model: Model

    def words(self) -> str:
        return " ".join([*map(str, self.settings), self.model.words()])

    def describe(self) -> str:
        if not self.settings:
            return ""
        reshard, ahead, shared = self.settings
        words = ["parameters freed after the forward pass" if reshard else "parameters kept until the backward pass"]
        words += [f"{ahead} block{'s' * (ahead > 1)} ahead"] if ahead else []
        return ", ".join(words + (["memory of the group"] if shared else []))


class Job:
    """The processes of one way to train, started as torchrun would start them."""

    def __init__(self, name: str, argv: list[str], nproc: int):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        shared = {"WORLD_SIZE": str(nproc), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        of_rank = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(nproc)]
        self.name = name
        self.ranks = [Side(f"{name}, rank {rank}", argv, LARGE_PAGES | shared | own) for rank, own in enumerate(of_rank)]
        self.threads = ThreadPoolExecutor(nproc)

    def measure(self, line: Line, steps: int) -> float:
        """Milliseconds of a step, of the slowest process."""
        return max(self.threads.map(lambda rank: rank.measure(line, steps), self.ranks))

    def end(self) -> None:
        for rank in self.ranks:
            rank.end()
        self.threads.shutdown()


def main() -> int:
    options = parse()
    try:
        print(section(options))
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--nproc", type=arguments.positive, default=2, help="processes (default: 2)")
    parser.add_argument("--layers", type=arguments.positive, default=4)
    parser.add_argument("--vocabulary", type=arguments.positive, default=257)
    parser.add_argument("--tokens", nargs="+", default=["1x64", "4x64", "4x256"], metavar="BATCHxTIME", help="of a process")
    parser.add_argument("--rounds", type=arguments.positive, default=5)
    parser.add_argument("--steps", type=arguments.positive, default=4, help="of each way and round (default: 4)")
    parser.add_argument("--python", type=Path, help="a Python with torch and kolo")
    parser.add_argument("--example", type=Path, help="measure this program (default: build the example)")
    return parser.parse_args()


def section(options: argparse.Namespace) -> str:
    python = parts.pytorch(options.python)
    example = [str(options.example.resolve())] if options.example else EXAMPLE
    script = [python, "-P", str(Path(__file__).with_name("fsdp2_pytorch.py"))]
    argvs = {
        "Kolo": [*example, "--shard", "parameters"],
        "FSDP2 over Gloo": [*script, "gloo"],
        "FSDP2 over Kolo": [*script, "kolo"],
    }
    rows, best = [], []
    for tokens in options.tokens:
        batch, time = map(int, tokens.split("x"))
        model = Model(options.layers, options.vocabulary, batch, time)
        row, lines = measured(argvs, model, options)
        rows.append(row)
        best += [f"{tokens}, {name}: {line.describe()}" for name, line in lines.items() if line.settings]
    columns = ["tokens of a process", *(f"{name}, tokens/s" for name in argvs), "Kolo / FSDP2 over Gloo", "FSDP2: Kolo / Gloo"]
    head = f"GPT-2, {options.layers} layers, width 768, {model.parameters() / 1e6:.0f} million parameters, f32, {options.nproc} "
    head += f"processes of one thread ({machine.cpu_model()}): tokens a second of all processes."
    return "\n\n".join([head, table(columns, rows), "Settings: " + "; ".join(best) + "."])


def measured(argvs: dict[str, list[str]], model: Model, options: argparse.Namespace) -> tuple[list[str], dict[str, Line]]:
    """The row of a model, and the fastest settings. Only this model's programs are in memory."""
    jobs = {name: Job(name, argv, options.nproc) for name, argv in argvs.items()}
    times: dict[str, list[float]] = {name: [] for name in argvs}
    try:
        lines = {name: fastest(job, model, options.steps) for name, job in jobs.items()}
        for name, job in jobs.items():
            job.measure(lines[name], 1)
        for _ in range(options.rounds):
            for name, job in jobs.items():
                times[name].append(job.measure(lines[name], options.steps))
                print(f"{model.words()}: {name} {times[name][-1]:.1f} ms", file=sys.stderr, flush=True)
    finally:
        for job in jobs.values():
            job.end()
    tokens = options.nproc * model.tokens()
    kolo, gloo, over_kolo = times.values()
    cells = [spread(1e3 * tokens / time for time in each).show(lambda rate: f"{rate:.0f}") for each in times.values()]
    shown = [f"{model.batch} × {model.time}", *cells, ratio(gloo, kolo), ratio(gloo, over_kolo)]
    return shown, lines


def fastest(job: Job, model: Model, steps: int) -> Line:
    """The settings with the shortest step in a short trial."""
    if "FSDP2" not in job.name:
        return Line((), model)
    shared = (0, 1) if job.name.endswith("Kolo") else (0,)
    lines = [Line(settings, model) for settings in itertools.product(RESHARD, AHEAD, shared)]
    times = {line: job.measure(line, steps) for line in lines}
    for line, time in times.items():
        print(f"{model.words()}: {job.name}: {line.describe()}: {time:.1f} ms", file=sys.stderr, flush=True)
    return min(times, key=lambda line: times[line])


def ratio(slow: list[float], fast: list[float]) -> str:
    found: Spread = spread(a / b for a, b in zip(slow, fast, strict=True))
    return found.show(lambda value: f"{value:.2f} ×")


if __name__ == "__main__":
    sys.exit(main())
