#!/usr/bin/env python3
"""Compares the weights of trainings between processors: this one, and older ones that `qemu-x86_64` emulates.

    python3 bench/processors.py [--example PROGRAM]

The program takes some steps of models of each kind and with each optimizer, and prints a hash of each's weights.
Exit code 1 if a hash differs between processors.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ["cargo", "build", "--release", "-q", "-p", "kolo-models", "--example", "trained_bits"]

EMULATED = ("Haswell", "EPYC")
"""Processors with AVX2 and FMA and without AVX-512, by QEMU's names."""


def hashes(prefix: list[str], program: Path) -> dict[str, str]:
    """The hash of each training, by the training's name."""
    ran = subprocess.run([*prefix, str(program)], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"error: {' '.join([*prefix, program.name])} failed: {ran.stderr.strip()}")
    lines = (line.rsplit(": ", 1) for line in ran.stdout.splitlines())
    return {name: value for name, value in lines}


def differing(here: dict[str, str], there: dict[str, str]) -> list[str]:
    """The trainings that have another hash there, or none."""
    return [name for name in here | there if here.get(name) != there.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--example", type=Path, help="run this program (default: build the example)")
    program = parser.parse_args().example
    if not (qemu := shutil.which("qemu-x86_64")):
        print("note: no processor is emulated, because there is no qemu-x86_64 (Debian's package qemu-user)")
        return 0
    if program is None:
        subprocess.run(BUILD, cwd=ROOT, check=True)
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        program = target / "release" / "examples" / "trained_bits"
    here = hashes([], program)
    code = 0
    for name in EMULATED:
        wrong = differing(here, hashes([qemu, "-cpu", name], program))
        print(f"{name}: " + ("other weights of " + ", ".join(wrong) if wrong else f"the same {len(here)} hashes"))
        code |= bool(wrong)
    return code


if __name__ == "__main__":
    sys.exit(main())
