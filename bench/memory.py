#!/usr/bin/env python3
"""Memory of the workers of `kolo train`, measured, beside the formula of `kolo plan memory`.

    cargo build --release && python3 bench/memory.py                     # all that has not been measured
    python3 bench/memory.py --models resnet18 --workers 2 --shardings host
    python3 bench/memory.py --table                                      # writes docs/notes/sharding.md

A figure is the mean over the workers of what they have written to: PSS of private and of shared pages, in which a
page counts by its part. The program's file is left out: its part depends on who else runs it. The figure is the
largest sample between step 4 and the last one; before that the first step's buckets are cut anew. The largest one
until then is that of the start. One worker without sharding has its state, a batch's activations and what a layer's
pass needs; the formula says what other jobs have besides. Pages of 2 MiB are off, since they count in full where an
allocator has touched a part. Each job is measured once, and added to bench/memory.jsonl; the last figure of a job
counts. Runs use shared memory.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainings import ROOT, write_between

RESULTS = ROOT / "bench" / "memory.jsonl"
DOCUMENT = ROOT / "docs" / "notes" / "sharding.md"
BEGIN, END = "<!-- bench/memory.py: begin -->", "<!-- end -->"
SETTLED = 4
"""Steps after which a job's buckets have their places."""
MODELS = {
    "resnet18": (40, ["--no-augment"], 512 * 512 * 9),
    "gpt2:tiny": (100, ["--context", "16"], None),
    "gpt2:small": (8, ["--context", "16"], None),
}
"""Number of steps, options, and parameters of the largest tensor where `kolo plan memory` does not know the model."""
SHARDINGS = ["nothing", "host", "optimizer", "gradients", "parameters"]
COMMON = ["--batch-size", "1", "--optimizer", "adamw", "--lr", "1e-4", "--warmup-steps", "0", "--transport", "shm"]
TEXT = "A text of a few words, from which nobody learns anything.\n" * 40
SMALL_PAGES = {"MIMALLOC_ALLOW_THP": "0"}
SECONDS = 1800
MIB = 1 << 20


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--workers", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4])
    parser.add_argument("--shardings", type=lambda text: text.split(","), default=SHARDINGS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="measure also what has been measured")
    parser.add_argument("--table", action="store_true", help="measure nothing, and write the table")
    options = parser.parse_args()
    jobs = [(model, 1, "nothing") for model in options.models]
    jobs += list(itertools.product(options.models, options.workers, options.shardings))
    try:
        known = results(options.results)
        for job in jobs:
            if not options.table and (options.again or job not in known):
                known[job] = measured(options.kolo, *job)
                with options.results.open("a") as file:
                    file.write(json.dumps(known[job]) + "\n")
        text = table(options.kolo, [job for job in jobs if job in known], known)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text)
    if options.table:
        write_between(DOCUMENT, BEGIN, END, text)
    return 0


def results(file: Path) -> dict[tuple, dict]:
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return {(row["model"], row["workers"], row["sharding"]): row for row in rows}


def measured(kolo: Path, model: str, workers: int, sharding: str) -> dict:
    """Memory of a job, which ends in any case."""
    steps, words, _ = MODELS[model]
    with tempfile.TemporaryDirectory(prefix="kolo-memory-") as scratch:
        text, out = Path(scratch) / "text.txt", Path(scratch) / "run"
        text.write_text(TEXT)
        data = ["--data", f"text:{text}"] if model.startswith("gpt2") else []
        argv = [str(kolo), "train", "--model", model, *words, *data, *COMMON, "--steps", str(steps), "--out", str(out)]
        argv += ["--nproc", str(workers), "--shard", sharding]
        with (Path(scratch) / "said").open("w+") as said:
            job = subprocess.Popen(argv, stdout=said, stderr=subprocess.STDOUT, env=os.environ | SMALL_PAGES)
            try:
                most = watched(job, workers, out, steps)
            finally:
                job.kill()
                job.wait()
            if job.returncode or not most:
                said.seek(0)
                raise RuntimeError(f"{' '.join(argv)}: exit code {job.returncode}\n{said.read()}")
        parameters = json.loads((out / "summary.json").read_text())["parameters"]
    row = {"model": model, "workers": workers, "sharding": sharding, "parameters": parameters} | most
    print(json.dumps(row), file=sys.stderr)
    return row


def watched(job: subprocess.Popen, workers: int, run: Path, steps: int) -> dict:
    """The largest sample, in bytes of each worker: all, what it shares, and all at the start; empty if none."""
    most: dict = {}
    start = 0
    until = time.monotonic() + SECONDS
    while job.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
        done = lines(run / "steps.jsonl")
        with contextlib.suppress(OSError):
            samples = [pss(worker) for worker in workers_of(job.pid)]
            # A sample after the last step may see the last checkpoint.
            if len(samples) != workers or lines(run / "steps.jsonl") >= steps:
                continue
            sample = {name: sum(sample[name] for sample in samples) // workers for name in samples[0]}
            if done < SETTLED:
                start = max(start, sample["bytes"])
            else:
                most = max(most, sample, key=lambda sample: sample.get("bytes", 0))
    return most and most | {"start_bytes": start}


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def workers_of(launcher: int) -> list[int]:
    tasks = Path(f"/proc/{launcher}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in children if b"\0RANK=" in b"\0" + Path(f"/proc/{child}/environ").read_bytes()]


def pss(process: int) -> dict:
    found = dict(line.split(":") for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    private, shared = (int(found[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))
    return {"bytes": private + shared, "shared_bytes": shared}


def planned(kolo: Path, row: dict) -> float:
    """Bytes by formula."""
    words = [str(kolo), "plan", "memory", "--footprint", "f32-adam", "--workers", str(row["workers"]), "--json"]
    largest = MODELS[row["model"]][2]
    words += ["--parameters", str(row["parameters"]), "--largest", str(largest)] if largest else ["--model", row["model"]]
    entries = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)[0]["by_sharding"]
    return next(entry["held_bytes"] for entry in entries if entry["sharding"] == row["sharding"])


def table(kolo: Path, jobs: list[tuple], known: dict[tuple, dict]) -> str:
    rows = [
        "| model | workers | `--shard` | formula | with activations | measured | of it shared | difference | start |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model, workers, sharding in jobs:
        row, one = known[model, workers, sharding], known[model, 1, "nothing"]
        formula = planned(kolo, row)
        expected = formula + one["bytes"] - planned(kolo, one)
        difference = "" if row is one else f"{100 * (row['bytes'] / expected - 1):+.0f} %"
        sizes = [formula, expected, row["bytes"], row["shared_bytes"]]
        cells = [f"`{model}`", str(workers), f"`{sharding}`", *(f"{size / MIB:.0f}" for size in sizes), difference]
        cells.append(f"{row['start_bytes'] / MIB:.0f}")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
