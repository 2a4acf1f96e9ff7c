"""From the samples to tables. Nothing here measures or runs anything."""

from collections.abc import Callable

import targets
from figures import (
    Spread,
    bus_bandwidth,
    byte_size,
    duration,
    pair_ratios,
    percent,
    ratio,
    spread,
    table,
    three_digits,
)
from measure import LINK
from namespaces import SHAPES
from results import Results
from settings import STEP_BYTES, Setting
from systems import GLOO, KOLO, KOLO_SLICES
from trainings import DDP, DDP_BEST

MUCH_LARGER = 16
"""Times the burst that a message has to be for its time to be the link's."""


def step_table(results: Results, setting: Setting) -> str:
    """The training step of both sides, with Kolo's part in images a second of PyTorch at its best."""
    kolo, plain, best = (results.rounds(setting.key, name) for name in (KOLO, DDP, DDP_BEST))

    def row(title: str, name: str, form: Callable[[float], str], target: targets.Target | None) -> list[str]:
        ours, theirs, default = _values(kolo, name), _values(best, name), _values(plain, name)
        quotient = pair_ratios(ours, theirs) if ours.keys() & theirs.keys() else None
        judged = spread(ours.values()).median if target is targets.EFFICIENCY else _median(quotient)
        cells = target.cells(judged) if target else targets.NO_TARGET
        return [title, _show(ours, form), _show(default, form), _show(theirs, form), _ratio(quotient), *cells]

    alone = setting.nproc == 1
    images = targets.ALONE if alone else targets.IMAGES
    rows = [row("images a second", "images_per_second", lambda value: f"{value:.1f}", images)]
    if not alone:
        rows.append(row("scaling efficiency", "efficiency", percent, targets.EFFICIENCY))
    rows += [
        row("step, synchronized", "step_seconds", duration, None),
        row("step, not synchronized", "step_seconds_no_sync", duration, None),
    ]
    return table(["", KOLO, DDP, DDP_BEST, "Kolo / best", "target", ""], rows)


def best_settings(results: Results, setting: Setting) -> str:
    """What PyTorch's best was, round by round; each settings once."""
    answers = results.rounds(setting.key, DDP_BEST).values()
    return "; ".join(dict.fromkeys(answer.get("settings", "") for answer in answers))


def all_reduce_table(results: Results, setting: Setting) -> str:
    """The median times of all systems by size, and how many times longer the others take than Kolo."""
    names, others = results.systems(setting.key), peers(results, setting)
    slices = [KOLO_SLICES] if KOLO_SLICES in names else []
    rows = []
    for size in sizes(results, setting):
        over_best = _over_best(results, setting, size, others, KOLO)
        over_slices = [_ratio(_over_best(results, setting, size, others, name)) for name in slices]
        over_gloo = _over(results, setting, size, GLOO)
        judged = targets.all_reduce_cells(setting, size, _median(over_best), _median(over_gloo))
        for name in slices if setting.transport == "shm" else []:
            over = _over_best(results, setting, size, others, name)
            judged += targets.slices_cells(setting, size, _median(over))
        quotients = [_ratio(over_best), *over_slices]
        quotients += [] if setting.transport == "shm" else [_ratio(over_gloo)]
        rows.append([*_times(results, setting, size, [*slices, *others]), *quotients, *judged])
    head = ["size", KOLO, "GB/s", *slices, *others, "best other / Kolo"]
    head += [f"best other / {name}" for name in slices]
    shared = setting.transport == "shm"
    head += [] if shared else ["Gloo / Kolo"]
    head += ["target", "", *(["target of slices", ""] if slices and shared else [])]
    return table(head, rows)


def link_table(results: Results, setting: Setting) -> str:
    """As on one machine, with the part of the link's payload rate that the bytes of each rank take."""
    others = peers(results, setting)
    rows = []
    for size in sizes(results, setting):
        over_gloo = _over(results, setting, size, GLOO)
        shares = [_share(results, setting, size, name) for name in (KOLO, *others)]
        judged = targets.link_cells(setting, size, shares[0].median, _median(over_gloo))
        shown = size >= MUCH_LARGER * SHAPES[setting.rate or 0].burst
        best = max((share.median for share in shares[1:]), default=None)
        of_link = [percent(shares[0].median) if shown else "", percent(best) if shown and best else ""]
        rows.append([*_times(results, setting, size, others), *of_link, _ratio(over_gloo), *judged])
    head = ["size", KOLO, "GB/s", *others, "Kolo of the link", "best other", "Gloo / Kolo"]
    return table([*head, "target", ""], rows)


