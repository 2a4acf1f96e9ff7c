#!/usr/bin/env python3
"""What compressed gradients save: the training step of ResNet-18 over slow links between two workers, with
each of Kolo's reductions and with PyTorch DDP's communication hooks, in turn, round after round.

    python3 bench/peers/compression.py [--mbit 100,1000] [--rounds 2] [--write]

`--write` puts the table into docs/compression.md. `--kolo PROGRAM` is the program to measure, by default a
release build of this repository. Needs root, and iproute2; PyTorch is measured where it can be installed.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import namespaces
import programs
from arguments import ROOT
from processes import BenchError, run_together
from results import Results
from settings import Setting
from systems import Job, Programs, gloo_ranks, kolo_ranks

DOCUMENT = ROOT / "docs" / "compression.md"
BEGIN, END = "<!-- compression.py -->", "<!-- /compression.py -->"
MEGABIT = 1_000_000

REDUCTIONS = (
    "sum",
    "bf16",
    "f16",
    "qsgd:bits=4,block=512",
    "ef-sign",
    "top-k:density=0.01",
    "random-k:density=0.01",
    "random-k:density=0.01,unbiased=true",
    "dgc:density=0.001",
    "powersgd:rank=4",
)
"""`dgc` wants SGD without momentum, in place of AdamW."""
HOOKS = ("none", "fp16", "bf16", "powersgd")
"""Of ddp_step.py; PowerSGD of rank 4 with error feedback and warm start."""


@dataclass(frozen=True)
class Extent:
    """Pairs of blocks and steps in each: few where a step takes seconds."""

    blocks: int
    steps: int


def extent(rate: int) -> Extent:
    return Extent(2, 3) if rate < 500 * MEGABIT else Extent(4, 6)


def kolo(reduction: str, found: Programs, job: Job, size: Extent) -> dict:
    optimizer = ["--optimizer", "sgd"] if reduction.startswith("dgc") else []
    options = ["--reduction", reduction, *optimizer, "--nproc", "2", "--json"]
    options += ["--blocks", str(size.blocks), "--steps", str(size.steps)]
    commands = kolo_ranks(found, job, ["bench", "step", "--model", "resnet18", *options])
    return json.loads(run_together(commands, 600)[0])


def pytorch(hook: str, found: Programs, job: Job, size: Extent) -> dict:
    options = ["--hook", hook, "--tuned", "--blocks", str(size.blocks), "--steps", str(size.steps)]
    return json.loads(run_together(gloo_ranks(found, job, "ddp_step.py", options), 600)[0])


def measure(options: argparse.Namespace, found: Programs) -> list[dict]:
    """One answer for each system, rate and round."""
    answers = []
    kinds = [("Kolo", name, kolo) for name in REDUCTIONS]
    kinds += [("PyTorch", name, pytorch) for name in HOOKS] if found.python else []
    failed = set()
    for mbit in options.mbit:
        rate = mbit * MEGABIT
        setting = Setting("compression", "step", f"{mbit} Mbit/s", "tcp", 2, rate)
        with namespaces.shaped_link(rate) as place:
            for number in range(options.rounds):
                for system, name, ask in kinds:
                    if (system, name) in failed:
                        continue
                    with tempfile.TemporaryDirectory(prefix="kolo-peers-") as folder:
                        try:
                            answer = ask(name, found, Job(setting, place, Path(folder), [], 0), extent(rate))
                        except BenchError as error:
                            if system == "Kolo":
                                raise
                            failed.add((system, name))
                            print(f"warning: {system} {name}: {error}", file=sys.stderr)
                            continue
                    answers.append({"system": system, "name": name, "mbit": mbit, **answer})
                    step, alone = answer["step_seconds"], answer["step_seconds_no_sync"]
                    told = f"{mbit} Mbit/s, round {number + 1}: {system} {name}"
                    print(f"{told}: step {step:.4f} s, alone {alone:.4f} s", file=sys.stderr)
    return answers


def table(answers: list[dict], rates: list[int]) -> str:
    """A row for each system: a step's time, and that beside the dense one's and beside its computation."""
    head = "| system | reduction | bytes |"
    head += "".join(f" step at {mbit} Mbit/s | × faster than its dense | × its computation |" for mbit in rates)
    lines = [head, "|---|---|---:|" + "---:|---:|---:|" * len(rates)]
    rows = list(dict.fromkeys((answer["system"], answer["name"]) for answer in answers))

    def median(system: str, name: str, mbit: int, key: str) -> float | None:
        of = (system, name, mbit)
        found = [a[key] for a in answers if (a["system"], a["name"], a["mbit"]) == of and key in a]
        return statistics.median(found) if found else None

    for system, name in rows:
        bytes_ = median(system, name, rates[0], "wire_bytes")
        line = f"| {system} | `{name}` | {'' if bytes_ is None else f'{bytes_ / 1e6:.2f} MB'} |"
        for mbit in rates:
            step = median(system, name, mbit, "step_seconds")
            alone = median(system, name, mbit, "step_seconds_no_sync")
            dense = median(system, "sum" if system == "Kolo" else "none", mbit, "step_seconds")
            if step is None or alone is None or dense is None:
                line += " | | |"
                continue
            line += f" {step * 1e3:.0f} ms | {dense / step:.1f} | {step / alone:.2f} |"
        lines.append(line)
    return "\n".join(lines)


def write(text: str) -> None:
    document = DOCUMENT.read_text()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    # Where the program was that was measured says nothing to others.
    words = [word for word in sys.argv[1:] if not word.startswith("--kolo=")]
    command = shlex.join(["python3", "bench/peers/compression.py", *words])
    DOCUMENT.write_text(f"{before}{BEGIN}\n`{command}`:\n\n{text}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=lambda text: [int(rate) for rate in text.split(",")], default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kolo", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into docs/compression.md")
    options = parser.parse_args()
    if reason := namespaces.obstacle():
        raise BenchError(reason)
    results = Results({})
    found = Programs(programs.kolo(options.kolo), programs.python(options.python, results), None, None)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    text = table(measure(options, found), options.mbit)
    print(text)
    if options.write:
        write(text)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"error: {error}")
