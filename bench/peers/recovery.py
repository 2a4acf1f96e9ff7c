#!/usr/bin/env python3
"""Measures what a killed worker costs: Kolo, torchft, and torchrun with checkpoints, three workers each.

Every system trains the same small network. Ten times, at moments and on workers that a seed draws, a worker is
killed by SIGKILL; its launcher replaces it. In a second job one worker is stopped (SIGSTOP), as if its host had
vanished. Measured are the seconds until the next step and until all three work again, the steps done again, the
samples left out, and whether the weights at the end are those of the undisturbed run.

    python3 bench/peers/recovery.py --json recovery.jsonl     # prints the table; about twenty minutes
    python3 bench/peers/recovery.py --render recovery.jsonl   # the table of an earlier run
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import arguments
import environment
import machine
import parts
import programs
import recovery_systems
from processes import BenchError, Running, end_on_sigterm, started
from hosts import Hosts
from recovery_figures import CUT, FAULT, KILL, STOP, Fault, Struck, costs, rendered
from recovery_systems import SYSTEMS, WORKERS, Job, Reader, Step, System
from run import without_absolute_path
from systems import Programs

PART = "recovery"
SLEEP = 0.045
"""Seconds of sleep for a worker's part of a step; its computation takes some milliseconds."""
SETTLED = 5
"""Steps that all three have to do before the next fault."""
MOMENT = (0.1, 1.0)
"""Seconds after that in which a fault comes."""
LOOK = 0.05
NEVER_LOOKED = 60
"""Seconds after the next step in which a stopped worker has to be replaced, or never is."""


@dataclass
class Plan:
    """What is measured, and by which clock, processes and signals."""

    programs: Programs
    systems: list[System]
    faults: int
    stops: bool
    steps: int
    checkpoint_steps: int
    seed: int
    patience: float
    save: Callable[[dict], None]


def main() -> int:
    return reported(parse(), measured, section, PART)


def reported(
    options: argparse.Namespace,
    measured: Callable[[argparse.Namespace], list[dict]],
    section: Callable[[list[dict]], str],
    part: str,
) -> int:
    """Measures, or reads an earlier run, and shows the part of the document; the status to exit with."""
    end_on_sigterm()

    def text() -> str:
        if options.render:
            return section([json.loads(line) for line in options.render.read_text().splitlines()])
        return section(measured(options))

    return parts.write(part, options.docs, text)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of(str(__doc__), steps=1200)
    parser.add_argument("--kills", dest="faults", type=arguments.positive, default=10)
    parser.add_argument("--no-stop", dest="stops", action="store_false", help="leave out the stopped worker")
    return parser.parse_args(words)


