"""Runs PyTorch's own tests of torch.distributed over Kolo, beside Gloo, and prints a table.

    python pytorch_tests.py [--world 3] [--backends kolo,gloo] [--only PATTERN] [--details]

It needs `pip install torch numpy expecttest` and the wheel. The tests are those of
`torch.testing._internal.distributed.distributed_test.DistributedTest._DistTestBase` that do not ask for GPUs. They
believe that they run over Gloo: the name is replaced where groups are formed, and nowhere else. So tests of
Gloo's name fail over Kolo, too.
"""

import argparse
import os
import re
import tempfile
import time
import unittest

ARGUMENTS = argparse.ArgumentParser(description=__doc__.split("\n")[0])
ARGUMENTS.add_argument("--world", type=int, default=3, help="number of processes (default 3)")
ARGUMENTS.add_argument("--backends", default="kolo,gloo", help="default kolo,gloo")
ARGUMENTS.add_argument("--only", default=".", metavar="PATTERN", help="tests whose names match")
ARGUMENTS.add_argument("--details", action="store_true", help="the whole text of failures")
arguments = ARGUMENTS.parse_args()

# The tests read these when they are imported.
os.environ.update(BACKEND="gloo", WORLD_SIZE=str(arguments.world), TEMP_DIR=tempfile.mkdtemp(prefix="kolo-tests-"))
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

import kolo.torch  # noqa: E402, F401


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """PyTorch's tests over `backend`, with forked processes: torch is imported once."""

    backend = "gloo"

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **kwargs):
        def over_backend(function):
            def replaced(*positional, **named):
                if named.get("backend") == "gloo":
                    named["backend"] = cls.backend
                return function(*positional, **named)
            return replaced

        dist.init_process_group = over_backend(dist.init_process_group)
        dist.new_group = over_backend(dist.new_group)
        super()._run(rank, test_name, file_name, pipe, **kwargs)


def run(name, backend):
    """Runs one test; returns ("pass", "FAIL" or "skip", the last line of its text, all of it, seconds)."""
    Tests.backend = backend
    result, began = unittest.TestResult(), time.monotonic()
    Tests(name).run(result)
    bad = result.failures + result.errors
    text = bad[0][1] if bad else result.skipped[0][1] if result.skipped else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"(?!RuntimeError: Process)[\w.]*(Error|Exception)\b", line)]
    outcome = "FAIL" if bad else "skip" if result.skipped else "pass"
    return outcome, (said or lines or [""])[0][:140], text, time.monotonic() - began


def main():
    torch.set_num_threads(1)
    distributed_test._allow_subprocess_fork = True
    backends = arguments.backends.split(",")
    names = [name for name in unittest.TestLoader().getTestCaseNames(Tests) if re.search(arguments.only, name)]
    totals = {backend: {"pass": 0, "FAIL": 0, "skip": 0} for backend in backends}
    for name in names:
        found = {backend: run(name, backend) for backend in backends}
        for backend, (outcome, *_) in found.items():
            totals[backend][outcome] += 1
        if all(outcome == "skip" for outcome, *_ in found.values()):
            continue
        columns = "  ".join(f"{backend} {outcome} {took:5.1f} s" for backend, (outcome, _, _, took) in found.items())
        reasons = [f"{backend}: {why}" for backend, (outcome, why, _, _) in found.items() if outcome == "FAIL"]
        print(f"{columns}  {name}", *reasons, sep="\n    ", flush=True)
        if arguments.details:
            print(*(text for outcome, _, text, _ in found.values() if outcome == "FAIL"), sep="\n")
    print(f"\n{arguments.world} processes, torch {torch.__version__}")
    for backend, counts in totals.items():
        print(f"{backend}: {counts['pass']} pass, {counts['FAIL']} fail, {counts['skip']} skipped")


if __name__ == "__main__":
    main()
