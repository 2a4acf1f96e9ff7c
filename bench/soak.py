#!/usr/bin/env python3
"""What a job keeps of the workers that it has lost: one job in which a worker is killed again and again, with
the memory, descriptors and threads of the launcher and of rank 0, which is never killed, after each recovery.

    cargo build --release && python3 bench/soak.py [--write]

Workers sleep for each of their shards, so that a step takes no processor and the job lasts. With --write the
measurements and their picture take their place in docs/, and the sentence in docs/notes/elastic.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainings import ROOT, write_between

DOC = ROOT / "docs" / "notes" / "elastic.md"
ROWS = ROOT / "docs" / "soak.jsonl"
SVG = ROOT / "docs" / "soak.svg"
BEGIN, END = "<!-- bench/soak.py: begin -->", "<!-- bench/soak.py: end -->"

WORKERS = 4
TRAINING = "--shards 4 --batch-size 8 --epochs 100000 --checkpoint-epochs 100000"
SLEEP = 5
"""Milliseconds of each worker in each step."""
PATIENCE = 120
"""Seconds that a recovery may take on the busiest machine; only a hang gets there."""
LOOK = 0.02
"""Seconds between two looks whether the job has recovered."""
SETTLED = 200
"""Deaths after which the allocators have what they keep for later; growth is counted from there."""

FIGURES = {"rss_mib": "resident memory, MiB", "descriptors": "open descriptors", "threads": "threads"}
PROCESSES = {"launcher": "#2f81f7", "rank 0": "#db6d28"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.grid { stroke: #8c959f; stroke-opacity: .3; }
.line { fill: none; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4; } }
"""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--deaths", type=int, default=500)
    parser.add_argument("--transport", default="shm")
    parser.add_argument("--rows", type=Path, help="write each measurement here at once")
    parser.add_argument("--write", action="store_true", help=f"into {DOC.relative_to(ROOT)}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kolo-soak-") as scratch:
        rows = soak(options, Path(scratch))
    text = sentence(options, rows)
    print(text)
    if options.write:
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
        SVG.write_text(picture(rows))
        write_between(DOC, BEGIN, END, text)
    return 0 if len(rows) > options.deaths else 1


def soak(options: argparse.Namespace, scratch: Path) -> list[dict]:
    """Runs the job and kills its workers; a measurement before the first death and one after each."""
    run, words = scratch / "run", [str(options.kolo), "train", "--nproc", str(WORKERS), *TRAINING.split()]
    for rank in range(WORKERS):
        words += ["--slow", f"{rank}:compute:{SLEEP}"]
    words += ["--transport", options.transport, "--max-restarts", str(options.deaths), "--out", str(run)]
    log = scratch / "output"
    with log.open("w") as output:
        job = subprocess.Popen(words, stdout=output, stderr=output)
    rows = []
    try:
        generation = wait_for_all(job, run, 0)
        first = workers(job.pid)[0]
        rows.append(measured(0, 0, generation, job.pid, first))
        for death in range(1, options.deaths + 1):
            # One after another, and often the one that has just come.
            others = [pid for pid in workers(job.pid) if pid != first]
            os.kill(others[death % len(others)], signal.SIGKILL)
            began = time.monotonic()
            generation = wait_for_all(job, run, generation["generation"])
            recovered = time.monotonic() - began
            rows.append(measured(death, recovered, generation, job.pid, first))
            if options.rows:
                with options.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    except (RuntimeError, ProcessLookupError, FileNotFoundError) as error:
        # What has been measured until then is shown.
        said = log.read_text()[-2000:]
        print(f"error: after {max(len(rows) - 1, 0)} deaths: {error}\n{said}", file=sys.stderr)
    finally:
        # It leaves a checkpoint and ends its workers.
        job.terminate()
        try:
            job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
    return rows