def parser_of(text: str, steps: int) -> argparse.ArgumentParser:
    """The options of every script that disturbs jobs."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=text, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, help="measure this program (default: build target/release/kolo)")
    parser.add_argument("--python", type=Path, help="a Python with torch, and torchft (default: make .venv here)")
    parser.add_argument("--only", help="names of systems with semicolons between them, as 'Kolo;torchrun'")
    parser.add_argument("--steps", type=arguments.positive, default=steps, help="of each job")
    parser.add_argument(
        "--checkpoint-steps", type=arguments.positive, default=20, help="between torchrun's checkpoints"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=arguments.positive, default=120, help="seconds for one recovery")
    parser.add_argument("--json", type=Path, help="write each measurement to this file at once, a JSON object a line")
    parser.add_argument("--render", type=Path, help="measure nothing, show the table of an earlier --json")
    parser.add_argument("--docs", type=Path, help="put the table into this document, as docs/benchmarks.md")
    return parser


def measured(options: argparse.Namespace) -> list[dict]:
    """The rows of a whole run: its head, the faults, the ends, and what was left out."""
    return rows_of(options, SYSTEMS, measure)


def rows_of(
    options: argparse.Namespace, systems: Sequence[System], measure: Callable[[Plan, System], None]
) -> list[dict]:
    rows: list[dict] = []

    def save(row: dict) -> None:
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(row) + "\n")

    wanted = set(options.only.split(";")) if options.only else {system.name for system in systems}
    names = [system.name for system in systems]
    if unknown := sorted(wanted - set(names)):
        raise BenchError(f"--only {'; '.join(unknown)}: none of {'; '.join(names)}")
    chosen = [system for system in systems if system.name in wanted]
    ready, versions = found(options, chosen, save)
    save({"row": "head", **head(options, versions)})
    there = [system for system in chosen if system.needs == "kolo" or system.needs in versions]
    plan = Plan(
        ready,
        there,
        options.faults,
        options.stops,
        options.steps,
        options.checkpoint_steps,
        options.seed,
        options.patience,
        save,
    )
    for system in there:
        measure(plan, system)
    return rows


def found(options: argparse.Namespace, chosen: list[System], save: Callable[[dict], None]) -> tuple[Programs, dict]:
    """The programs, and the versions of what is there; a peer that is missing leaves a row."""
    kolo = programs.kolo(options.kolo)
    ready, versions = Programs(kolo, None, None, None), {"Kolo": machine.version([kolo, "--version"])}
    needed = {system.needs for system in chosen} - {"kolo"}
    try:
        if needed:
            python = environment.with_torch(options.python)
            ready = Programs(kolo, python, None, None)
            versions["torch"] = environment.torch_version(python)
        if "torchft" in needed:
            versions["torchft"] = environment.torchft_version(ready.python, install=not options.python)
    except BenchError as error:
        save({"row": "note", "text": str(error)})
    return ready, versions


def head(options: argparse.Namespace, versions: dict) -> dict:
    words = ["python3", f"bench/peers/{Path(sys.argv[0]).name}", *map(without_absolute_path, sys.argv[1:])]
    return {
        "machine": machine.describe(),
        "load": round(machine.load(), 2),
        "versions": versions,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "commit": machine.commit(arguments.ROOT),
        "command": shlex.join(words),
        "kills": options.faults,
        "steps": options.steps,
        "checkpoint_steps": options.checkpoint_steps,
        "patience": options.patience,
    }


def measure(plan: Plan, system: System) -> None:
    """The undisturbed run, the one with kills, and the one with a stopped worker."""
    try:
        weights = undisturbed(plan, system)
        with job(plan, system, SLEEP) as (folder, running):
            for fault in disturbed(plan, system, folder, running, KILL, plan.faults):
                plan.save({"row": FAULT, "system": system.name, **fault.row()})
            wait(running[:1], plan.patience + plan.steps, "had not ended")
            plan.save({"row": "end", "system": system.name, "same": system.weights(folder) == weights})
        if plan.stops:
            with job(plan, system, SLEEP) as (folder, running):
                for fault in disturbed(plan, system, folder, running, STOP, 1):
                    plan.save({"row": FAULT, "system": system.name, **fault.row()})
    except BenchError as error:
        if system.needs == "kolo":
            raise
        plan.save({"row": "note", "text": f"{system.name}: {error}"})


def undisturbed(plan: Plan, system: System) -> str:
    """The hash of the weights; without the sleep, which changes none of them."""
    with job(plan, system, 0) as (folder, running):
        wait(running[:1], plan.patience + plan.steps, "had not ended")
        return system.weights(folder)


@contextlib.contextmanager
def job(
    plan: Plan, system: System, sleep: float, hosts: Hosts | None = None
) -> Iterator[tuple[Path, list[Running]]]:
    """A job of a system while it runs, with nothing left of it."""
    with tempfile.TemporaryDirectory(prefix="kolo-recovery-") as text:
        folder = Path(text)
        try:
            own = Job(folder, plan.steps, sleep, plan.checkpoint_steps, hosts)
            with started(system.commands(plan.programs, own)) as running:
                yield folder, running
        finally:
            recovery_systems.end_all(folder)


def disturbed(
    plan: Plan, system: System, folder: Path, running: list[Running], kind: str, count: int
) -> list[Fault]:
    """Strikes workers that the seed draws, each when all are at work again, and returns what it has cost."""
    reader, chance = system.reader(folder), random.Random(plan.seed)
    struck: list[Struck] = []
    settled(plan, reader, running, -1)
    for number in range(count):
        time.sleep(chance.uniform(*MOMENT))
        workers = recovery_systems.processes(folder, system.worker)
        if len(workers) != WORKERS:
            raise BenchError(f"{len(workers)} workers are there instead of {WORKERS}, before fault {number + 1}")
        known = reader.steps()
        last = max(known, key=lambda step: step.generation)
        unix = time.time()
        os.kill(chance.choice(workers), signal.SIGKILL if kind == KILL else signal.SIGSTOP)
        struck.append(Struck(kind, unix, max(step.step for step in known), last.generation))
        if not settled(plan, reader, running, last.generation):
            break
    return costs(struck, reader.steps())


def settled(plan: Plan, reader: Reader, running: list[Running], generation: int) -> bool:
    """Waits until all workers have done some steps in a later generation; False if that never comes."""
    until = time.monotonic() + plan.patience
    begun = len(reader.steps())
    went_on = False
    while time.monotonic() < until:
        later = [step for step in reader.steps()[begun:] if step.generation > generation]
        full = [step.step for step in later if step.world == WORKERS]
        if full and max(step.step for step in later) >= full[0] + SETTLED:
            return True
        if later and not went_on:
            went_on, until = True, time.monotonic() + min(plan.patience, NEVER_LOOKED)
        check(running)
        time.sleep(LOOK)
    return False


def check(running: list[Running]) -> None:
    for each in running:
        if (status := each.status()) is not None:
            raise each.failure(f"ended with {status} before all faults had come: give more --steps")


def wait(running: list[Running], seconds: float, what: str) -> None:
    """Until those commands have ended well."""
    until = time.monotonic() + seconds
    for each in running:
        while (status := each.status()) is None:
            if time.monotonic() > until:
                raise each.failure(f"{what} after {seconds:.0f} s")
            time.sleep(LOOK)
        if status:
            raise each.failure(f"failed: status {status}")


def circumstances(rows: list[dict], systems: Sequence[System]) -> str:
    """Where and with which settings a run was made, or several one after the other, and what they left out."""
    heads = [row for row in rows if row["row"] == "head"]
    first, loads = heads[0], ", ".join(str(each["load"]) for each in heads)
    known = {name: text.removeprefix("kolo ") for each in heads for name, text in each["versions"].items()}
    versions = ", ".join(f"{name} {text}" for name, text in known.items())
    commands = [f"- command: `{each['command']}`" for each in heads]
    names = {row["system"] for row in rows if row["row"] in (FAULT, CUT)}
    settings = [f"- {each.name}: {each.settings}" for each in systems if each.name in names]
    notes = [f"- not measured: {row['text'].splitlines()[0]}" for row in rows if row["row"] == "note"]
    return f"""- machine: {first['machine']}; load average before the run {loads}
- versions: {versions}
- date: {first['date']}, commit {first['commit']}
{chr(10).join([*commands, *settings, *notes])}"""


def section(rows: list[dict]) -> str:
    """The part of the document."""
    first = next(row for row in rows if row["row"] == "head")
    kills, steps, saved = first["kills"], first["steps"], first["checkpoint_steps"]
    return f"""## When a worker dies

Three workers train LeNet-300-100 for {steps} steps, each of which takes some 50 ms. {kills} times SIGKILL ends a
worker that a seed draws, and its launcher replaces it: median / worst. Then SIGSTOP stops one worker once, as if
its host had vanished. torchrun writes a checkpoint every {saved} steps. torchft repeats the batch of a failed step.

{circumstances(rows, SYSTEMS)}

![Seconds from a killed worker to the next step](recovery.svg)

{rendered(rows)}"""


if __name__ == "__main__":
    sys.exit(main())
