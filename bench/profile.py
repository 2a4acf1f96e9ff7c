#!/usr/bin/env python3
"""Where the time of one worker's training step goes, by operation, sampled with `perf`.

    cargo build --release && python3 bench/profile.py [--kolo PROGRAM] [--blocks N]

Needs Linux's `perf` (Debian: linux-perf). What a function belongs to is told by its name.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_MS = 4000
"""Left out: the model is made, buckets are laid, memory is touched for the first time."""
OPERATIONS = {
    "convolutions": r"imp_fastcall|conv::panel|conv::implicit_gemm|conv::weight_gradient|burn_flex::ops::conv|gemm",
    "batch normalisation, ReLU, shortcut, pooling": (
        r"vectorize::imp\b|burn_flex::ops::(pool|activation|binary|unary)"
    ),
    "optimizer": r"Optimizer>::update",
    "copies: weights to tensors, gradients to buckets": r"memmove|memcpy|burn_flex::tensor",
    "memory set to zero": r"memset|malloc_zero|calloc|clear_page",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--blocks", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kolo-profile-") as folder:
        data = f"{folder}/perf.data"
        step = ["bench", "step", "--nproc", "1", "--model", "resnet18", "--batch-size", "32", "--json"]
        step += ["--blocks", str(options.blocks)]
        record = ["perf", "record", "-q", "-D", str(START_MS), "-F", "1999", "-e", "cpu-clock", "-o", data]
        try:
            answer = json.loads(run([*record, "--", str(options.kolo), *step]))
            report = run(["perf", "report", "-i", data, "--sort", "symbol", "--stdio", "-g", "none"])
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    milliseconds = 1e3 * answer["step_seconds"]
    print(f"a step of one worker: {milliseconds:.1f} ms")
    for operation, share in shares(report).items():
        print(f"| {operation} | {share * milliseconds:.1f} ms | {100 * share:.0f} % |")
    return 0


def run(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def shares(report: str) -> dict[str, float]:
    """The part of all samples that each operation has, and the rest."""
    found = dict.fromkeys([*OPERATIONS, "the rest"], 0.0)
    for line in report.splitlines():
        if match := re.match(r"\s+([\d.]+)%\s+(.*)", line):
            names = [name for name, pattern in OPERATIONS.items() if re.search(pattern, match[2])]
            found[names[0] if names else "the rest"] += float(match[1]) / 100
    return found


if __name__ == "__main__":
    sys.exit(main())