def wait_for_all(job: subprocess.Popen, run: Path, after: int) -> dict:
    """Waits until a generation after that one has done a step with all workers."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if job.poll() is not None:
            raise RuntimeError(f"the job has ended with {job.returncode}")
        try:
            # The last line may be half written.
            lines = (run / "generations.jsonl").read_text().split("\n")[:-1]
        except FileNotFoundError:
            lines = []
        last = json.loads(lines[-1]) if lines else {"generation": 0, "world_size": 0}
        if last["generation"] > after and last["world_size"] == WORKERS:
            return last
        time.sleep(LOOK)
    raise RuntimeError(f"no generation of {WORKERS} workers came after generation {after}")


def workers(launcher: int) -> list[int]:
    """The launcher's workers that live, in the order of their starts, which is that of their ranks."""
    pids = []
    for task in Path(f"/proc/{launcher}/task").iterdir():
        pids += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if is_worker(pid)]


def is_worker(pid: int) -> bool:
    """Whether it lives and has a member's name; the dead have no environment."""
    try:
        return b"\0KOLO_MEMBER=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def measured(death: int, recovered: float, generation: dict, launcher: int, first: int) -> dict:
    row = {"deaths": death, "recovered_seconds": round(recovered, 3), "steps": generation["first_step"]}
    return row | {"launcher": process(launcher), "rank 0": process(first)}


def process(pid: int) -> dict:
    """Memory, descriptors and threads of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    return {
        "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024, 2),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
    }


def sentence(options: argparse.Namespace, rows: list[dict]) -> str:
    """What has become of each figure, from the death after which all is settled to the last one."""
    if len(rows) <= SETTLED:
        return f"{len(rows) - 1} deaths: too few to say anything"
    began, ended = rows[SETTLED], rows[-1]
    times = sorted(row["recovered_seconds"] for row in rows[1:])
    shown = []
    for name in PROCESSES:
        before, after = began[name], ended[name]
        shown.append(
            f"{name}: {before['rss_mib']:.1f} → {after['rss_mib']:.1f} MiB, "
            f"{before['descriptors']} → {after['descriptors']} descriptors, "
            f"{before['threads']} → {after['threads']} threads"
        )
    deaths = f"{ended['deaths']} deaths in one job of {WORKERS} workers over {options.transport}"
    p50, p95 = times[len(times) // 2], times[len(times) * 95 // 100]
    command = f"python3 bench/soak.py --deaths {options.deaths} --transport {options.transport}"
    return (
        f"{deaths} (`{command}`; all four were at work again after {p50:.1f} s (p50), {p95:.1f} s (p95), "
        f"most of it the start of a program). From the {SETTLED}th to the last one, "
        f"{ended['steps'] - began['steps']:,} steps later, {'; '.join(shown)}.\n\n"
        f"![Memory, descriptors and threads over the deaths of a job](../{SVG.name})"
    )


def picture(rows: list[dict]) -> str:
    """A panel for each figure over the number of deaths, with a line for each process."""
    width, panel, left, right, top, bottom = 640, 130, 60, 90, 26, 40
    height = top + panel * len(FIGURES) + bottom
    most = max(rows[-1]["deaths"], 1)

    def x(death: int) -> float:
        return left + (width - left - right) * death / most

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>{STYLE}</style>']
    for number, (figure, title) in enumerate(FIGURES.items()):
        low, high = top + panel * (number + 1) - 30, top + panel * number
        largest = 1.15 * max(row[name][figure] for row in rows for name in PROCESSES)

        def y(value: float) -> float:
            return low - (low - high) * value / largest

        parts.append(f'<text x="{left}" y="{high - 6}">{title}</text>')
        for value in (0, largest / 2, largest):
            parts.append(f'<path class="grid" d="M{left} {y(value):.1f}H{width - right}"/>')
            parts.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
        for name, color in PROCESSES.items():
            path = "M" + "L".join(f"{x(row['deaths']):.1f} {y(row[name][figure]):.1f}" for row in rows)
            parts.append(f'<path class="line" stroke="{color}" d="{path}"/>')
            place = y(rows[-1][name][figure]) + 4
            parts.append(f'<text x="{width - right + 8}" y="{place:.1f}" style="fill:{color}">{name}</text>')
    for n in range(6):
        death = most * n // 5
        at = f'x="{x(death):.1f}" y="{height - bottom + 8}"'
        parts.append(f'<text {at} text-anchor="middle">{death}</text>')
    middle = (left + width - right) / 2
    parts.append(f'<text x="{middle}" y="{height - 10}" text-anchor="middle">workers killed</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())
