#!/usr/bin/env python3
"""The best that `kolo plan step --advise` names beside the best that is measured: bucket cap, reduction and
synchronization of two workers over links of 100 Mbit/s, 1 and 10 Gbit/s.

    python3 bench/advice.py [--mbit 100,1000,10000] [--model resnet18] [--batch-size 32]
    python3 bench/advice.py --write     # the tables of docs/notes/foresight.md, of all that was measured so far

One worker is profiled with each reduction (`kolo bench profile`), and the plan is made from these profiles.
Then steps are measured (`kolo bench step`): with each cap, reduction and synchronization of the plan alone,
with the combination that the plan names, and with each cap beside the best of these. At last the plan's best and
the measured best take turns. Workers are each in a network namespace of their own at a switch (servers.py),
which needs root and iproute2. A link takes about a quarter of an hour. What is measured goes to
bench/advice.jsonl at once; what is there is not measured again, so that a run that was ended goes on.
`--kolo PROGRAM` is the program, by default a release build of this repository.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable

from foresight import DOC, TITLES, where  # isort: skip  (before servers, which adds bench/peers)
from trainings import write_between  # isort: skip  (bench/peers, which servers.py adds, has another one)

import servers
from servers import ROOT, BenchError, built, network, obstacle

from processes import end_on_sigterm

LINES = ROOT / "bench" / "advice.jsonl"
MARKS = ("<!-- advice.py -->", "<!-- /advice.py -->")
REDUCTIONS = ["sum", "bf16", "qsgd", "ef-sign", "top-k", "random-k", "random-k:unbiased=true", "powersgd"]
KINDS = ("--bucket-cap-mb", "--reduction", "--sync")
AS_IT_IS = "as it is"
WORKERS = 2
TURNS = 3
"""Of the plan's best and the measured one."""
SECONDS = 600
"""For one run."""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--mbit", default="100,1000,10000")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", default="32")
    parser.add_argument("--write", action="store_true", help=f"into {DOC.relative_to(ROOT)}")
    parser.add_argument("--kolo", type=pathlib.Path)
    options = parser.parse_args()
    if options.write:
        write_between(DOC, *MARKS, table(known()))
        return 0
    if why := obstacle():
        sys.exit(why)
    end_on_sigterm()
    kolo = options.kolo or built()
    with tempfile.TemporaryDirectory(prefix="kolo-advice-") as folder:
        work = [str(kolo), options.model, options.batch_size]
        profiles = [profile(work, reduction, pathlib.Path(folder)) for reduction in REDUCTIONS]
        for mbit in options.mbit.split(","):
            link(work, mbit, profiles)
    return 0


def profile(work: list[str], reduction: str, folder: pathlib.Path) -> str:
    """The file of one worker's profile with that reduction."""
    kolo, model, batch = work
    file = folder / f"{REDUCTIONS.index(reduction)}.json"
    words = [kolo, "bench", "profile", "--model", model, "--batch-size", batch, "--reduction", reduction]
    file.write_text(subprocess.run(words, check=True, capture_output=True, text=True, timeout=SECONDS).stdout)
    return str(file)


def link(work: list[str], mbit: str, profiles: list[str]) -> None:
    """Measures what there is to measure over a link of so many Mbit/s."""
    predicted = plan(work[0], mbit, profiles)
    rows = {row["options"]: row for row in known() if row["mbit"] == mbit}
    for options, row in rows.items():
        row["predicted"] = predicted.get(options)

    def keep(row: dict) -> None:
        rows[row["options"]] = row
        others = [row for row in known() if row["mbit"] != mbit]
        LINES.write_text("".join(json.dumps(row) + "\n" for row in [*others, *rows.values()]))

    def measure(options: str, expected: float) -> None:
        if options not in rows:
            row = {"mbit": mbit, "options": options, "predicted": predicted.get(options)}
            keep(row | {"seconds": step(work, options, expected), "turns": []})

    with network([float(mbit)] * WORKERS):
        for options in filter(is_single, predicted):
            measure(options, predicted[options])
        fastest = best_of([row for row in rows.values() if is_single(row["options"])])
        caps = [options for options in rows if is_single(options) and options.startswith(KINDS[0])]
        beside = [] if fastest["options"] in caps else [f"{cap} {fastest['options']}" for cap in caps]
        named = min(predicted, key=predicted.get)
        for options in [named, *beside]:
            measure(options, fastest["seconds"])
        for turn in range(TURNS):
            for options in {named, best_of(rows.values())["options"]}:
                row = rows[options]
                if len(row["turns"]) <= turn:
                    keep(row | {"turns": [*row["turns"], step(work, options, fastest["seconds"])]})


