#!/usr/bin/env python3
"""Reads what a run shows while it goes on by the libraries of TensorBoard and Prometheus, and compares it
with the run's own files.

    cargo build --release -p kolo && python3 bench/live.py [--kolo target/release/kolo]

The two libraries are installed from PyPI into a temporary environment. The run is stopped in its middle and
resumed, so there are several event files, and steps that are done twice.
"""

import argparse
import csv
import json
import math
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv

LIBRARIES = ["tensorboard", "prometheus-client"]
TRAIN = ["train", "--nproc", "2", "--model", "mlp", "--epochs", "3", "--checkpoint-steps", "40"]
# When the first part of the run is killed; no multiple of the checkpoints' steps.
KILL_AFTER = 70


def close(one: float, other: float) -> bool:
    """Whether they are the same number in 32 bits, which is what TensorBoard holds."""
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def scrape(port: int) -> dict[str, float]:
    """The newest value of each metric without labels of its own."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4"), page.headers
        families = list(text_string_to_metric_families(page.read().decode()))
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    assert all(sample.labels["model"] == "mlp" for sample in samples)
    return {sample.name: sample.value for sample in samples if "le" not in sample.labels}


def rows(run: pathlib.Path) -> list[dict]:
    path = run / "steps.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def watch(job: subprocess.Popen, port: int, until: int | None) -> list[dict[str, float]]:
    """What is served until the job ends, or has done so many steps."""
    seen = []
    while job.poll() is None and (until is None or not seen or seen[-1]["kolo_train_step_total"] < until):
        try:
            seen.append(scrape(port))
        except OSError:
            pass
        time.sleep(0.05)
    return seen


def compare_prometheus(run: pathlib.Path, seen: list[dict[str, float]]) -> int:
    """Each page's loss, learning rate and epoch are those of the last step that it counts, or of the
    next one, if that came while the page was made."""
    steps, compared = {row["step"]: row for row in rows(run)}, 0
    names = ["kolo_train_loss", "kolo_train_learning_rate", "kolo_train_epoch"]
    for page in seen:
        done = int(page["kolo_train_step_total"])
        if page["kolo_train_step_seconds_count"] == 0:
            continue
        last = [steps[step] for step in (done - 1, done) if step in steps]
        known = [(row["loss"], row["learning_rate"], row["epoch"] + 1) for row in last]
        for name, values in zip(names, zip(*known)):
            assert page[name] in values, (name, page, last)
        compared += 1
    return compared


def compare_tensorboard(run: pathlib.Path) -> int:
    """Each step and each epoch is there once, with its values."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    scalars = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    steps, compared = rows(run), 0
    values = {
        "step/loss": lambda row: row["loss"],
        "step/learning_rate": lambda row: row["learning_rate"],
        "step/seconds": lambda row: row["seconds"],
        "step/images_per_second": lambda row: row["images"] / row["seconds"],
        "step/exposed_comm_fraction": lambda row: row["exposed_comm_seconds"] / row["seconds"],
    }
    for tag, value in values.items():
        assert [event.step for event in scalars[tag]] == [row["step"] for row in steps], tag
        for event, row in zip(scalars[tag], steps):
            assert close(event.value, value(row)), (tag, event, row)
            compared += 1
    with open(run / "metrics.csv", newline="") as file:
        epochs = list(csv.DictReader(file))
    for tag in ["train_loss", "test_accuracy", "images_per_second", "exposed_comm_fraction", "comm_fraction"]:
        found = scalars[f"epoch/{tag}"]
        assert len(found) == len(epochs), tag
        for event, row in zip(found, epochs):
            # The file has fewer digits.
            assert math.isclose(event.value, float(row[tag]), rel_tol=1e-4, abs_tol=1e-4), (tag, event, row)
            compared += 1
    return compared


def check(kolo: str) -> None:
    with tempfile.TemporaryDirectory() as place, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        run, watched = pathlib.Path(place) / "run", ["--tensorboard", "--metrics-addr", str(port)]
        start = lambda args: subprocess.Popen([kolo, *args, *watched], cwd=place, stdout=subprocess.DEVNULL)
        job = start([*TRAIN, "--out", "run"])
        seen = watch(job, port, KILL_AFTER)
        job.kill()
        job.wait()
        time.sleep(1)
        job = start(["train", "--resume", "run"])
        seen += watch(job, port, None)
        assert job.wait() == 0
        files = len(list((run / "tensorboard").iterdir()))
        assert files >= 2, "the resumed run has a file of its own"
        values, pages = compare_tensorboard(run), compare_prometheus(run, seen)
        print(f"TensorBoard: {values} values of {files} files are those of the run's own files")
        print(f"Prometheus: {pages} of {len(seen)} pages show the step that they count")


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", default="target/release/kolo", type=pathlib.Path)
    parser.add_argument("--installed", action="store_true", help="the two libraries are there")
    options = parser.parse_args()
    kolo = str(options.kolo.absolute())
    if options.installed:
        return check(kolo)
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        python = f"{place}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *LIBRARIES], check=True)
        sys.exit(subprocess.run([python, __file__, "--kolo", kolo, "--installed"]).returncode)


if __name__ == "__main__":
    main()