def link_step_table(results: Results, setting: Setting) -> str:
    """How far a step over the link is from the longer one of its two parts, which are to overlap."""
    rows = []
    for name in results.systems(setting.key):
        if name == LINK:
            continue
        answers = results.rounds(setting.key, name)
        steps, computes = _values(answers, "step_seconds"), _values(answers, "step_seconds_no_sync")
        wires = {number: wire_seconds(results, setting, number) for number in answers}
        floors = {number: max(computes[number], wires[number]) for number in answers}
        over = pair_ratios(steps, floors)
        cells = targets.LINK_STEP.cells(over.median) if name == KOLO else targets.NO_TARGET
        shown = [_show(values, duration) for values in (steps, computes, wires)]
        rows.append([name, *shown, over.show(ratio), *cells])
    return table(["", "step", "compute only", "wire", "step / max(compute, wire)", "target", ""], rows)


def link_rates(results: Results, setting: Setting) -> tuple[Spread, Spread]:
    """Bytes a second of payload that the link carried, one way and in both directions at the same time."""
    answers = results.rounds(setting.key, LINK)
    return spread(_values(answers, "one").values()), spread(_values(answers, "both").values())


def wire_seconds(results: Results, setting: Setting, number: int) -> float:
    """The least time of the gradients' all-reduce over the link, with one way's rate taken for both."""
    sent = 2 * (setting.nproc - 1) / setting.nproc * STEP_BYTES
    return sent / results.rounds(setting.key, LINK)[number]["one"]


def seconds(results: Results, setting: Setting, system: str, size: int) -> dict[int, float]:
    """The p50 of one size by round."""
    answers = results.rounds(setting.key, system)
    return {number: rows[size]["p50_us"] / 1e6 for number, rows in answers.items() if size in rows}


def sizes(results: Results, setting: Setting) -> list[int]:
    rounds = results.rounds(setting.key, KOLO)
    return sorted(next(iter(rounds.values()))) if rounds else []


def _times(results: Results, setting: Setting, size: int, peers: list[str]) -> list[str]:
    """Size, Kolo's time and bus bandwidth, the others' times."""
    kolo = spread(seconds(results, setting, KOLO, size).values())
    bandwidth = three_digits(bus_bandwidth(size, kolo.median, setting.nproc))
    others = [_show(seconds(results, setting, name, size), duration) for name in peers]
    return [byte_size(size), kolo.show(duration), bandwidth, *others]


def _over(results: Results, setting: Setting, size: int, peer: str) -> Spread | None:
    """How many times longer one peer takes than Kolo."""
    kolo, other = seconds(results, setting, KOLO, size), seconds(results, setting, peer, size)
    return pair_ratios(other, kolo) if kolo.keys() & other.keys() else None


def peers(results: Results, setting: Setting) -> list[str]:
    """The systems that Kolo is measured beside."""
    return [name for name in results.systems(setting.key) if name not in (KOLO, KOLO_SLICES, LINK)]


def _over_best(
    results: Results, setting: Setting, size: int, peers: list[str], kolo: str
) -> Spread | None:
    """The same for whichever peer was the fastest in a round, beside one of Kolo's memories."""
    best: dict[int, float] = {}
    for peer in peers:
        for number, value in seconds(results, setting, peer, size).items():
            best[number] = min(value, best.get(number, value))
    ours = seconds(results, setting, kolo, size)
    return pair_ratios(best, ours) if best.keys() & ours.keys() else None


def _share(results: Results, setting: Setting, size: int, system: str) -> Spread:
    """The bytes that a rank sends at least, by its time, by the link's rate one way: 1 fills the link."""
    rates = results.rounds(setting.key, LINK)
    times = seconds(results, setting, system, size)
    return spread(
        1e9 * bus_bandwidth(size, value, setting.nproc) / rates[number]["one"]
        for number, value in times.items()
    )


def _values(answers: dict[int, dict], name: str) -> dict[int, float]:
    return {number: answer[name] for number, answer in answers.items()}


def _show(values: dict[int, float], form: Callable[[float], str]) -> str:
    return spread(values.values()).show(form) if values else ""


def _median(values: Spread | None) -> float | None:
    return values.median if values else None


def _ratio(values: Spread | None) -> str:
    return values.show(ratio) if values else ""
