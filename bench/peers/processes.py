"""Runs the measured programs: together, with a deadline, and with nothing of them left behind.

Each program leads a process group of its own, so that its workers end with it. A group is signaled by its
leader's id only while the leader is not yet reaped: until then the id belongs to nobody else.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

POLL_SECONDS = 0.1
"""Rare enough not to disturb what is measured."""
GRACE_SECONDS = 5.0
"""Between the request to end and the order."""
ERROR_LINES = 15


class BenchError(Exception):
    """Something outside of this program failed; the text names it and says what to do."""


@dataclass(frozen=True)
class Command:
    """A program to run. With `show` (builds, downloads) its output is not kept but goes to standard error."""

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    show: bool = False


class Running:
    """A started command, its output in files: a pipe that nobody empties would stop it."""

    def __init__(self, command: Command, folder: Path):
        self.command = command
        self.out, self.err = folder / "out", folder / "err"
        folder.mkdir()
        with self.out.open("wb") as out, self.err.open("wb") as err:
            try:
                self.process = subprocess.Popen(
                    command.argv,
                    env=os.environ | command.env,
                    stdin=subprocess.DEVNULL,
                    stdout=2 if command.show else out,
                    stderr=2 if command.show else err,
                    start_new_session=True,
                )
            except OSError as error:
                raise BenchError(
                    f"{command.name}: cannot start {command.argv[0]}: {error.strerror}"
                ) from error

    def status(self) -> int | None:
        """Exit status, minus the signal's number if one ended it, None while it runs; leaves it unreaped."""
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def ask_to_end(self) -> None:
        """Lets a launcher end its own workers first."""
        if self.status() is None:
            os.killpg(self.process.pid, signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Waits until `deadline` for what was asked, then ends what is left of the group, and reaps."""
        while self.status() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def failure(self, what: str) -> BenchError:
        """An error with the command and the last lines it wrote."""
        lines = self.err.read_text(errors="replace").splitlines()[-ERROR_LINES:]
        text = f"{self.command.name} {what}\n  command: {shlex.join(self.command.argv)}"
        return BenchError("\n    ".join([text, *lines]))


def end_on_sigterm() -> None:
    """Who is asked to end goes by the same way out as with Ctrl-C, past what has to be cleared up: workers,
    networks."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def run_together(commands: list[Command], timeout: float) -> list[str]:
    """Starts all commands, waits for all, returns what each wrote on standard output.

    The first failure, or the end of `timeout` seconds, ends all and raises an error that names the culprit.
    """
    with started(commands) as running:
        _wait(running, time.monotonic() + timeout, timeout)
        return [each.out.read_text() for each in running]


@contextmanager
def started(commands: list[Command]) -> Iterator[list[Running]]:
    """All commands while they run; at the end each is asked to end, and then ended."""
    with tempfile.TemporaryDirectory(prefix="kolo-peers-") as folder:
        running: list[Running] = []
        try:
            for index, command in enumerate(commands):
                running.append(Running(command, Path(folder) / str(index)))
            yield running
        finally:
            for each in running:
                each.ask_to_end()
            deadline = time.monotonic() + GRACE_SECONDS
            for each in running:
                each.end(deadline)


def run(command: Command, timeout: float) -> str:
    """One command alone; its standard output."""
    return run_together([command], timeout)[0]


def _wait(running: list[Running], deadline: float, timeout: float) -> None:
    """Returns when all have exited with 0."""
    waiting = list(running)
    while waiting:
        for each in list(waiting):
            status = each.status()
            if status == 0:
                waiting.remove(each)
            elif status is not None:
                ending = f"exit status {status}" if status > 0 else signal.Signals(-status).name
                raise each.failure(f"failed: {ending}")
        if waiting and time.monotonic() > deadline:
            raise waiting[0].failure(f"was ended: it had not finished after {timeout:.0f} s (--timeout)")
        time.sleep(POLL_SECONDS)
