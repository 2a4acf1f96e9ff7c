#!/usr/bin/env python3
"""Measures what a host that vanishes costs: Kolo, torchft, and torchrun with checkpoints, on three hosts each.

Each host is a network namespace with one worker and its launcher. In each run the link of one host is cut for good:
its processes run on, and nothing that they or the others send arrives. Measured are the seconds from the cut to the
others' next step, the steps done again, the samples left out, whether the others end in the weights of the undisturbed
run, and the steps that the host does alone.

    python3 bench/peers/vanished.py --json vanished.jsonl     # prints the table; about fifteen minutes; takes root
    python3 bench/peers/vanished.py --render vanished.jsonl   # the table of an earlier run
"""

import argparse
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import arguments
import hosts
import namespaces
from processes import BenchError, Running
from recovery import LOOK, MOMENT, Plan, check, circumstances, job, parser_of, reported, rows_of, settled, undisturbed
from recovery import wait as wait_for_end
from recovery_figures import CUT, Struck, cost, rendered_cuts
from recovery_systems import BATCH, WORKERS, Files, Reader, System
from vanished_systems import HOST_SYSTEMS, HostSystem

PART = "vanished"
SLEEP = 0.045
ON_ITS_WAY = 1
"""Seconds after the cut in which a step may still end that was begun before it."""
WATCHED = 30
"""Seconds after the cut in which at least the host could do steps alone."""


def main() -> int:
    return reported(parse(), measured, section, PART)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of(str(__doc__), steps=400)
    parser.add_argument("--cuts", dest="faults", type=arguments.positive, default=3, help="each in a run of its own")
    parser.set_defaults(stops=False)
    return parser.parse_args(words)


def measured(options: argparse.Namespace) -> list[dict]:
    """The rows of a whole run: its head, the cuts, and what was left out."""
    if reason := namespaces.obstacle():
        raise BenchError(f"no hosts can be made: {reason}")
    return rows_of(options, HOST_SYSTEMS, measure)


def measure(plan: Plan, system: HostSystem) -> None:
    """The undisturbed run, and one for each cut."""
    try:
        weights = undisturbed(plan, system.one_host)
        for number in range(plan.faults):
            row = cut(replace(plan, seed=plan.seed + number), system, system.cut[number % len(system.cut)], weights)
            plan.save({"row": CUT, "system": system.name, **row})
    except BenchError as error:
        if system.needs == "kolo":
            raise
        plan.save({"row": "note", "text": f"{system.name}: {error}"})


def cut(plan: Plan, system: HostSystem, host: int, weights: str) -> dict:
    """Cuts off one host, and returns what it has cost the others."""
    with hosts.joined(WORKERS) as at, job(plan, system, SLEEP, at) as (folder, running):
        for name in system.empty:
            (folder / name).touch()
        reader, others = system.reader(folder), [each for place, each in enumerate(running) if place != host]
        if not settled(plan, reader, running, -1):
            raise running[0].failure(f"had not begun with all workers within {plan.patience} s")
        time.sleep(random.Random(plan.seed).uniform(*MOMENT))
        known = reader.steps()
        last = max(known, key=lambda step: step.generation)
        struck = Struck(CUT, time.time(), max(step.step for step in known), last.generation)
        at.cut(host)
        time.sleep(ON_ITS_WAY)
        own = Files(folder, system.files.format(host=host))
        own.new()
        same = None
        if went_on(plan, reader, others, last.generation):
            wait_for_end(others[: WORKERS - 1], plan.patience + plan.steps, "had not ended")
            same = system.weights(folder) == weights
        time.sleep(max(0, struck.unix + WATCHED - time.time()))
        alone = len(own.new())
        row = cost(struck, reader.steps()).row()
        share = row["skipped"] / (BATCH * max(1, plan.steps - 1 - struck.step))
        return {"host": host, **row, "share": share, "same": same, "alone": alone}


def went_on(plan: Plan, reader: Reader, others: list[Running], generation: int) -> bool:
    """Waits for a step of a later generation; False if that never comes."""
    until = time.monotonic() + plan.patience
    while time.monotonic() < until:
        if any(step.generation > generation for step in reader.steps()):
            return True
        check(others)
        time.sleep(LOOK)
    return False


def section(rows: list[dict]) -> str:
    """The part of the document."""
    heads = [row for row in rows if row["row"] == "head"]
    cuts, steps, patience = (min(head[name] for head in heads) for name in ("kills", "steps", "patience"))
    return f"""### When its host vanishes

The same training for {steps} steps, with each worker and its launcher on a host of its own, a network namespace.
{cuts} times, in runs of their own, the link of one host is cut for good: no packet arrives any more, and both sides
run on. Kolo and torchft lose each host in turn, torchrun one that does not have its store. Median / worst.

{circumstances(rows, HOST_SYSTEMS)}
- never: not within {patience} s

{rendered_cuts(rows, [system.name for system in HOST_SYSTEMS])}"""


if __name__ == "__main__":
    sys.exit(main())
