"""The four measurements: how each program is called, and what it has to answer."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from processes import BenchError, Command, run, run_together

HERE = Path(__file__).resolve().parent
STEP_FIELDS = ("step_seconds", "step_seconds_no_sync", "efficiency", "images_per_second")
ALL_REDUCE_FIELDS = ("bytes", "p50_us")


@dataclass(frozen=True)
class Plan:
    """What is measured on both sides."""

    kolo: str
    python: str
    nproc: int
    batch_size: int
    bucket_cap_mb: float
    blocks: int
    steps: int
    sizes: list[int]
    seconds: float
    timeout: float


def kolo_step_command(plan: Plan) -> list[str]:
    model = ["--model", "resnet18", "--batch-size", str(plan.batch_size)]
    return [plan.kolo, "bench", "step", *model, "--nproc", str(plan.nproc), "--json"]


def kolo_all_reduce_command(plan: Plan) -> list[str]:
    sizes = ",".join(map(str, plan.sizes))
    return [plan.kolo, "bench", "all-reduce", "--nproc", str(plan.nproc), "--sizes", sizes, "--json"]


def kolo_step(plan: Plan) -> dict:
    """Kolo's step: one object with STEP_FIELDS."""
    return step_answer(
        "kolo bench step", run(Command("kolo bench step", kolo_step_command(plan)), plan.timeout)
    )


def kolo_all_reduce(plan: Plan) -> dict[int, dict]:
    """Kolo's all-reduce: for each size an object with ALL_REDUCE_FIELDS."""
    output = run(Command("kolo bench all-reduce", kolo_all_reduce_command(plan)), plan.timeout)
    return all_reduce_answer("kolo bench all-reduce", output, plan.sizes)


def ddp_step(plan: Plan) -> dict:
    """PyTorch's step under DDP over Gloo."""
    arguments = ["--batch-size", str(plan.batch_size), "--bucket-cap-mb", f"{plan.bucket_cap_mb:g}"]
    arguments += ["--blocks", str(plan.blocks), "--steps", str(plan.steps)]
    return step_answer("ddp_step.py", _run_ranks(plan, "ddp_step.py", arguments))


def gloo_all_reduce(plan: Plan) -> dict[int, dict]:
    """Gloo's all-reduce through torch.distributed."""
    arguments = ["--sizes", ",".join(map(str, plan.sizes)), "--seconds", f"{plan.seconds:g}"]
    return all_reduce_answer(
        "gloo_all_reduce.py", _run_ranks(plan, "gloo_all_reduce.py", arguments), plan.sizes
    )


def _run_ranks(plan: Plan, script: str, arguments: list[str]) -> str:
    """Starts a script once a rank and returns what rank 0 wrote."""
    with tempfile.TemporaryDirectory(prefix="kolo-peers-") as folder:
        common = {
            "WORLD_SIZE": str(plan.nproc),
            "LOCAL_WORLD_SIZE": str(plan.nproc),
            "PEERS_RENDEZVOUS": f"file://{folder}/rendezvous",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        argv = [plan.python, str(HERE / script), *arguments]
        commands = [
            Command(f"{script}, rank {rank},", argv, common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(plan.nproc)
        ]
        return run_together(commands, plan.timeout)[0]


def step_answer(name: str, output: str) -> dict:
    """The one record of a step measurement."""
    records = json_records(name, output)
    if len(records) != 1:
        raise BenchError(f"{name} answered {len(records)} records instead of one")
    _require(name, records[0], STEP_FIELDS)
    return records[0]


def all_reduce_answer(name: str, output: str, sizes: list[int]) -> dict[int, dict]:
    """The records of an all-reduce measurement by their size; every size asked for has to be there."""
    records = json_records(name, output)
    for record in records:
        _require(name, record, ALL_REDUCE_FIELDS)
    by_size = {record["bytes"]: record for record in records}
    missing = [size for size in sizes if size not in by_size]
    if missing:
        raise BenchError(f"{name} has no result for {missing} bytes, only for {sorted(by_size)}")
    return {size: by_size[size] for size in sizes}


def json_records(name: str, output: str) -> list[dict]:
    """The objects in `output`: one object, an array of them, or one a line."""
    try:
        try:
            value = json.loads(output)
        except json.JSONDecodeError:
            value = [json.loads(line) for line in output.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise BenchError(f"{name} did not answer in JSON: {error}; it wrote: {output[:200]!r}") from error
    return value if isinstance(value, list) else [value]


def _require(name: str, record: dict, fields: tuple[str, ...]) -> None:
    """A positive number in each field: what is compared must neither be missing nor be divided by as zero."""
    for field in fields:
        value = record.get(field) if isinstance(record, dict) else None
        if not isinstance(value, int | float) or not value > 0:
            raise BenchError(f"{name}: field {field} is {value!r} instead of a positive number in {record!r}")
