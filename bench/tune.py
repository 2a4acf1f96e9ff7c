#!/usr/bin/env python3
"""What `kolo train --tune` saves: steps of a network with each of some fixed bucket caps, and tuned, of workers
that each have a link of their own.

    python3 bench/tune.py --mbit 1000,1000                     # a worker for each link, of 10⁶ bits a second
    python3 bench/tune.py --mbit 1000,1000 --only tuned        # or --only 4, a cap in MiB: one run of those
    python3 bench/tune.py --table                              # of all that has been measured

Every worker is in a network namespace of its own, at a switch (bench/servers.py makes both). A run's figure
is the median of rank 0's seconds a step in `steps.jsonl`: after the first steps, which are profiled, or of a
tuned run after the last line of `tuning.jsonl`. Runs are added to bench/tune.jsonl, and the last one of each
kind counts. Needs root, and iproute2. `--kolo PROGRAM` is the program to measure, by default a release build
of this repository.
"""

import argparse
import json
import pathlib
import secrets
import statistics
import sys
import tempfile

from servers import PORT, ROOT, address, built, namespace, network, obstacle

from processes import BenchError, Command, end_on_sigterm, run_together

RESULTS = ROOT / "bench" / "tune.jsonl"
CAPS = "1,2,4,8,16"
PROFILED = 7
"""Steps at the beginning that are not counted: six are profiled, and the next one has new places for buckets."""
SECONDS = 900
"""For one run."""


def measured(options: argparse.Namespace, kolo: pathlib.Path, mbit: list[float], cap: str) -> dict:
    """A run with that cap in MiB, or `tuned`."""
    token = secrets.token_hex(16)
    is_tuned = cap == "tuned"
    with tempfile.TemporaryDirectory(prefix="kolo-tune-") as folder:
        run = pathlib.Path(folder) / "run"
        steps = options.tuned_steps if is_tuned else options.steps
        words = [str(kolo), "train", "--model", options.model, "--epochs", "1000", "--no-augment"]
        words += ["--batch-size", str(options.batch_size), "--steps", str(steps), "--out", str(run)]
        words += ["--tune"] if is_tuned else ["--bucket-cap-mb", cap]

        def command(rank: int) -> Command:
            env = {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(mbit)),
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": address(0),
                "MASTER_PORT": str(PORT),
                "KOLO_TOKEN": token,
                "KOLO_IFACE": "eth0",
            }
            return Command(f"rank {rank}", ["ip", "netns", "exec", namespace(rank), *words], env)

        run_together([command(rank) for rank in range(len(mbit))], SECONDS)
        rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
        first, row = PROFILED, {"mbit": mbit, "cap": cap, "model": options.model, "batch_size": options.batch_size}
        if is_tuned:
            lines = (run / "tuning.jsonl").read_text().splitlines() if (run / "tuning.jsonl").exists() else []
            if not lines:
                raise BenchError(f"{steps} steps were too few to tune; give more --tuned-steps")
            tuning = json.loads(lines[-1])
            # The step after has the last setting's gradients still on the wire.
            first = tuning["step"] + 1
            row |= {name: tuning[name] for name in ("kept", "gain", "steps", "link_rates", "changed")}
            row["tried"] = len(tuning["tried"])
        seconds = [line["seconds"] for line in rows if line["step"] >= first]
        if not seconds:
            raise BenchError(f"no step is left of {steps} to measure; give more --steps or --tuned-steps")
        quartiles = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
        return row | {"seconds": statistics.median(seconds), "quartiles": quartiles, "measured": len(seconds)}


def table() -> None:
    """Prints what has been measured, the links in the order in which they were."""
    last: dict[tuple, dict[str, dict]] = {}
    for line in RESULTS.read_text().splitlines():
        row = json.loads(line)
        last.setdefault(tuple(row["mbit"]), {})[row["cap"]] = row
    print("| links, Mbit/s | step with a cap of … MiB, s | tuned, s | best fixed ÷ tuned | kept | steps |")
    print("| --- | --- | ---: | ---: | --- | ---: |")
    for mbit, rows in last.items():
        fixed = {cap: row["seconds"] for cap, row in rows.items() if cap != "tuned"}
        links = ", ".join(f"{rate:g}" for rate in mbit)
        caps = ", ".join(f"{cap}: {seconds:.3f}" for cap, seconds in sorted(fixed.items(), key=lambda f: float(f[0])))
        tuned = rows.get("tuned")
        if tuned and fixed:
            ratio = min(fixed.values()) / tuned["seconds"]
            figures = f"{tuned['seconds']:.3f} | {ratio:.2f} | {kept(tuned['kept'])} | {tuned['steps']}"
        else:
            figures = "- | - | - | -"
        print(f"| {links} | {caps} | {figures} |")


def kept(setting: dict) -> str:
    """A setting in words, as `kolo train` says it."""
    words = f"buckets of {setting['cap_bytes'] / 2**20:g} MiB"
    if setting["slice_bytes"] != setting["cap_bytes"]:
        words += f", slices of {setting['slice_bytes'] / 2**20:g} MiB"
    if setting["ownership"]:
        words += ", direct by links"
    elif setting["algorithm"]:
        words += f", {setting['algorithm']}"
    return words + (f", {setting['streams']} connections" if setting["streams"] > 1 else "")


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--mbit", default="1000,1000", help="10⁶ bits a second of each worker's link")
    parser.add_argument("--only", help="caps in MiB, or `tuned`, behind commas", default=f"{CAPS},tuned")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=17, help="of a run with a fixed cap")
    parser.add_argument("--tuned-steps", type=int, default=90)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--kolo", type=pathlib.Path)
    options = parser.parse_args()
    if options.table:
        return table()
    if why := obstacle():
        sys.exit(why)
    end_on_sigterm()
    kolo = (options.kolo or built()).resolve()
    mbit = [float(rate) for rate in options.mbit.split(",")]
    for cap in options.only.split(","):
        with network(mbit):
            row = measured(options, kolo, mbit, cap)
        with RESULTS.open("a") as results:
            print(json.dumps(row), file=results)
        print(f"{options.mbit} Mbit/s, {cap}: {row['seconds']:.3f} s a step", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(str(error))
