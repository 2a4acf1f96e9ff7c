#!/usr/bin/env python3
"""What becomes of a worker under a CPU quota of the kernel: `kolo train --straggler rebalance` with two
workers, one of which may use so much of a core (cgroup v2 `cpu.max`, or v1 `cpu.cfs_quota_us`; root).

    cargo build --release && python3 bench/quota.py [--percent 50] [--steps 600]

Prints what the job says of its workers, and the mean step of each tenth of the run.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trainings import ROOT

CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""Microseconds, the kernel's default: a worker that has used its part waits for the next period."""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--percent", type=int, default=50, help="of a core, for worker 1")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="kolo-quota-") as scratch, quota(options.percent) as processes:
            out = Path(scratch) / "run"
            words = [str(options.kolo), "train", "--nproc", "2", "--shards", "4", "--straggler", "rebalance"]
            words += ["--steps", str(options.steps), "--out", str(out)]
            told, code = trained(words, processes)
            lines = [line for line in told.splitlines() if line.startswith("warning")]
            print("\n".join(lines))
            report(out)
            return code
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def trained(words: list[str], processes: Path) -> tuple[str, int]:
    """A job whose worker 1 joins these processes: what it printed, and its exit code. It ends in any case."""
    job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        processes.write_text(str(rank_1(job.pid)))
        return job.communicate(timeout=600)[0], job.returncode
    finally:
        job.kill()
        job.wait()


@contextlib.contextmanager
def quota(percent: int) -> Iterator[Path]:
    """A group of processes that may use so much of a core: the file that takes its processes."""
    two = (CGROUPS / "cgroup.controllers").exists()
    group = (CGROUPS if two else CGROUPS / "cpu") / f"kolo-quota-{time.monotonic_ns()}"
    if two:
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    group.mkdir()
    try:
        microseconds = PERIOD * percent // 100
        if two:
            (group / "cpu.max").write_text(f"{microseconds} {PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(microseconds))
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def rank_1(launcher: int) -> int:
    """The process of worker 1, as soon as it is there."""
    for _ in range(200):
        for process in Path(f"/proc/{launcher}/task").glob("*/children"):
            for child in process.read_text().split():
                with contextlib.suppress(OSError):
                    if b"RANK=1" in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                        return int(child)
        time.sleep(0.05)
    raise RuntimeError("worker 1 was not started within 10 s")


def report(run: Path) -> None:
    """Means of the steps, a tenth of the run at a time."""
    seconds = [json.loads(line)["seconds"] for line in (run / "steps.jsonl").read_text().splitlines()]
    tenth = max(1, len(seconds) // 10)
    parts = [seconds[first : first + tenth] for first in range(0, tenth * 10, tenth)]
    means = ", ".join(f"{1000 * statistics.mean(part):.0f}" for part in parts if part)
    print(f"mean step of each tenth of the run, ms: {means}")


if __name__ == "__main__":
    sys.exit(main())
