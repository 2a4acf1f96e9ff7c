"""Runs every system in every setting, the systems in turn, round after round.

A peer that fails or takes too long is noted and left out of the setting's further rounds: it must not cost
the hour that the others were measured for. Kolo's failure ends all.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import link_rate
import namespaces
from answers import all_reduce_answer, step_answer
from figures import byte_size, duration
from places import Loopback, Place
from processes import BenchError, Command, run_together
from results import Results, Sample
from settings import ALL_REDUCES, STEPS, Setting
from systems import KOLO, SYSTEMS, Job, Programs
from trainings import TRAININGS, Extent

LINK = "link"
"""The system under which a link's rates stand among the results."""
Save = Callable[[], None]


@dataclass(frozen=True)
class Plan:
    """What is measured, how often and how long."""

    programs: Programs
    parts: tuple[str, ...]
    rounds: int
    sizes: list[int]
    seconds: float
    link_seconds: float
    extent: Extent
    timeout: float


@dataclass
class Campaign:
    """A plan as it is carried out; `save` is called after every measurement."""

    plan: Plan
    results: Results
    save: Save
    failed: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> None:
        for setting in (*ALL_REDUCES, *STEPS):
            if setting.part in self.plan.parts:
                self._setting(setting)

    def _setting(self, setting: Setting) -> None:
        if setting.rate and (reason := namespaces.obstacle()):
            self.results.note(f"{setting.title}: {reason}")
            return
        with ExitStack() as stack:
            try:
                place = stack.enter_context(place_of(setting))
            except BenchError as error:
                self.results.note(f"{setting.title}: the link could not be made")
                print(f"warning: {setting.title}: {error}", file=sys.stderr)
                return
            for number in range(1, self.plan.rounds + 1):
                self._round(setting, place, number)

    def _round(self, setting: Setting, place: Place, number: int) -> None:
        if setting.rate:
            self._keep(setting, LINK, number, self._link(place))
        if setting in STEPS:
            for training in TRAININGS:
                if training.program(self.plan.programs):
                    self._one(setting, place, number, training.name, self._step(training.step))
        else:
            for system in SYSTEMS:
                if system.program(self.plan.programs) and (system.over_links or not setting.rate):
                    self._one(setting, place, number, system.name, self._all_reduce(system.all_reduce))

    def _one(
        self, setting: Setting, place: Place, number: int, name: str, ask: Callable[[Job], dict]
    ) -> None:
        """One system's measurement, in a folder of its own."""
        if (setting.key, name) in self.failed:
            return
        with tempfile.TemporaryDirectory(prefix="kolo-peers-") as folder:
            job = Job(setting, place, Path(folder), self.plan.sizes, self.plan.seconds)
            try:
                answer = ask(job)
            except BenchError as error:
                if name == KOLO:
                    raise
                self.failed.add((setting.key, name))
                self.results.note(f"{setting.title}: {name} failed and is left out from round {number} on")
                print(f"warning: {setting.title}: {error}", file=sys.stderr)
                return
        self._keep(setting, name, number, answer)

    def _all_reduce(self, call: Callable[[Programs, Job], list[Command]]) -> Callable[[Job], dict]:
        def ask(job: Job) -> dict:
            commands = call(self.plan.programs, job)
            output = run_together(commands, self.plan.timeout)[0]
            return all_reduce_answer(commands[0].name, output, job.sizes)

        return ask

    def _step(self, call: Callable[[Programs, Job, Extent], list[Command]]) -> Callable[[Job], dict]:
        def ask(job: Job) -> dict:
            commands = call(self.plan.programs, job, self.plan.extent)
            return step_answer(commands[0].name, run_together(commands, self.plan.timeout)[0])

        return ask

    def _link(self, place: Place) -> dict:
        """Payload rates in bytes a second: one way, and the slower one of both at the same time."""
        assert not isinstance(place, Loopback)
        seconds, timeout = self.plan.link_seconds, self.plan.timeout
        return {
            directions: link_rate.bytes_per_second(place, directions, seconds, timeout)
            for directions in ("one", "both")
        }

    def _keep(self, setting: Setting, name: str, number: int, answer: dict) -> None:
        self.results.add(Sample(setting.key, name, number, answer))
        self.save()
        print(
            f"{setting.title}, round {number}/{self.plan.rounds}: {name}: {progress(answer)}", file=sys.stderr
        )


@contextmanager
def place_of(setting: Setting) -> Iterator[Place]:
    """Where the setting's ranks run, for as long as they do."""
    if setting.rate is None:
        yield Loopback()
        return
    with namespaces.shaped_link(setting.rate) as place:
        yield place


def progress(answer: dict) -> str:
    """An answer in a few words."""
    if "one" in answer:
        return f"{answer['one'] / 1e6:.1f} MB/s one way, {answer['both'] / 1e6:.1f} MB/s in both"
    if "step_seconds" in answer:
        return f"step {duration(answer['step_seconds'])}, alone {duration(answer['step_seconds_no_sync'])}"
    return ", ".join(f"{byte_size(size)} {duration(row['p50_us'] / 1e6)}" for size, row in answer.items())
