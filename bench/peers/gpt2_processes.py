#!/usr/bin/env python3
"""Measures training of GPT-2 by several processes on CPUs: Kolo beside PyTorch, over Gloo and over Kolo.

    python3 bench/peers/gpt2_processes.py ddp --python PYTHON       # whole models; PYTHON has torch, and Kolo's wheel
    python3 bench/peers/gpt2_processes.py fsdp2 --python PYTHON     # divided parameters: Kolo's stage 3, and FSDP2
    python3 bench/peers/gpt2_processes.py fsdp2 --python PYTHON --link   # over 1 Gbit/s, by network namespaces (root)

Writes the part "gpt2-ddp" or "gpt2-fsdp2" of docs/benchmarks.md, with "-link" for the link. Each way of PyTorch first tries its settings, and the
fastest is measured. All take turns, round by round.
"""

import argparse
import itertools
import secrets
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import arguments
import machine
import namespaces
import parts
from figures import Spread, spread, table
from gpt2 import EXAMPLE, HEAD, LARGE_PAGES
from gpt2 import Shape as Model
from places import Loopback, Place
from processes import BenchError, end_on_sigterm
from settings import GBIT
from transformers import Side

Settings = tuple[int, ...]


@dataclass(frozen=True)
class Way:
    """A way of PyTorch to train on several processes."""

    title: str
    shards: tuple[str, ...]
    """Kolo's counterparts, by the example's `--shard`. With `gradients`, parameters need no second gathering,
    as where FSDP2 keeps them until the backward pass."""
    describe: Callable[[Settings], str]
    models: tuple[Model, ...]
    settings: dict[str, list[Settings]]
    """Those that are tried, by backend."""


def of_fsdp2(settings: Settings) -> str:
    reshard, ahead, shared = settings
    words = ["parameters freed after the forward pass" if reshard else "parameters kept until the backward pass"]
    words += [f"{ahead} block{'s' * (ahead > 1)} ahead"] if ahead else []
    return ", ".join(words + (["memory of the group"] if shared else []))


def of_ddp(settings: Settings) -> str:
    bucket, static = settings
    return f"buckets of {bucket} MB" + ", static graph" * static


WAYS = {
    "ddp": Way(
        "DDP",
        ("nothing",),
        of_ddp,
        (Model(4, 257, 12, 64, 128), Model(2, 257, 2, 128, 384), Model(6, 257, 8, 128, 384)),
        dict.fromkeys(("gloo", "kolo"), list(itertools.product((1, 5, 25), (0, 1)))),
    ),
    "fsdp2": Way(
        "FSDP2",
        ("parameters", "gradients"),
        of_fsdp2,
        (Model(4, 257, 1, 64), Model(4, 257, 4, 64), Model(4, 257, 4, 256)),
        {
            "gloo": list(itertools.product((0, 1), (0, 1, 2), (0,))),
            "kolo": list(itertools.product((0, 1), (0, 1, 2), (0, 1))),
        },
    ),
}


@dataclass(frozen=True)
class Line:
    """Line that a program is asked for; PyTorch's settings come first."""

    settings: Settings
    model: Model

    def words(self) -> str:
        return " ".join([*map(str, self.settings), self.model.words()])


