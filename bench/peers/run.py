#!/usr/bin/env python3
"""Measures Kolo beside PyTorch DDP over Gloo, alternately in one run, and writes docs/benchmarks.md.

See README.md beside this file for what is compared and how.
"""

import argparse
import datetime
import json
import os
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import environment
import machine
import measure
import report
from processes import BenchError, Command, run

ROOT = measure.HERE.parent.parent
DOCS = ROOT / "docs" / "benchmarks.md"
VENV = measure.HERE / ".venv"
SIZES = [4, 65_536, 1_048_576, 16_777_216, 46_758_048, 100_000_000]
"""The fifth are the gradients of ResNet-18 with 1000 classes."""
SMOKE_SIZES = [4, 65_536, 1_048_576]
BUILD_SECONDS = 3600


def main() -> int:
    options = parse_arguments()
    # Ends by the same way out as Ctrl-C, past what has to be cleared up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        if options.docs:
            report.splice(
                read_docs(options.docs), ""
            )  # refuses damaged markers now, not after the measurement
        plan = make_plan(options)
        busy = warn_if_busy()
        rounds = measure_rounds(plan, options.rounds)
        section = make_section(plan, rounds, busy)
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in rounds], indent=2) + "\n")
        print(section)
        if options.docs:
            write_docs(options.docs, section)
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kolo", type=Path, help="measure this program (default: build target/release/kolo)")
    parser.add_argument("--python", type=Path, help=f"a Python with torch (default: make {VENV.name} here)")
    parser.add_argument("--rounds", type=positive, help="times that both sides are measured (default: 3)")
    parser.add_argument("--nproc", type=positive, default=2, help="ranks (default: 2)")
    parser.add_argument(
        "--batch-size", type=positive, default=32, help="images a rank and step (default: 32)"
    )
    parser.add_argument(
        "--bucket-cap-mb", type=float, default=25.0, help="DDP's buckets (default: 25, Kolo's too)"
    )
    parser.add_argument("--sizes", type=sizes, help="bytes to all-reduce, as in 4,1048576")
    parser.add_argument(
        "--timeout", type=positive, default=900, help="seconds one program may take (default: 900)"
    )
    parser.add_argument(
        "--docs", type=Path, help="file to write (default: docs/benchmarks.md; none with --smoke)"
    )
    parser.add_argument("--json", type=Path, help="also write every round's raw numbers to this file")
    parser.add_argument("--smoke", action="store_true", help="one short round that only shows that all works")
    options = parser.parse_args()
    if options.nproc < 2:
        parser.error("--nproc: a single rank has nothing to reduce, take 2 or more")
    options.rounds = options.rounds or (1 if options.smoke else 3)
    options.sizes = options.sizes or (SMOKE_SIZES if options.smoke else SIZES)
    options.docs = options.docs or (None if options.smoke else DOCS)
    return options


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def sizes(text: str) -> list[int]:
    """Numbers of bytes, each whole f32 values."""
    values = [int(word) for word in text.split(",")]
    if any(value < 4 or value % 4 for value in values):
        raise argparse.ArgumentTypeError(f"each size is a positive multiple of 4 bytes: {text}")
    return values


def make_plan(options: argparse.Namespace) -> measure.Plan:
    """Builds and installs what is missing, before any clock runs."""
    return measure.Plan(
        kolo=kolo_program(options.kolo),
        python=peer_python(options.python),
        nproc=options.nproc,
        batch_size=options.batch_size,
        bucket_cap_mb=options.bucket_cap_mb,
        blocks=1 if options.smoke else 4,
        steps=5 if options.smoke else 10,
        sizes=options.sizes,
        seconds=0.3 if options.smoke else 2.0,
        timeout=options.timeout,
    )


def peer_python(given: Path | None) -> str:
    """The interpreter that runs PyTorch."""
    return environment.given_python(given) if given else environment.prepared_python(VENV)


def kolo_program(given: Path | None) -> str:
    """The program to measure. It is built unless one is given, so that no forgotten old build is measured."""
    if given:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise BenchError(f"--kolo {given}: no such program; leave the option out to have it built")
        return str(given.resolve())
    manifest = ["--manifest-path", str(ROOT / "Cargo.toml")]
    cargo = ["cargo", "build", "--release", "--package", "kolo", *manifest]
    run(Command("cargo build", cargo, show=True), BUILD_SECONDS)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release" / "kolo")


