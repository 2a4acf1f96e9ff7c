"""What a fault has cost, from the steps that were done before and after it, and the table of all faults.
Nothing here measures or runs anything."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

from figures import table
from recovery_systems import BATCH, SYSTEMS, WORKERS, Step

KILL, STOP = "kill", "stop"
FAULT, CUT = "fault", "cut"
"""Rows of a worker that died or stopped, and of a host that was cut off."""
NEVER = "never"


@dataclass(frozen=True)
class Fault:
    """A fault and what it has cost. Seconds are None where the step did not come in the time that was given."""

    kind: str
    unix: float
    next_step: float | None
    """Seconds until a generation without the lost worker had done a step."""
    full_strength: float | None
    """Seconds until all three workers had done a step together."""
    again: int
    """Steps that were done before and had to be done again."""
    skipped: int
    """Samples that the undisturbed run takes and this one left out, until the next fault."""

    def row(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Struck:
    """What was known when the fault came: its time, the newest step that was done, its generation."""

    kind: str
    unix: float
    step: int
    generation: int


def cost(struck: Struck, steps: list[Step], until: float = float("inf")) -> Fault:
    """What a fault has cost, by the steps done until the time of the next one."""
    later = [step for step in steps if step.generation > struck.generation and struck.unix < step.unix < until]
    # What the old generation still finished was done before, too.
    before = max([struck.step, *(step.step for step in steps if step.generation == struck.generation)])
    full = min((step.unix for step in later if step.world == WORKERS), default=None)
    first = min(later, key=lambda step: step.unix, default=None)
    again = max(0, before + 1 - first.step) if first else 0
    samples = {step.step: step.samples for step in later}
    left_out = sum(BATCH - samples.get(step, 0) for step in range(before + 1, max(samples, default=before) + 1))
    return Fault(
        struck.kind,
        struck.unix,
        first and first.unix - struck.unix,
        None if full is None else full - struck.unix,
        again,
        left_out,
    )


def costs(struck: list[Struck], steps: list[Step]) -> list[Fault]:
    ends = [*(each.unix for each in struck[1:]), float("inf")]
    return [cost(each, steps, end) for each, end in zip(struck, ends, strict=True)]


def rendered(rows: list[dict]) -> str:
    """The table of the JSON lines of a run: medians, and the worst behind a stroke."""
    faults = [row for row in rows if row["row"] == FAULT]
    ends = {row["system"]: row for row in rows if row["row"] == "end"}
    head = ["", "next step", "all three at work", "steps again", "samples skipped", "undisturbed weights"]
    head += ["stopped: next step", "all three"]
    lines = []
    for system in SYSTEMS:
        own = [row for row in faults if row["system"] == system.name]
        kills, stops = ([row for row in own if row["kind"] == kind] for kind in (KILL, STOP))
        if not kills and not stops:
            continue
        same = {True: "yes", False: "no", None: ""}[ends.get(system.name, {}).get("same")]
        cells = [shown(kills, "next_step", seconds), shown(kills, "full_strength", seconds)]
        cells += [shown(kills, "again", count), shown(kills, "skipped", count), same]
        cells += [shown(stops, "next_step", seconds), shown(stops, "full_strength", seconds)]
        lines.append([system.name, *cells])
    return table(head, lines)


def rendered_cuts(rows: list[dict], names: list[str]) -> str:
    """The table of the hosts that were cut off."""
    head = ["", "others' next step", "steps again", "samples left out", "undisturbed weights", "steps of the lost host"]
    lines = []
    for name in names:
        own = [row for row in rows if row["row"] == CUT and row["system"] == name]
        if not own:
            continue
        went_on = [row for row in own if row["next_step"] is not None]
        cells = [shown(own, "next_step", seconds), shown(went_on, "again", count), shown(went_on, "share", share)]
        same = "yes" if all(row["same"] for row in went_on) else "no"
        lines.append([name, *cells, same if went_on else "", shown(own, "alone", count)])
    return table(head, lines)


def shown(rows: list[dict], name: str, form: Callable[[float], str]) -> str:
    """Median and worst; what never came is worse than all else."""
    values = [row[name] for row in rows]
    if not values:
        return ""
    known = sorted(value for value in values if value is not None)
    missing = len(values) - len(known)
    if 2 * missing >= len(values):
        return NEVER
    middle = form(median(known) if not missing else known[len(values) // 2])
    worst = NEVER if missing else form(known[-1])
    return middle if middle == worst else f"{middle} / {worst}"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def count(value: float) -> str:
    return f"{value:g}"
