"""The figures of README.md: some rows of the document's tables, copied by the run that made them."""

import tables
from arguments import ROOT
from figures import byte_size, duration, ratio, spread
from figures import table as markdown
from results import Results
from settings import ALL_REDUCES, STEPS, Setting
from systems import KOLO
from trainings import DDP_BEST

PART = "figures"
PATH = ROOT / "README.md"
RESNET18 = 46_758_048
SHM_2, _, TCP_2, *_ = ALL_REDUCES
SHOWN = [
    (SHM_2, "all-reduce of 1 MiB, 2 ranks in shared memory", 1 << 20),
    (SHM_2, "the same of 46.8 MB, the gradients of ResNet-18", RESNET18),
    (TCP_2, "the same over TCP on loopback", RESNET18),
]
"""All-reduces: setting, what the row says, bytes."""


def table(results: Results) -> str:
    """What was not measured is left out."""
    rows = [_images(results, STEPS[0], "ResNet-18, batch 32 a worker, AdamW, 2 workers: images/s")]
    rows.append(_images(results, STEPS[2], "one worker alone: images/s"))
    rows.append(_link_step(results))
    rows += [_all_reduce(results, *shown) for shown in SHOWN]
    return markdown(["", KOLO, "best of the others", ""], [row for row in rows if row])


def _steps(results: Results, setting: Setting, name: str) -> list[dict[int, float]]:
    answers = [results.rounds(setting.key, system) for system in (KOLO, DDP_BEST)]
    return [{number: each[name] for number, each in rounds.items()} for rounds in answers]


def _images(results: Results, setting: Setting, title: str) -> list[str] | None:
    ours, theirs = _steps(results, setting, "images_per_second")
    if not ours or not theirs:
        return None
    shown = [f"{spread(values.values()).median:.0f}" for values in (ours, theirs)]
    return [title, shown[0], f"{shown[1]} ({DDP_BEST})", tables.pair_ratios(ours, theirs).show(ratio)]


def _link_step(results: Results) -> list[str] | None:
    setting = STEPS[1]
    ours, theirs = _steps(results, setting, "step_seconds")
    if not ours or not theirs:
        return None
    wire = spread(tables.wire_seconds(results, setting, number) for number in ours)
    shown = [duration(spread(values.values()).median) for values in (ours, theirs)]
    title = f"two workers over 1 Gbit/s: a step (the wire alone takes {duration(wire.median)})"
    return [title, *shown, tables.pair_ratios(theirs, ours).show(ratio)]


def _all_reduce(results: Results, setting: Setting, title: str, size: int) -> list[str] | None:
    ours = tables.seconds(results, setting, KOLO, size)
    peers = {name: tables.seconds(results, setting, name, size) for name in tables.peers(results, setting)}
    peers = {name: values for name, values in peers.items() if values.keys() & ours.keys()}
    if not peers:
        return None
    best = min(peers, key=lambda name: spread(peers[name].values()).median)
    shown = [duration(spread(values.values()).median) for values in (ours, peers[best])]
    return [title, shown[0], f"{shown[1]} ({best})", tables.pair_ratios(peers[best], ours).show(ratio)]
