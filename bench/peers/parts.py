"""Parts of docs/benchmarks.md: the frame of the programs that each write one."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import programs
import report
from processes import BenchError
from results import Results
from run import read_docs, replace, without_absolute_path


def write(part: str, docs: Path | None, section: Callable[[], str]) -> int:
    """Prints a section and puts it into the document, if there is one. Returns the status to exit with."""
    try:
        if docs:
            # A document without the part is refused before anything is measured.
            report.splice(read_docs(docs), "", part)
        text = section()
        print(text)
        if docs:
            replace(docs, report.splice(read_docs(docs), text, part))
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def pytorch(given: Path | None = None) -> str:
    """A Python with PyTorch: the given one, or one of its own."""
    python = programs.python(given, Results())
    if python is None:
        raise BenchError("PyTorch could not be installed")
    return python


def command(script: str) -> str:
    """The command that has been called."""
    return shlex.join(["python3", f"bench/peers/{script}", *map(without_absolute_path, sys.argv[1:])])
