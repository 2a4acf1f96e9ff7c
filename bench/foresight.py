#!/usr/bin/env python3
"""Predictions of `kolo plan step` beside what was measured then: steps of 1 to 8 workers on this machine, each
predicted from the profile of one worker just before it was run.

    python3 bench/foresight.py --measure [--models resnet18,small,mlp] [--places loopback,1000] [--workers 2,4]
    python3 bench/foresight.py --predict        # anew, from the profiles of then
    python3 bench/foresight.py --write          # the tables of docs/notes/foresight.md, from what was measured so far

`--measure` adds a line for each link to bench/foresight.jsonl, with what its bytes cost the cores, and two for
each cell, the profile and then the step; it ends after `--budget` seconds. What is there already is not measured
again. Workers over a link of so many Mbit/s are each in a network namespace of their own at a switch (see
servers.py), which needs root and iproute2. `--kolo PROGRAM` is the program, by default a release build of this
repository.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import published
from trainings import write_between  # isort: skip  (bench/peers, which servers.py adds, has another one)

import servers
from servers import ROOT, built, network

from processes import end_on_sigterm

LINES = ROOT / "bench" / "foresight.jsonl"
DOC = ROOT / "docs" / "notes" / "foresight.md"
HERE = ("<!-- foresight.py: here -->", "<!-- /foresight.py: here -->")
PUBLISHED = ("<!-- foresight.py: published -->", "<!-- /foresight.py: published -->")
MODELS = "resnet18,small,mlp"
BATCHES = {"resnet18": 32, "small": 32, "mlp": 256}
LINKS = {"100": "100mbe", "1000": "1gbe", "10000": "10gbe"}
"""By 10⁶ bits a second: the names that `kolo plan` has for them."""
PLACES = "memory,loopback,10000,1000,100"
TITLES = {"memory": "memory", "loopback": "loopback", "100": "100 Mbit/s", "1000": "1 Gbit/s", "10000": "10 Gbit/s"}
SECONDS = 280
"""For one cell."""
BLOCK_SECONDS = 0.3
"""A block at least, but for steps beyond the 25th."""
MEASURED_SECONDS = 30
"""For a cell's blocks, where two of them do not take longer."""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--predict", action="store_true", help="anew, from the profiles measured so far")
    parser.add_argument("--write", action="store_true", help=f"into {DOC.relative_to(ROOT)}")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--places", default=PLACES, help="memory, loopback, or 10⁶ bits a second")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no cell is begun")
    parser.add_argument("--kolo", type=pathlib.Path)
    options = parser.parse_args()
    end_on_sigterm()
    kolo = options.kolo or built()
    if options.measure:
        measure(kolo, options)
    if options.predict:
        predict_anew(kolo)
    rows = known()
    here = table([row for row in rows if "measured" in row], [row for row in rows if "profile" in row])
    elsewhere = published.tables(kolo)
    print(here, elsewhere, sep="\n\n")
    if options.write:
        write_between(DOC, *HERE, here)
        write_between(DOC, *PUBLISHED, elsewhere)
    return 0


def measure(kolo: pathlib.Path, options: argparse.Namespace) -> None:
    began = time.monotonic()
    for model in options.models.split(","):
        for place in options.places.split(","):
            for workers in map(int, options.workers.split(",")):
                if workers == 1 and place != "memory" or is_known(model, place, workers):
                    continue
                if time.monotonic() - began > options.budget:
                    print("the budget is spent", file=sys.stderr)
                    return
                # A machine's speed drifts, so each cell has a profile of its own.
                profile = profiled(kolo, model, place, workers)
                predicted = prediction(kolo, profile, place, workers)
                measured = step(kolo, model, place, workers, predicted["seconds"])
                row = {"model": model, "place": place, "workers": workers, "predicted": predicted["seconds"]}
                row |= {"measured": measured["step_seconds"], "no_sync": measured["step_seconds_no_sync"]}
                add(row | {"exposed": measured["exposed_comm_seconds"], "predicted_exposed": predicted["exposed"]})


def add(row: dict) -> None:
    print(json.dumps(row), file=sys.stderr, flush=True)
    with LINES.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def is_known(model: str, place: str, workers: int) -> bool:
    cell = {"model": model, "place": place, "workers": workers}
    return any("measured" in row and cell.items() <= row.items() for row in known())


