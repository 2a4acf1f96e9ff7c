#!/usr/bin/env python3
"""Trains on a device of this machine as on its CPU, with a built `kolo`: a GPU machine needs no compiler.

    python3 bench/devices.py --kolo kolo --device wgpu

For each model it compares the loss of the first steps between the device and `flex`. Then it kills one of two
workers, and ends a run and resumes it, on the device. Exit code 1 if something differs or fails.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 4
TOLERANCE = 1e-2
"""Of the loss after STEPS steps, relative. Kernels add in their own orders, and each step of training amplifies that:
after 20 steps of a ResNet-18 the losses on an H100 and on the CPU differ by a tenth."""
MODELS = {"small": [], "resnet18": ["--batch-size", "16"], "mlp": []}
LONG = ["--model", "mlp", "--epochs", "2"]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kolo", type=Path, required=True, help="a build with the feature of the device")
    parser.add_argument("--device", required=True, help="as for `kolo train --device`")
    parser.add_argument("--nproc", default="1,2", help="numbers of workers (default: 1,2)")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options.kolo.resolve(), options.device, Path(folder))
        checks = [lambda m=m, n=n: job.compare(m, n) for m in MODELS for n in options.nproc.split(",")]
        for check in [*checks, job.kill, job.resume]:
            begun = time.monotonic()
            try:
                print(f"ok      {check()} ({time.monotonic() - begun:.1f} s)", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {error}", flush=True)
    print(f"{failed} checks failed" if failed else "everything is as on the CPU")
    return 1 if failed else 0


class Job:
    """Runs of one program on one device."""

    def __init__(self, kolo: Path, device: str, folder: Path) -> None:
        self.kolo, self.device, self.folder, self.runs = kolo, device, folder, 0

    def command(self, *words: str) -> list[str]:
        return [str(self.kolo), "train", *words]

    def train(self, *words: str, device: str) -> Path:
        """A run folder."""
        self.runs += 1
        out = self.folder / str(self.runs)
        ended(self.command(*words, "--device", device, "--out", str(out)))
        return out

    def compare(self, model: str, nproc: str) -> str:
        words = ["--model", model, "--steps", str(STEPS), "--nproc", nproc, *MODELS[model]]
        here, there = (losses(self.train(*words, device=device)) for device in ("flex", self.device))
        what = f"{model}, {nproc} workers: loss {here[0]:.6f} and {there[0]:.6f}, after {STEPS} steps "
        what += f"{here[-1]:.6f} and {there[-1]:.6f}"
        assert abs(here[0] - there[0]) < 1e-3 * here[0], f"the first step differs: {what}"
        assert abs(here[-1] - there[-1]) < TOLERANCE * here[-1], f"the last step differs: {what}"
        return what

    def kill(self) -> str:
        """One of two workers dies, and the job goes on."""
        out = self.folder / "killed"
        running = subprocess.Popen(
            self.command(*LONG, "--nproc", "2", "--device", self.device, "--out", str(out)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until = time.monotonic() + 60
        while not (out / "steps.jsonl").exists() or len(losses(out)) < 20:
            assert running.poll() is None and time.monotonic() < until, f"no steps: {running.stdout.read()[-500:]}"
            time.sleep(0.05)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        text, _ = running.communicate(timeout=120)
        assert running.returncode == 0, f"after a killed worker: {text[-800:]}"
        generations = len((out / "generations.jsonl").read_text().splitlines())
        assert generations > 1, "the job did not notice that a worker was killed"
        return f"a killed worker: {generations} generations, accuracy {accuracy(out)}"

    def resume(self) -> str:
        first = self.train("--model", "mlp", "--epochs", "1", "--nproc", "1", device=self.device)
        before = len(losses(first))
        ended([str(self.kolo), "train", "--resume", str(first), "--epochs", "2"])
        assert len(losses(first)) == 2 * before, f"{len(losses(first))} steps instead of {2 * before} after resuming"
        ended([str(self.kolo), "evaluate", str(first)])
        return f"resumed and evaluated, accuracy {accuracy(first)}"


def ended(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, f"{' '.join(command[1:])}: {ran.stderr.strip()[-600:]}"
    return ran.stdout


def losses(run: Path) -> list[float]:
    """The loss of each step that is written as a whole line."""
    rows = {}
    for line in (run / "steps.jsonl").read_text().split("\n")[:-1]:
        row = json.loads(line)
        rows[row["step"]] = row["loss"]
    return [rows[step] for step in sorted(rows)]


def accuracy(run: Path) -> float:
    return json.loads((run / "summary.json").read_text())["test_accuracy"]


if __name__ == "__main__":
    sys.exit(main())
