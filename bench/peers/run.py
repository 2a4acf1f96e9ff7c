#!/usr/bin/env python3
"""Measures Kolo beside Gloo, Open MPI and MPICH, alternately in one run, and writes docs/benchmarks.md.

See README.md beside this file for what is compared and how.
"""

import argparse
import datetime
import shlex
import sys
from pathlib import Path

import arguments
import machine
import measure
import plot
import programs
import readme
import report
import results
import trainings
from processes import BenchError, end_on_sigterm
from systems import Programs

LINK_SECONDS = 3.0
SMOKE_LINK_SECONDS = 0.5


def main() -> int:
    options = arguments.parse(str(__doc__))
    end_on_sigterm()
    try:
        if options.docs:
            # Refuses damaged markers now, not after the measurement.
            report.splice(read_docs(options.docs), "")
        found = results.read(options.render) if options.render else measured(options)
        picture = plot.svg(found)
        section = report.section(found, arguments.PLOT if picture else None)
        print(section)
        if options.docs:
            write_docs(options.docs, section, picture)
        if options.docs == arguments.DOCS:
            replace(readme.PATH, report.splice(readme.PATH.read_text(), readme.table(found), readme.PART))
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def measured(options: argparse.Namespace) -> results.Results:
    """Prepares all programs, measures, and has every number on disk as soon as it is there."""
    found = results.Results()
    ready = programs.find(options, found)
    found.header = header(options, ready)
    plan = measure.Plan(
        programs=ready,
        parts=options.only,
        rounds=options.rounds,
        sizes=options.sizes,
        seconds=options.seconds,
        link_seconds=SMOKE_LINK_SECONDS if options.smoke else LINK_SECONDS,
        extent=trainings.SMOKE if options.smoke else trainings.FULL,
        timeout=options.timeout,
    )

    def save() -> None:
        if options.json:
            found.write(options.json)

    measure.Campaign(plan, found, save).run()
    save()
    return found


def header(options: argparse.Namespace, ready: Programs) -> dict[str, str]:
    """Where, with what and how, as the report states it."""
    versions = ", ".join(f"{name} {version}" for name, version in programs.versions(ready).items())
    command = shlex.join(["python3", "bench/peers/run.py", *map(without_absolute_path, sys.argv[1:])])
    return {
        "machine": f"{machine.describe()}; load average before the run {busy()}",
        "versions": versions,
        "the machine's TCP congestion control": machine.congestion_control(),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "commit": machine.commit(arguments.ROOT),
        "command": f"`{command}`",
    }


def busy() -> str:
    """The load before the first measurement."""
    load = machine.load()
    if load > machine.BUSY:
        text = "the machine is not idle (a build just now counts as well), the numbers may be off"
        print(f"warning: load average {load:.2f}: {text}", file=sys.stderr)
    return f"{load:.2f}"


def without_absolute_path(word: str) -> str:
    """Paths below the repository relative to it, others by their last part: where they lie tells nobody."""
    option, equals, value = word.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return word
    root = arguments.ROOT
    return option + equals + (str(path.relative_to(root)) if path.is_relative_to(root) else path.name)


def read_docs(path: Path) -> str:
    """The document as it is, empty where there is none."""
    return path.read_text() if path.exists() else ""


def write_docs(path: Path, section: str, picture: str | None) -> None:
    """Replaces the part between the markers, and the plot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if picture:
        replace(path.with_name(arguments.PLOT), picture)
    replace(path, report.splice(read_docs(path), section))


def replace(path: Path, text: str) -> None:
    """By a file renamed into place: never half a document."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text)
    temporary.replace(path)
    print(f"wrote {without_absolute_path(str(path))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
