"""All that was measured, as it is written to `--json` and read again to make the report."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from processes import BenchError


@dataclass(frozen=True)
class Sample:
    """One run of one system: the rows of an all-reduce, the object of a step, or the rates of a link."""

    setting: str
    system: str
    round: int
    answer: dict


@dataclass
class Results:
    """`header`: machine, versions, command, as the report says them; `notes`: what could not be measured."""

    header: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)

    def note(self, text: str) -> None:
        """Once each, in the order in which they came up."""
        if text not in self.notes:
            self.notes.append(text)

    def rounds(self, setting: str, system: str) -> dict[int, dict]:
        """The answers of one system in one setting by round."""
        found = [each for each in self.samples if (each.setting, each.system) == (setting, system)]
        return {each.round: each.answer for each in found}

    def systems(self, setting: str) -> list[str]:
        """Those with an answer, in the order in which they were measured."""
        return list(dict.fromkeys(each.system for each in self.samples if each.setting == setting))

    def write(self, path: Path) -> None:
        """By a file renamed into place: a run that is ended later leaves all that it had measured."""
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n")
        temporary.replace(path)


def read(path: Path) -> Results:
    """What `write` wrote. The sizes are whole numbers again, which JSON has as text."""
    try:
        value = json.loads(path.read_text())
        samples = [Sample(**{**each, "answer": _with_sizes(each["answer"])}) for each in value["samples"]]
        return Results(value["header"], value["notes"], samples)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path.name}: not the results of an earlier --json: {error}") from error


def _with_sizes(answer: dict) -> dict:
    return {int(key) if key.isdigit() else key: value for key, value in answer.items()}
