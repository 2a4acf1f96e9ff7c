"""Published step times and efficiencies beside what `kolo plan step` says of them: what is calibrated on which
rows, and what is predicted from that then. Used by foresight.py; needs no run.
"""

import json
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

PARAMETERS = {
    "ResNet-50": 25.6e6,
    "ResNet-101": 44.5e6,
    "ResNeXt-50": 25.0e6,
    "ResNeXt-101-32x8d": 88.8e6,
    "Inception V3": 23.8e6,
    "VGG-16": 138.4e6,
    "a billion parameters": 1e9,
}
"""Of torchvision's and Keras's models."""
CLASSIFIERS = {"VGG-16": 123.6e6}
"""Those of fully connected layers, where they are many."""
SUMS = "sum_gbytes = 500\n"
"""Of an accelerator: an estimate, as good as none."""
FORWARD, BACKWARD, OPTIMIZER = 0.32, 0.63, 0.05
"""Shares of a step where only the whole is published: an estimate."""


@dataclass
class Table:
    """Rows of (what, predicted, published) in one unit, of which `calibrated` were used to set the model."""

    title: str
    about: str
    unit: str
    calibrated: list[str] = field(default_factory=list)
    rows: list[tuple[str, float, float]] = field(default_factory=list)

    def errors(self) -> list[float]:
        return [abs(predicted / published - 1) for _, predicted, published in self.rows]

    def text(self) -> str:
        lines = [f"**{self.title}** {self.about}", "", f"| | predicted, {self.unit} | published, {self.unit} | error |"]
        lines.append("|---|---:|---:|---:|")
        for what, predicted, told in self.rows:
            lines.append(f"| {what} | {predicted:.4g} | {told:.4g} | {100 * (predicted / told - 1):+.1f} % |")
        return "\n".join(lines)


class Planner:
    """`kolo plan step` on a cluster of accelerators."""

    def __init__(self, kolo: pathlib.Path) -> None:
        self.kolo = kolo

    def step(self, model: str, step: float, workers: int, cluster: str, *more: str) -> float:
        """Seconds of a step whose computation takes `step` seconds."""
        profile = {"forward": step * FORWARD, "backward": step * BACKWARD, "optimizer": step * OPTIMIZER}
        profile["buckets"] = buckets(model, profile["forward"], profile["backward"])
        told = {"model": model, "batch_size": 0, "reduction": "sum", "cores": 0, "full_slowdown": 1, "spread": 0}
        with tempfile.TemporaryDirectory() as folder:
            files = {"cluster": cluster + SUMS, "profile": json.dumps(told | {"profile": profile})}
            for name, text in files.items():
                pathlib.Path(folder, name).write_text(text)
            words = [word for name in files for word in (f"--{name}", f"{folder}/{name}")]
            words = [str(self.kolo), "plan", "step", *words, "--workers", str(workers), "--json", *more]
            ran = subprocess.run(words, check=True, capture_output=True, text=True)
        (row,) = json.loads(ran.stdout)
        return row["seconds"] + row["straggling"]


def buckets(model: str, forward: float, backward: float) -> list[dict]:
    """Parts of at most 4 MB: the classifier's first, which is nearly all of VGG-16 and takes no time, then the
    others at even distances."""
    classifier = CLASSIFIERS.get(model, 0.0)
    found = []
    for parameters, begin, end in ((classifier, 0.0, 0.02), (PARAMETERS[model] - classifier, 0.02, 1.0)):
        count = max(1, round(4 * parameters / 4e6))
        for part in range(count if parameters else 0):
            share = begin + (end - begin) * (part + 1) / count
            size = 4 * parameters / count
            ready, needed = backward * share, forward * (1 - share)
            found.append({"bytes": size, "wire_bytes": size, "ready": ready, "needed": needed})
    return found


def solve(of: Callable[[float], float], aim: float, low: float, high: float) -> float:
    """Where a function that grows reaches `aim`: by halving, on a logarithmic scale."""
    for _ in range(24):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if of(middle) < aim else (low, middle)
    return (low * high) ** 0.5


def pytorch(plan: Planner) -> Table:
    """https://github.com/pytorch/pytorch/blob/main/benchmarks/distributed/ddp/README.md"""
    counts = [2, 4, 8, 16]
    alone = {"ResNet-50": 0.100, "ResNet-101": 0.171, "ResNeXt-50": 0.147, "ResNeXt-101-32x8d": 0.425}
    told = {
        "ResNet-50": [0.103, 0.103, 0.104, 0.104],
        "ResNet-101": [0.176, 0.176, 0.179, 0.179],
        "ResNeXt-50": [0.153, 0.153, 0.157, 0.157],
        "ResNeXt-101-32x8d": [0.438, 0.439, 0.447, 0.450],
    }
    cluster = (
        "workers_per_node = 8\ninside = { gigabits = 1200, latency_us = 3.4, per_message_us = 0.5 }\n"
        "between = { gigabits = 96, latency_us = 14, per_message_us = 0.5 }\nlinks_per_node = 4\n"
    )
    ring = ["--algorithm", "ring", "--bucket-cap-mb", "25", "--no-forward-overlap"]

    def step(model: str, workers: int, spread: float) -> float:
        more = [*ring, "--spread", str(spread)]
        return plan.step(model, alone[model], workers, cluster, *more)

    spread = solve(lambda percent: step("ResNet-50", 16, percent), told["ResNet-50"][-1], 0.01, 20)
    about = (
        f"(benchmarks/distributed/ddp/README.md; seconds of an iteration, 32 images for each V100, 8 in a node, 4 × 100 Gbit/s). "
        f"Calibrated: each model's step with one GPU; on ResNet-50 with 16 GPUs that GPUs differ by {spread:.2f} % from step to "
        f"step. Predicted: all that is below."
    )
    table = Table("PyTorch DDP", about, "ms")
    for model, row in told.items():
        for workers, seconds in zip(counts, row, strict=True):
            if (model, workers) != ("ResNet-50", 16):
                table.rows.append((f"{model}, {workers} GPUs", 1e3 * step(model, workers, spread), 1e3 * seconds))
    return table


