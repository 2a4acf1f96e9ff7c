"""Programs are run together, in time, and with nothing of them left behind."""

import sys
import time
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

from processes import BenchError, Command, run, run_together
from recovery_systems import MARK, processes


def python(code: str, *arguments: str) -> Command:
    return Command("test program", [sys.executable, "-c", code, *arguments])


class Processes(unittest.TestCase):
    def test_output_comes_in_the_order_of_the_commands(self):
        commands = [python("import time; time.sleep(.3); print(1)"), python("print(2)")]
        self.assertEqual(run_together(commands, 60), ["1\n", "2\n"])

    def test_first_failure_is_reported_and_ends_the_others(self):
        start = time.monotonic()
        with self.assertRaisesRegex(BenchError, "exit status 3(.|\n)*disk on fire"):
            failing = python("import sys; print('disk on fire', file=sys.stderr); sys.exit(3)")
            run_together([python("import time; time.sleep(60)"), failing], 60)
        self.assertLess(time.monotonic() - start, 20)

    def test_deadline_ends_children_of_children(self):
        with TemporaryDirectory() as folder:
            shell = Command("test program", ["sh", "-c", "sleep 61 & wait"], {MARK: folder})
            with self.assertRaisesRegex(BenchError, "had not finished after 1 s"):
                run(shell, 1)
            # The dead may take a moment to be gone.
            until = time.monotonic() + 60
            while processes(Path(folder)) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(processes(Path(folder)), [])

    def test_missing_program_is_named(self):
        with self.assertRaisesRegex(BenchError, "no-such-program"):
            run(Command("test", ["no-such-program"]), 5)


if __name__ == "__main__":
    unittest.main()