def known() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def profiled(kolo: pathlib.Path, model: str, place: str, workers: int) -> dict:
    """The profile of one worker, measured now, before a cell."""
    words = [str(kolo), "bench", "profile", "--model", model, "--batch-size", str(BATCHES[model])]
    row = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    add({"place": place, "workers": workers} | row)
    return row


def where(place: str, workers: int) -> list[str]:
    """The options of `kolo plan step` for a place."""
    if place == "memory":
        return ["--workers-per-node", str(workers), "--one-host"]
    if place == "loopback":
        return ["--between", "loopback"]
    return ["--between", LINKS[place], "--one-host", "--socket-ns", f"{socket_ns(place):.2f}"]


def socket_ns(place: str) -> float:
    """What bytes of a plain TCP connection over a link cost the cores, on which the switch is as well; measured
    once."""
    for row in known():
        if row["place"] == place and "socket_ns" in row:
            return row["socket_ns"]
    with network([float(place)] * 2):
        row = {"place": place, "socket_ns": servers.socket_ns()}
    add(row)
    return row["socket_ns"]


def prediction(kolo: pathlib.Path, profile: dict, place: str, workers: int) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(profile, file)
        file.flush()
        words = [str(kolo), "plan", "step", "--profile", file.name, *where(place, workers)]
        words += ["--workers", str(workers), "--json"]
        (row,) = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return row


def predict_anew(kolo: pathlib.Path) -> None:
    """What `kolo` predicts now beside what was measured then."""
    for place in {row["place"] for row in known()} & LINKS.keys():
        socket_ns(place)
    rows = known()
    for row in (row for row in rows if "measured" in row):
        cell = row["place"], row["workers"]
        predicted = prediction(kolo, profile_of(row, rows), *cell)
        row |= {"predicted": predicted["seconds"], "predicted_exposed": predicted["exposed"]}
    LINES.write_text("".join(json.dumps(row) + "\n" for row in rows))


def profile_of(measured: dict, rows: list[dict]) -> dict:
    """The last profile before a cell."""
    cell = [measured[name] for name in ("model", "place", "workers")]
    profiles = (row for row in reversed(rows) if "profile" in row)
    return next(row for row in profiles if [row[name] for name in ("model", "place", "workers")] == cell)


def step(kolo: pathlib.Path, model: str, place: str, workers: int, expected: float) -> dict:
    """What `kolo bench step` measures there, in more and longer blocks the shorter a step is expected to be."""
    steps = min(25, max(3, round(BLOCK_SECONDS / expected)))
    blocks = min(8, max(2, int(MEASURED_SECONDS / (2 * steps * expected))))
    words = ["bench", "step", "--model", model, "--batch-size", str(BATCHES[model]), "--json"]
    words += ["--blocks", str(blocks), "--steps", str(steps)]
    if place in ("memory", "loopback"):
        own = ["--nproc", str(workers), "--transport", "shm" if place == "memory" else "tcp"]
        ran = subprocess.run([str(kolo), *words, *own], check=True, capture_output=True, text=True, timeout=SECONDS)
        return json.loads(ran.stdout)
    with network([float(place)] * workers):
        return json.loads(servers.ranks([str(kolo), *words], workers, 0, SECONDS)[0])


def alone(row: dict) -> float:
    """Milliseconds of a profile's step."""
    return 1e3 * sum(row["profile"][part] for part in ("forward", "backward", "optimizer"))


def table(rows: list[dict], profiles: list[dict]) -> str:
    if not rows:
        return "Nothing is measured yet."
    cores = profiles[0]["cores"]
    lines = [f"| model | place | alone, ms | {cores} at once | workers | predicted, ms | measured, ms | error |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|"]
    errors = []
    for row in rows:
        profile = profile_of(row, profiles)
        error = row["predicted"] / row["measured"] - 1
        if row["workers"] > 1:
            errors.append(abs(error))
        lines.append(
            f"| `{row['model']}` | {TITLES[row['place']]} | {alone(profile):.1f} | {profile['full_slowdown']:.2f}x"
            f" | {row['workers']} | {1e3 * row['predicted']:.1f} | {1e3 * row['measured']:.1f} | {100 * error:+.0f} % |"
        )
    worst, median = 100 * max(errors), 100 * statistics.median(errors)
    small = sum(error < 0.1 for error in errors)
    lines.append("")
    lines.append(
        f"Of {len(errors)} cells with more than one worker: median error {median:.1f} % (aim: below 10), worst"
        f" {worst:.0f} % (aim: below 25); {small} below 10 %."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