def nanotron(plan: Planner) -> Table:
    """https://huggingface.co/spaces/nanotron/ultrascale-playbook"""
    told = {8: 40150, 16: 37610, 32: 35368, 64: 31112, 128: 26446, 256: 15700}

    def rate(gpus: int, latency: float) -> float:
        link = f"between = {{ gigabits = 3040, latency_us = {latency}, per_message_us = 0.5 }}\n"
        # All in one bucket, which nothing hides.
        more = ["--algorithm", "ring", "--bucket-cap-mb", "100000", "--no-forward-overlap"]
        seconds = [plan.step("a billion parameters", 1.0, count // 8, link, *more) for count in (8, gpus)]
        return told[8] * seconds[0] / seconds[1]

    latency = solve(lambda latency: -rate(32, latency), -told[32], 1, 1e6)
    about = (
        f"(The Ultra-Scale Playbook, data parallelism; tokens a second and GPU, 8 H100 in a node). The sizes of the model and of a"
        f" step are not published with it: a step of 1 s is taken, all of whose communication is waited for, by a ring of nodes."
        f" Calibrated: the rate with 8 GPUs; on 32 GPUs what each message of the ring takes ({latency / 1e3:.1f} ms for a step of 1 s)."
        f" Predicted:"
    )
    table = Table("nanotron", about, "tokens/s")
    table.rows = [(f"{n} GPUs", rate(n, latency), rate_told) for n, rate_told in told.items() if n not in (8, 32)]
    return table


def horovod(plan: Planner) -> Table:
    """Sergeev & Del Balso 2018, figure 6 and section 5; https://github.com/horovod/horovod"""
    rates = {"Inception V3": 142.0, "ResNet-101": 103.6, "VGG-16": 154.0}

    def efficiency(model: str, workers: int, gigabits: float) -> float:
        alone = 64 / rates[model]
        link = f"between = {{ gigabits = {gigabits}, latency_us = 14, per_message_us = 0.5 }}\n"
        more = ["--algorithm", "ring", "--bucket-cap-mb", "64", "--no-forward-overlap"]
        return 100 * alone / plan.step(model, alone, workers // 4, link, *more)

    gigabits = solve(lambda rate: efficiency("VGG-16", 128, rate), 79, 1, 100)
    about = (
        f"(docs/benchmarks.md; 512 Pascal GPUs, 4 in a node, 25 Gbit/s with RoCE; scaling efficiency). A ring of nodes. One GPU's"
        f" images a second, 64 in a step: 142 of Inception V3 and 154 of VGG-16 are those of TensorFlow's benchmarks of 2017 on a P100 (the second one recalled, not read again);"
        f" 103.6 of ResNet-101 is a sixteenth of what Horovod's own page has of 16 GPUs. Calibrated: on VGG-16 with 128 GPUs (79 %) what"
        f" the ring gets of each link ({gigabits:.1f} of 25 Gbit/s). Predicted:"
    )
    table = Table("Horovod", about, "%")
    for model, told in (("Inception V3", 90), ("ResNet-101", 90), ("VGG-16", 68)):
        table.rows.append((f"{model}, 512 GPUs", efficiency(model, 512, gigabits), told))
    return table


def byteps(plan: Planner) -> Table:
    """https://github.com/bytedance/byteps, README: 8 V100 in a node, 20 Gbit/s TCP; a node counts as one worker."""
    rates = {"ResNet-50": 370.0, "VGG-16": 220.0}

    def faster(model: str, gigabits: float) -> float:
        alone = 64 / rates[model]
        link = "between = { gigabits = %s, latency_us = 30, per_message_us = 2.6 }\n"
        without = plan.step(model, alone, 4, link % gigabits, "--no-forward-overlap")
        return without / plan.step(model, alone, 4, link % 18.8 + "servers = 4\n")

    gigabits = solve(lambda rate: -faster("ResNet-50", rate), -1.44, 0.5, 18.8)
    about = (
        f"(docs/performance.md; V100 with 64 images in a step, 8 in a node, 20 Gbit/s TCP; times as fast as Horovod). The number of nodes is"
        f" not published: 4 are taken, each as one worker, and as many servers; the next forward pass begins with what is back, as BytePS's"
        f" does. One GPU's images a second (370, 220) are an estimate. Calibrated: on ResNet-50 (1.44 times) what Horovod's all-reduce gets"
        f" of the link ({gigabits:.1f} of 20 Gbit/s). Predicted:"
    )
    table = Table("BytePS", about, "times")
    table.rows = [("VGG-16", faster("VGG-16", gigabits), 2.0)]
    return table


def tables(kolo: pathlib.Path) -> str:
    plan = Planner(kolo)
    found = [build(plan) for build in (pytorch, nanotron, horovod, byteps)]
    errors = [error for table in found for error in table.errors()]
    worst = max(errors)
    summary = (
        f"Of {len(errors)} rows that nothing was calibrated on: median error {100 * statistics.median(errors):.1f} % (aim: below 10), "
        f"worst {100 * worst:.0f} %; by table "
        + ", ".join(f"{table.title} {100 * statistics.median(table.errors()):.1f} %" for table in found)
        + "."
    )
    return "\n\n".join([*(table.text() for table in found), summary])
