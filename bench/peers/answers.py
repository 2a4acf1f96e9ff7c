"""What a measured program has to answer: JSON, whose fields are checked before they are divided by."""

import json

from processes import BenchError

STEP_FIELDS = ("step_seconds", "step_seconds_no_sync", "efficiency", "images_per_second")
ALL_REDUCE_FIELDS = ("bytes", "p50_us")
LINK_FIELDS = ("bytes_per_second",)


def step_answer(name: str, output: str) -> dict:
    """The one record of a step measurement."""
    return _single(name, output, STEP_FIELDS)


def link_answer(name: str, output: str) -> dict:
    """The one record of a measurement of the link."""
    return _single(name, output, LINK_FIELDS)


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
    """The objects in `output`: one object, an array of them, an object with such `rows`, or one a line."""
    try:
        try:
            value = json.loads(output)
        except json.JSONDecodeError:
            value = [json.loads(line) for line in output.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise BenchError(f"{name} did not answer in JSON: {error}; it wrote: {output[:200]!r}") from error
    if isinstance(value, dict) and isinstance(value.get("rows"), list):
        value = value["rows"]
    return value if isinstance(value, list) else [value]


def _single(name: str, output: str, fields: tuple[str, ...]) -> dict:
    records = json_records(name, output)
    if len(records) != 1:
        raise BenchError(f"{name} answered {len(records)} records instead of one")
    _require(name, records[0], fields)
    return records[0]


def _require(name: str, record: dict, fields: tuple[str, ...]) -> None:
    """A positive number in each field: what is compared must neither be missing nor be divided by as zero."""
    for field in fields:
        value = record.get(field) if isinstance(record, dict) else None
        if not isinstance(value, int | float) or not value > 0:
            raise BenchError(f"{name}: field {field} is {value!r} instead of a positive number in {record!r}")
