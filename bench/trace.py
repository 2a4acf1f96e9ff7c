#!/usr/bin/env python3
"""Records the timeline of a run of four ranks, checks it against the Trace Event Format, and compares what
follows from it with the run's own files.

    cargo build --release -p kolo && python3 bench/trace.py [--kolo target/release/kolo] [--cost]

Checked of the format: its object form, the fields that each phase must have and their types, that spans of a
thread lie in one another or apart, and that every thread that has spans has a name. Compared: bytes on the
wire of each step with `buckets.csv`, waits of rank 0 with `exposed_comm_seconds` of `steps.jsonl`, the
length of each step with its `seconds`. --cost measures what recording costs.
"""

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RANKS = 4
TRAIN = ["train", "--master-port", "29611"]
# A timeline's clock has nanoseconds, and the JSON three digits of a microsecond.
ROUNDING_US = 0.002
# The fields that the format asks for, by phase.
FIELDS = {
    "X": {"name": str, "cat": str, "ts": (int, float), "dur": (int, float), "pid": int, "tid": int},
    "i": {"name": str, "cat": str, "ts": (int, float), "s": str, "pid": int, "tid": int},
    "M": {"name": str, "pid": int, "args": dict},
}
METADATA = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}


def check_format(trace: dict) -> list[dict]:
    assert isinstance(trace, dict) and isinstance(trace["traceEvents"], list), "the object form"
    assert trace.get("displayTimeUnit") in ("ms", "ns")
    named, spans = set(), defaultdict(list)
    for event in trace["traceEvents"]:
        fields = FIELDS[event["ph"]]
        for name, kind in fields.items():
            assert isinstance(event[name], kind), (name, event)
        thread = (event["pid"], event.get("tid"))
        if event["ph"] == "M":
            assert event["name"] in METADATA, event
            named |= {thread} if event["name"] == "thread_name" else set()
            continue
        assert event["ts"] >= 0 and event.get("dur", 0) >= 0, event
        assert event["ph"] != "i" or event["s"] in ("g", "p", "t"), event
        if event["ph"] == "X":
            spans[thread].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    assert set(spans) <= named, set(spans) - named
    for thread, of_thread in spans.items():
        check_nesting(thread, of_thread)
    return [event for event in trace["traceEvents"] if event["ph"] != "M"]


def check_nesting(thread: tuple, spans: list[tuple]) -> None:
    open_spans: list[tuple] = []
    for start, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_spans and open_spans[-1][1] <= start + ROUNDING_US:
            open_spans.pop()
        if open_spans:
            assert end <= open_spans[-1][1] + ROUNDING_US, (thread, name, open_spans[-1])
        open_spans.append((start, end, name))


def compare(run: Path, events: list[dict]) -> dict:
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    with open(run / "buckets.csv") as file:
        expected = sum(int(row["bytes"]) for row in csv.DictReader(file))
    sent, length, waits = defaultdict(int), {}, 0.0
    starts = defaultdict(set)
    for event in events:
        step, rank = event["args"]["step"], event["pid"]
        if event["name"].startswith("reduce bucket"):
            sent[rank, step] += event["args"]["bytes"]
            starts[step].add(event["args"]["bucket"])
        if event["name"] == "step" and rank == 0:
            length[step] = event["dur"] / 1e6
        if event["cat"] == "wait" and rank == 0:
            waits += event["dur"] / 1e6
    # Gradients of the last step are back before the model is evaluated.
    assert {rank for rank, _ in sent} == set(range(RANKS)), sorted(sent)
    for (rank, step), found in sent.items():
        assert found == expected, f"rank {rank}, step {step}: {found} bytes, buckets.csv says {expected}"
    assert {step for _, step in sent} == {row["step"] for row in steps}
    seconds = sum(row["seconds"] for row in steps)
    exposed = sum(row["exposed_comm_seconds"] for row in steps)
    off = max(abs(length[row["step"]] - row["seconds"]) for row in steps)
    assert off < 1e-5, f"a step's length is off by {off} s"
    difference = abs(waits - exposed) / seconds
    assert difference < 0.02, f"waits {waits} s, exposed {exposed} s of {seconds} s"
    return {
        "steps": len(steps),
        "events": len(events),
        "bytes a step": expected,
        "exposed, by the timeline": f"{waits / seconds:.2%}",
        "exposed, by steps.jsonl": f"{exposed / seconds:.2%}",
    }


def train(kolo: Path, folder: Path, *options: str) -> Path:
    out = folder / "run"
    command = [kolo, *TRAIN, "--out", out, *options]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def recorded_beside_not(kolo: Path, model: str, recorded: range, of: int) -> float:
    """The median length of a step that is recorded, divided by that of one that is not, of one run."""
    with tempfile.TemporaryDirectory() as folder:
        steps = f"{recorded.start}-{recorded.stop - 1}"
        options = ["--trace", f"{folder}/trace.json", "--trace-steps", steps, "--steps", str(of)]
        run = train(kolo, Path(folder), "--nproc", "2", "--model", model, "--epochs", "1000", *options)
        rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
        # Without those that are profiled, and those after which the model is evaluated or a checkpoint taken.
        ends = {row["step"] for row, after in zip(rows, rows[1:]) if row["epoch"] != after["epoch"]}
        plain = [row for row in rows if row["step"] >= 10 and row["step"] - 1 not in ends]
        median = lambda inside: statistics.median(
            row["seconds"] for row in plain if (row["step"] in recorded) == inside
        )
        return median(True) / median(False)


def cost(kolo: Path) -> None:
    """Recorded is once the first and once the second half of a run, so that what changes with time cancels."""
    for model, steps in (("mlp", 1600), ("small", 400)):
        ratios = []
        for _ in range(5):
            halves = range(steps // 2), range(steps // 2, steps)
            ratios.append(math.prod(recorded_beside_not(kolo, model, half, steps) for half in halves) ** 0.5)
        ratios.sort()
        print(f"{model}: a recorded step / another: {statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})")


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--cost", action="store_true")
    arguments = parser.parse_args()
    if not arguments.kolo.exists():
        print(f"error: there is no {arguments.kolo}: build it, or name it with --kolo", file=sys.stderr)
        return 2
    kolo = arguments.kolo.resolve()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        run = train(kolo, Path(folder), "--nproc", str(RANKS), "--epochs", "2", "--trace", str(file))
        for name, value in compare(run, check_format(json.loads(file.read_text()))).items():
            print(f"{name}: {value}")
    if arguments.cost:
        cost(kolo)
    return 0


if __name__ == "__main__":
    sys.exit(main())