def warn_if_busy() -> str:
    """The load before the first measurement, as the report states it."""
    load = machine.load()
    if load > machine.BUSY:
        text = "the machine is not idle (a build just now counts as well), the numbers may be off"
        print(f"warning: load average {load:.2f}: {text}", file=sys.stderr)
    return f"{load:.2f}"


def measure_rounds(plan: measure.Plan, count: int) -> list[report.Round]:
    """Kolo, PyTorch, Kolo, PyTorch: within a round each pair is measured back to back."""
    rounds = []
    for number in range(1, count + 1):
        kolo_step = tell_step(number, count, "Kolo", measure.kolo_step(plan))
        peer_step = tell_step(number, count, "PyTorch DDP", measure.ddp_step(plan))
        kolo_all_reduce = tell_all_reduce(number, count, "Kolo", measure.kolo_all_reduce(plan))
        peer_all_reduce = tell_all_reduce(number, count, "Gloo", measure.gloo_all_reduce(plan))
        rounds.append(report.Round(kolo_step, peer_step, kolo_all_reduce, peer_all_reduce))
    return rounds


def tell_step(number: int, count: int, side: str, answer: dict) -> dict:
    """A line of progress."""
    tell = f"{answer['images_per_second']:.1f} images/s, efficiency {100 * answer['efficiency']:.1f} %"
    print(f"round {number}/{count}: {side}: {tell}", file=sys.stderr)
    return answer


def tell_all_reduce(number: int, count: int, side: str, answer: dict[int, dict]) -> dict[int, dict]:
    """A line of progress."""
    times = [
        f"{report.byte_size(size)} {report.duration(each['p50_us'] / 1e6)}" for size, each in answer.items()
    ]
    print(f"round {number}/{count}: {side} all-reduce: {', '.join(times)}", file=sys.stderr)
    return answer


def make_section(plan: measure.Plan, rounds: list[report.Round], load: str) -> str:
    """The generated part of the document."""
    versions = {
        "Kolo": machine.version([plan.kolo, "--version"]).removeprefix("kolo "),
        "rustc": machine.version(["rustc", "--version"]).removeprefix("rustc ").partition(" ")[0],
        "PyTorch": environment.torch_version(plan.python),
        "Python": machine.version([plan.python, "--version"]).removeprefix("Python "),
    }
    command = ["python3", "bench/peers/run.py", *map(without_absolute_path, sys.argv[1:])]
    called = [measure.kolo_step_command(plan), measure.kolo_all_reduce_command(plan)]
    calls = "\n".join(f"  - `{shlex.join(['kolo', *argv[1:]])}`" for argv in called)
    taken = f"Median of {len(rounds)} rounds (lowest–highest)" if len(rounds) > 1 else "One round"
    return f"""## Beside PyTorch DDP over Gloo

{taken}, Kolo and PyTorch in turn; ratios are taken round by round.

- machine: {machine.describe()}; load average before the run {load}
- versions: {", ".join(f"{name} {version}" for name, version in versions.items())}
- date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}
- command: `{shlex.join(command)}`, which calls for Kolo
{calls}

### Training step

ResNet-18, 3×32×32, 10 classes, batch {plan.batch_size} a rank, AdamW, {plan.nproc} ranks of one thread;
DDP's buckets hold {plan.bucket_cap_mb:g} MB.

{report.step_table(rounds)}

### All-reduce

f32, sum, in place, {plan.nproc} ranks; p50 and p99 of the slowest rank's time, GB/s is the bus bandwidth
at the p50. Gloo has no transport through shared memory: its bytes pass over TCP on the loopback interface.

{report.all_reduce_table(rounds, plan.nproc)}
"""


def without_absolute_path(word: str) -> str:
    """Paths below the repository relative to it, others by their last part: where they lie tells nobody."""
    option, equals, value = word.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return word
    return option + equals + (str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name)


def read_docs(path: Path) -> str:
    """The document as it is, empty where there is none."""
    return path.read_text() if path.exists() else ""


def write_docs(path: Path, section: str) -> None:
    """Replaces the part between the markers, by a file renamed into place: never half a document."""
    document = read_docs(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(report.splice(document, section))
    temporary.replace(path)
    print(f"wrote {without_absolute_path(str(path))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