def best_of(rows: Iterable[dict]) -> dict:
    """The fastest one of those that were measured one after another."""
    return min(rows, key=lambda row: row["seconds"])


def plan(kolo: str, mbit: str, profiles: list[str]) -> dict[str, float]:
    """Seconds of a step by options, as the plan has them, all with the samples of the job as it is."""
    words = [kolo, "plan", "step", "--profile", ",".join(profiles), *where(mbit, WORKERS)]
    words += ["--workers", str(WORKERS), "--advise", str(WORKERS), "--json"]
    told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    seconds = {AS_IT_IS: told["steps"][0]["seconds"]}
    for advice in told["advice"]:
        if set(advice["options"].split()[::2]) <= set(KINDS):
            seconds[advice["options"]] = advice["seconds"]
    return seconds


def is_single(options: str) -> bool:
    return options == AS_IT_IS or len(options.split()) == 2


def step(work: list[str], options: str, expected: float) -> float:
    """Measured seconds of a step with these options; the longer one is expected to take, the fewer are made."""
    kolo, model, batch = work
    words = [kolo, "bench", "step", "--model", model, "--batch-size", batch, "--json"]
    words += [] if options == AS_IT_IS else options.split()
    if "H=" in options:
        words += ["--blocks", "1" if "H=50" in options else "4"]
    else:
        words += ["--blocks", "1", "--steps", "2"] if expected > 1 else ["--blocks", "3", "--steps", "4"]
    seconds = json.loads(servers.ranks(words, WORKERS, 0, SECONDS)[0])["step_seconds"]
    print(f"{options}: {1e3 * seconds:.1f} ms", file=sys.stderr, flush=True)
    return seconds


def known() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def table(rows: list[dict]) -> str:
    """The bests, and below them every change by itself."""
    lines = ["| link | the plan's best | predicted, ms | measured, ms | measured best | measured, ms | ratio | within 5 % |"]
    lines += ["|---|---|---:|---:|---|---:|---:|---|"]
    mbits = sorted({row["mbit"] for row in rows}, key=float)
    for mbit in mbits:
        own = [row for row in rows if row["mbit"] == mbit]
        named = min((row for row in own if row["predicted"] is not None), key=lambda row: row["predicted"])
        best = best_of(own)
        measured = [1e3 * statistics.median(row["turns"]) for row in (named, best)]
        ratio = measured[0] / measured[1]
        lines.append(
            f"| {TITLES[mbit]} | `{named['options']}` | {1e3 * named['predicted']:.1f} | {measured[0]:.1f}"
            f" | `{best['options']}` | {measured[1]:.1f} | {ratio:.3f} | {'yes' if ratio <= 1.05 else 'no'} |"
        )
    lines += ["", "Every change alone, predicted / measured, ms:", ""]
    lines += ["| | " + " | ".join(TITLES[mbit] for mbit in mbits) + " |", "|---|" + "---:|" * len(mbits)]
    cells = {(row["options"], row["mbit"]): row for row in rows}
    for options in dict.fromkeys(row["options"] for row in rows if is_single(row["options"])):
        of = [cells.get((options, mbit)) for mbit in mbits]
        told = [f"{1e3 * row['predicted']:.1f} / {1e3 * row['seconds']:.1f}" if row else "" for row in of]
        lines.append(f"| {options if options == AS_IT_IS else f'`{options}`'} | " + " | ".join(told) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(str(error))
