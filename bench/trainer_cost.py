#!/usr/bin/env python3
"""What the trainer costs: a step of the character model in Kolo's trainer with one worker, beside the same
model in a plain loop of Burn, in turn.

    python3 bench/trainer_cost.py [--rounds 7] [--steps 150]
"""

import argparse
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "bench" / "burn" / "Cargo.toml"


def seconds(how: str, shards: int, steps: int) -> float:
    cargo = ["cargo", "run", "--quiet", "--release", "--manifest-path", str(MANIFEST), "--bin", "char_model"]
    command = [*cargo, "--", how, str(shards), str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    print("| a step of 16 windows | plain loop of Burn | Kolo's trainer | trainer / plain |")
    print("| --- | ---: | ---: | ---: |")
    for shards in (1, 4):
        plain, trainer = [], []
        for _ in range(options.rounds):
            plain.append(seconds("plain", shards, options.steps))
            trainer.append(seconds("trainer", shards, options.steps))
        ratios = sorted(ours / theirs for ours, theirs in zip(trainer, plain))
        passes = "one pass" if shards == 1 else f"{shards} passes of {16 // shards}"
        theirs, ours = (f"{1e3 * statistics.median(times):.2f} ms" for times in (plain, trainer))
        ratio = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})"
        print(f"| {passes} | {theirs} | {ours} | {ratio} |")


if __name__ == "__main__":
    main()
