"""Results as a run leaves them, for the tests: every time is a simple multiple of the size."""

from measure import LINK
from results import Results, Sample
from settings import ALL_REDUCES, STEPS
from systems import GLOO, KOLO, KOLO_SLICES
from trainings import DDP, DDP_BEST

SIZES = (4, 1 << 20, 16 << 20)
LINK_RATE = 119.5e6
PEERS = {GLOO: 10.0, "Open MPI": 2.5, "MPICH": 4.0}
"""How many times longer than Kolo."""


def rows(nanoseconds_a_byte: float) -> dict:
    return {size: {"bytes": size, "p50_us": nanoseconds_a_byte * size / 1e3} for size in SIZES}


def step(seconds: float, alone: float) -> dict:
    return {
        "step_seconds": seconds,
        "step_seconds_no_sync": alone,
        "efficiency": alone / seconds,
        "images_per_second": 64 / seconds,
    }


def results(rounds: int = 3) -> Results:
    """All settings; the second round is twice as slow for everybody, which no ratio may show."""
    found = Results({"machine": "a machine"}, ["Setting: a reason"])
    for number in range(1, rounds + 1):
        slow = 2.0 if number == 2 else 1.0
        for setting in ALL_REDUCES:
            if setting.rate:
                found.add(
                    Sample(setting.key, LINK, number, {"one": LINK_RATE / slow, "both": LINK_RATE / slow})
                )
            # 8.5 ns a byte are 98.4 % of the link.
            found.add(Sample(setting.key, KOLO, number, rows(8.5 * slow)))
            found.add(Sample(setting.key, KOLO_SLICES, number, rows(17.0 * slow)))
            for name, factor in PEERS.items():
                found.add(Sample(setting.key, name, number, rows(8.5 * factor * slow)))
        local, link, alone = STEPS
        for each in (local, alone):
            found.add(Sample(each.key, KOLO, number, step(0.5 * slow, 0.45 * slow)))
            found.add(Sample(each.key, DDP, number, step(0.8 * slow, 0.6 * slow)))
            best = step(0.4 * slow, 0.3 * slow) | {"settings": "the best"}
            found.add(Sample(each.key, DDP_BEST, number, best))
        found.add(Sample(link.key, LINK, number, {"one": LINK_RATE / slow, "both": LINK_RATE / slow}))
        for name in (KOLO, DDP, DDP_BEST):
            found.add(Sample(link.key, name, number, step(0.5 * slow, 0.45 * slow)))
    return found