class Job:
    """The processes of one way to train, started as torchrun would start them."""

    def __init__(self, name: str, argv: list[str], nproc: int, place: Place):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        shared = {"WORLD_SIZE": str(nproc), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        if not isinstance(place, Loopback):
            shared |= {"MASTER_ADDR": place.addresses[0], "GLOO_SOCKET_IFNAME": place.interface}
            # Ranks in one machine's namespaces could reach each other's memory.
            shared |= {"KOLO_TRANSPORT": "tcp", "KOLO_TOKEN": secrets.token_hex(16)}
        self.name = name
        self.ranks = [
            Side(
                f"{name}, rank {rank}",
                place.inside(rank, argv),
                LARGE_PAGES | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(nproc)
        ]
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
    end_on_sigterm()
    part = f"gpt2-{options.way}{'-link' * options.link}"
    return parts.write(part, options.docs, lambda: section(options))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--nproc", type=arguments.positive, default=2, help="processes (default: 2)")
    parser.add_argument("--link", action="store_true", help="two processes with 1 Gbit/s between them (root)")
    parser.add_argument("--models", type=arguments.positive, help="measure the first ones only (default: all)")
    parser.add_argument("--layers", type=arguments.positive, help="of each model (default: by model)")
    parser.add_argument("--vocabulary", type=arguments.positive, default=257)
    parser.add_argument("--rounds", type=arguments.positive, default=5)
    parser.add_argument("--steps", type=arguments.positive, default=4, help="of each way and round (default: 4)")
    parser.add_argument("--python", type=Path, help="a Python with torch and kolo")
    parser.add_argument("--example", type=Path, help="measure this program (default: build the example)")
    parser.add_argument("--docs", type=Path, default=arguments.DOCS)
    options = parser.parse_args()
    if options.link and options.nproc != 2:
        parser.error(f"--nproc {options.nproc}: --link has two ends")
    return options


def section(options: argparse.Namespace) -> str:
    way, python = WAYS[options.way], parts.pytorch(options.python)
    example = [str(options.example.resolve())] if options.example else EXAMPLE
    script = [python, "-P", str(Path(__file__).with_name("gpt2_processes_pytorch.py"))]
    argvs = {
        f"{way.title} over Gloo": [*script, "gloo", options.way],
        f"{way.title} over Kolo": [*script, "kolo", options.way],
    } | {kolo(shard): [*example, "--shard", shard] for shard in way.shards}
    rows, best = [], []
    if options.link and (obstacle := namespaces.obstacle()):
        raise BenchError(f"--link: {obstacle}")
    with namespaces.shaped_link(GBIT) if options.link else nullcontext(Loopback()) as place:
        for model in way.models[: options.models]:
            model = replace(model, vocabulary=options.vocabulary, layers=options.layers or model.layers)
            row, chosen = measured(way, argvs, model, options, place)
            rows.append(row)
            best += [f"{row[0]}, {name}: {way.describe(settings)}" for name, settings in chosen.items()]
    ratios = [f"{name} / {way.title} over Gloo" for name in [*argvs][1:]]
    columns = ["layers, width, tokens of a process", *(f"{name}, tokens/s" for name in argvs), *ratios]
    return "\n\n".join([head(way, options), table(columns, rows), "Settings: " + "; ".join(best) + "."])


def kolo(shard: str) -> str:
    return "Kolo" if shard == "nothing" else f"Kolo, `{shard}`"


def head(way: Way, options: argparse.Namespace) -> str:
    kind = "whole in each process" if "nothing" in way.shards else "with its parameters divided among the processes"
    over = " over 1 Gbit/s" * options.link
    return f"""### {way.title}{over}

GPT-2's blocks in heads of {HEAD}, {kind}: a step of {options.nproc} processes of one thread{over} with AdamW, without
dropout, f32, vocabulary of {options.vocabulary} ({machine.cpu_model()}). Tokens a second of all processes by the clock, median
of all rounds (lowest–highest); ratios are taken round by round. PyTorch has fused AdamW.
Command: `{parts.command("gpt2_processes.py")}`."""


def measured(
    way: Way, argvs: dict[str, list[str]], model: Model, options: argparse.Namespace, place: Place
) -> tuple[list[str], dict[str, Settings]]:
    """The row of a model, and the fastest settings. Only this model's programs are in memory."""
    jobs = {name: Job(name, argv, options.nproc, place) for name, argv in argvs.items()}
    times: dict[str, list[float]] = {name: [] for name in argvs}
    try:
        chosen = {
            name: fastest(way, jobs[name], argv[-2], model, options.steps)
            for name, argv in argvs.items()
            if argv[-1] == options.way
        }
        lines = {name: Line(chosen.get(name, ()), model) for name in argvs}
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
    gloo, *others = times.values()
    cells = [spread(1e3 * tokens / time for time in each).show(lambda rate: f"{rate:.0f}") for each in times.values()]
    name = f"{model.layers}, {model.width}, {model.batch} × {model.time}"
    return [name, *cells, *(ratio(gloo, other) for other in others)], chosen


def fastest(way: Way, job: Job, backend: str, model: Model, steps: int) -> Settings:
    """The settings with the shortest step in a short trial."""
    times = {settings: job.measure(Line(settings, model), steps) for settings in way.settings[backend]}
    for settings, time in times.items():
        print(f"{model.words()}: {job.name}: {way.describe(settings)}: {time:.1f} ms", file=sys.stderr, flush=True)
    return min(times, key=lambda settings: times[settings])


def ratio(slow: list[float], fast: list[float]) -> str:
    found: Spread = spread(a / b for a, b in zip(slow, fast, strict=True))
    return found.show(lambda value: f"{value:.2f} ×")


if __name__ == "__main__":
    sys.exit(main())
