#!/usr/bin/env python3
"""Trains a model whose plain state does not fit a worker's `ulimit -v`.

    python3 bench/address_space.py [--kolo PROGRAM]

All workers but the first, which saves the run, have the limit. A plain run is refused with the sharding that would
fit, and a run with it ends in the weights of the plain run without the limit. Exit code 1 if not.
"""

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ["cargo", "build", "--release", "-q", "-p", "kolo"]

LIMIT = 1_360_000_000
"""Bytes of addresses of a worker: values, gradients and state of the model take 1377 MB."""

LIMITED = '[ "$RANK" = 0 ] || ulimit -v "$0"; exec "$@"'
"""Command of the shell that starts each worker."""

MODEL = ["--model", "gpt2:small", "--context", "16", "--batch-size", "1", "--optimizer", "adamw", "--lr", "1e-4"]
WORKERS = 4


def train(kolo: Path, folder: Path, name: str, workers: int, options: list[str]) -> tuple[int, str]:
    """Exit code and output of a short training; several workers have the limit."""
    text, out = folder / "text.txt", folder / name
    text.write_text("A text of a few words, from which nobody learns anything.\n" * 40)
    command = [str(kolo), "train", *MODEL, "--data", f"text:{text}", "--shards", str(WORKERS), "--transport", "tcp"]
    command += ["--steps", "2", "--warmup-steps", "0", "--out", str(out), *options]
    if workers == 1:
        command += ["--nproc", "1"]
    else:
        shell = ["sh", "-c", LIMITED, str(LIMIT // 1024)]
        command = [str(kolo), "launch", "--nproc", str(workers), "--", *shell, *command]
    # In KiB. The allocator reserves 1 GiB at a time by default, and more than it needs for each large tensor.
    env = os.environ | {"MIMALLOC_ARENA_RESERVE": "65536", "MIMALLOC_ARENA_MAX_OBJECT_SIZE": "4096"}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, timeout=1800)
    return ran.returncode, ran.stdout + ran.stderr


def weights(output: str) -> str | None:
    found = re.search(r"sha256 ([0-9a-f]{64})", output)
    return found and found.group(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kolo", type=Path, help="run this program (default: build it)")
    kolo = parser.parse_args().kolo
    if kolo is None:
        subprocess.run(BUILD, cwd=ROOT, check=True)
        kolo = ROOT / "target/release/kolo"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code, output = train(kolo, folder, "refused", WORKERS, [])
        if code != 2 or "ulimit -v" not in output or "`parameters` (--shard)" not in output:
            raise SystemExit(f"error: the plain run is not refused under the limit ({code}):\n{output}")
        code, output = train(kolo, folder, "divided", WORKERS, ["--shard", "parameters"])
        divided = weights(output)
        if code or divided is None:
            raise SystemExit(f"error: the divided run fails under the limit ({code}):\n{output}")
        code, output = train(kolo, folder, "plain", 1, [])
        if code or weights(output) != divided:
            raise SystemExit(f"error: the plain run has other weights than {divided} ({code}):\n{output}")
    print(f"{LIMIT / 1e6:.0f} MB of addresses: the weights of the plain run, {divided}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
