#!/usr/bin/env python3
"""Trains one of torchvision's networks with Kolo, loads its weights in torchvision, and compares.

    python3 bench/peers/torchvision_load.py [--run RUN]

Ends with 1 if a score is further from Kolo's than 1e-4 of the largest, or the test accuracy is another one
than in the run's summary.json.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import environment
import programs
from arguments import ROOT
from processes import BenchError, Command, run

LIMIT = 1e-4
SCRIPT = Path(__file__).with_name("torchvision_load_pytorch.py")
MANIFEST = ["--manifest-path", str(ROOT / "Cargo.toml")]
SECONDS = 3600

FOLDERS = {
    "fashion-mnist-small": ROOT / "crates/kolo-data/assets/fashion-mnist-small",
    "fashion-mnist": Path("/usr/share/datasets/fashion-mnist"),
}
"""Where the files of a data set are when `--data` does not say."""


def folder(data: str) -> Path:
    """Of the test images, in MNIST's format."""
    name, _, given = data.partition(":")
    found = Path(given) if given else FOLDERS.get(name)
    if name.startswith("cifar") or found is None:
        raise BenchError(f"--data {data}: images in MNIST's format are needed: fashion-mnist, mnist:DIR")
    return found


def train(kolo: str, options: argparse.Namespace, out: Path) -> None:
    job = ["--model", options.model, "--data", options.data, "--steps", str(options.steps), "--nproc", "1"]
    command = [kolo, "train", *job, "--warmup-steps", "0", "--out", str(out)]
    run(Command("kolo train", command, show=True), SECONDS)


def scores(weights: Path, data: str, profile: list[str], out: Path) -> None:
    """Kolo's, of all test images, by a program that loads the export for Burn."""
    example = ["cargo", "run", "--quiet", *profile, *MANIFEST, "--package", "kolo-models"]
    example += ["--example", "exported_weights", "--", str(weights), data, str(out)]
    run(Command("exported_weights", example), SECONDS)


def compare(options: argparse.Namespace, scratch: Path) -> bool:
    profile = [] if options.debug else ["--release"]
    kolo = programs.kolo(options.kolo)
    python = environment.with_torchvision(options.python)
    trained = options.run or scratch / "run"
    if not options.run:
        train(kolo, options, trained)
    files = {"torchvision": scratch / "weights.safetensors", "burn": scratch / "weights.bpk"}
    for name, file in files.items():
        command = [kolo, "export", str(trained), "--format", name, "--out", str(file)]
        print(run(Command(f"kolo export --format {name}", command), SECONDS).strip())
    scores(files["burn"], options.data, profile, scratch / "scores")
    side = [str(path) for path in (SCRIPT, files["torchvision"], scratch / "scores", folder(options.data))]
    found = json.loads(run(Command("torchvision", [python, *side]), SECONDS))
    expected = json.loads((trained / "summary.json").read_text())["test_accuracy"]
    print(f"torchvision: load_state_dict(strict=True), {found['images']} test images")
    print(f"scores at most {found['apart']:.1e} of the largest apart (limit {LIMIT:.0e})")
    print(f"test accuracy {found['accuracy']}, summary.json {expected}")
    return found["apart"] <= LIMIT and found["accuracy"] == expected


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--run", type=Path, help="a complete run, in place of one that is trained now")
    parser.add_argument("--model", default="resnet18", help="to train")
    parser.add_argument(
        "--data", default="fashion-mnist-small", help="data set, also that of --run; default %(default)s"
    )
    parser.add_argument("--steps", type=int, default=40, help="to train; default %(default)s")
    parser.add_argument("--kolo", type=Path, help="the program, in place of one that is built now")
    parser.add_argument("--debug", action="store_true", help="build the example without --release")
    parser.add_argument("--python", type=Path, help="a Python that has torch, torchvision and safetensors")
    options = parser.parse_args()
    try:
        folder(options.data)
        with tempfile.TemporaryDirectory() as scratch:
            return int(not compare(options, Path(scratch)))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
