"""Trainings by `kolo train`, each made once: what came of it is remembered in a file, so that a study that
was cut off goes on where it was."""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUESSING = 0.1
"""Test accuracy of a run that has diverged: that of guessing among ten classes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every study has."""
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--model", default="small")
    parser.add_argument("--nproc", type=int, default=2, help="workers; the results do not depend on it")
    parser.add_argument("--results", type=Path, help="a file of JSON Lines; a temporary one otherwise")


class Trainings:
    """Makes runs, and remembers them in a file."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.kolo, self.nproc, self.scratch = options.kolo, options.nproc, scratch
        self.file = options.results or scratch / "results.jsonl"
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.known = {row["command"]: row for row in map(json.loads, lines)}

    def has(self, words: list[str]) -> bool:
        """Whether the run with these options has been made."""
        return shlex.join(words) in self.known

    def made(self, words: list[str]) -> dict:
        """What came of the run with these options: `steps`, `test_accuracy`, and the bytes that a worker gave
        to the sums over workers, `wire_bytes`; no steps and no bytes where it has diverged."""
        command = shlex.join(words)
        if command not in self.known:
            out = self.scratch / str(len(self.known))
            argv = [str(self.kolo), "train", *words, "--nproc", str(self.nproc), "--out", str(out)]
            done = subprocess.run(argv, capture_output=True, text=True)
            row = {"command": command, "steps": None, "wire_bytes": None, "test_accuracy": GUESSING}
            if done.returncode == 0:
                summary = json.loads((out / "summary.json").read_text())
                row |= {key: summary[key] for key in ("steps", "test_accuracy")}
                row["wire_bytes"] = summary["summed_bytes"] * wire_share(out)
            elif "diverged" not in done.stderr:
                done.check_returncode()
            with self.file.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['test_accuracy']:.4f}  kolo train {command}", file=sys.stderr)
            self.known[command] = row
        return self.known[command]


def wire_share(run: Path) -> float:
    """What the reduction of a run leaves of its buckets' bytes."""
    lines = [line.split(",") for line in (run / "buckets.csv").read_text().splitlines()]
    place = {name: lines[0].index(name) for name in ("bytes", "wire_bytes")}
    whole, wire = (sum(int(line[place[name]]) for line in lines[1:]) for name in place)
    return wire / whole


def shown(accuracies: list[float]) -> str:
    """Mean and range in per cent."""
    percent = [100 * accuracy for accuracy in accuracies]
    mean = f"{statistics.mean(percent):.2f}"
    return mean if len(percent) == 1 else f"{mean} ({min(percent):.2f}–{max(percent):.2f})"


def write_between(document: Path, begin: str, end: str, text: str) -> None:
    """Puts a text between two marks of a document, in place of what is there."""
    before, _, rest = document.read_text().partition(begin)
    document.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")
