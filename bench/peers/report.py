"""The generated part of docs/benchmarks.md: the tables in their order, and what has to be said with them."""

import tables
from processes import BenchError
from results import Results
from settings import ALL_REDUCES, STEP_BYTES, STEPS, Setting

PEERS = "peers"
"""This part of the document, as its markers name it."""


def section(results: Results, plot: str | None) -> str:
    """All of it; `plot` is the picture's path as the document sees it. What was not measured is left out."""
    parts = [_head(results)]
    local_step, link_step, alone = STEPS
    parts += [_step(results, each) for each in (local_step, alone) if _measured(results, each)]
    on_one_machine = [each for each in ALL_REDUCES if each.rate is None and _measured(results, each)]
    over_links = [each for each in ALL_REDUCES if each.rate and _measured(results, each)]
    if on_one_machine or over_links:
        parts.append(_all_reduce_head(plot))
    parts += [f"#### {each.title}\n\n{tables.all_reduce_table(results, each)}" for each in on_one_machine]
    parts += [_link(results, each) for each in over_links]
    if _measured(results, link_step):
        parts.append(_link_step(results, link_step))
    return "\n\n".join(parts)


def _measured(results: Results, setting: Setting) -> bool:
    return bool(results.systems(setting.key))


def _head(results: Results) -> str:
    """Where, with what and how, and what is missing."""
    rounds = max((each.round for each in results.samples), default=0)
    taken = f"Median of {rounds} rounds (lowest–highest)" if rounds > 1 else "One round"
    lines = [f"- {key}: {value}" for key, value in results.header.items()]
    lines += [f"- not measured: {note}" for note in results.notes]
    text = f"{taken}, the systems in turn in each; ratios are taken round by round."
    return "\n".join(["## Beside Gloo, Open MPI and MPICH", "", text, "", *lines])


def _step(results: Results, setting: Setting) -> str:
    ranks = f"{setting.nproc} ranks" if setting.nproc > 1 else "one rank"
    return f"""### {setting.title}

ResNet-18, 3×32×32, 10 classes, batch 32 a rank, AdamW, {ranks} of one thread. {_best(results, setting)}

{tables.step_table(results, setting)}"""


def _best(results: Results, setting: Setting) -> str:
    """Which of PyTorch's settings were the fastest."""
    settings = tables.best_settings(results, setting)
    return f"PyTorch's best: {settings}." if settings else ""


def _all_reduce_head(plot: str | None) -> str:
    picture = (
        f"\n\n![Bus bandwidth of each system by size, one panel for each setting]({plot})" if plot else ""
    )
    return f"""### All-reduce

f32, sum, in place; the p50 of the slowest rank's time. GB/s is Kolo's bus bandwidth at its p50. Gloo has no
transport through shared memory: its bytes pass over TCP in every setting. MPICH's ranks wait without giving
up their core, so with more ranks than cores the scheduler's time slices are what is measured.{picture}"""


def _link(results: Results, setting: Setting) -> str:
    return f"""#### {setting.title}

{_link_rates(results, setting)}
A rank's bytes by its time, by the link's rate one way, is the share of the link; it is left out where the
message is not much larger than the burst that the shaper lets pass at once.

{tables.link_table(results, setting)}"""


def _link_step(results: Results, setting: Setting) -> str:
    return f"""### {setting.title}

The same step, one rank in each of two network namespaces. {_best(results, setting)}
{_link_rates(results, setting)}
Wire is the time of the gradients' {STEP_BYTES / 1e6:.1f} MB at the rate one way: a step can overlap it with
the computation, and takes the longer of the two at least.

{tables.link_step_table(results, setting)}"""


def _link_rates(results: Results, setting: Setting) -> str:
    one, both = tables.link_rates(results, setting)

    def megabytes(value: float) -> str:
        return f"{value / 1e6:.1f} MB/s"

    return (
        f"One plain TCP connection carries {one.show(megabytes)} of payload one way,\n"
        f"{both.show(megabytes)} each way in both directions at the same time."
    )


def splice(document: str, generated: str, part: str = PEERS) -> str:
    """`document` with the generated part between its markers, appended where it has none."""
    begin, end = f"<!-- {part}:begin -->", f"<!-- {part}:end -->"
    marked = f"{begin}\n\n{generated.strip()}\n\n{end}"
    counts = (document.count(begin), document.count(end))
    if counts == (0, 0):
        return (document.rstrip() + "\n\n" if document.strip() else "# Benchmarks\n\n") + marked + "\n"
    before, _, rest = document.partition(begin)
    if counts != (1, 1) or end not in rest:
        raise BenchError(
            f"expected one {begin} and after it one {end}, found {counts[0]} and {counts[1]}: mend them"
        )
    return before + marked + rest.partition(end)[2]
