#!/usr/bin/env python3
"""Compares the convolutions of burn-flex-nn and their gradients with PyTorch's, on random shapes.

    python3 bench/peers/gradients.py [--shapes N]

Says how far apart they are at most, and ends with 1 if that is more than 1e-5 of the largest value.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import programs
from convolutions import EXAMPLE
from results import Results

LIMIT = 1e-5
SCRIPT = Path(__file__).with_name("gradients_pytorch.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--shapes", type=int, default=300)
    options = parser.parse_args()
    python = programs.python(None, Results())
    if python is None:
        return 1
    example = [*EXAMPLE[:-1], "gradients"]
    done = subprocess.run(
        [python, str(SCRIPT), str(options.shapes), *example], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return 1
    apart, where = done.stdout.split(" ", 1)
    found = f"at most {float(apart):.1e} apart ({where.strip()})"
    print(f"{options.shapes} shapes, output and three gradients each: {found}")
    return int(float(apart) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
