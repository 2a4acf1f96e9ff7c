"""Programs are run together, in time, and with nothing of them left behind."""

import sys
import time
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

from processes import BenchError, Command, run, run_together


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
        code = "import subprocess, sys; p = subprocess.Popen(['sleep', '61']); "
        code += "open(sys.argv[1], 'w').write(str(p.pid)); p.wait()"
        with TemporaryDirectory() as folder:
            written = Path(folder) / "pid"
            with self.assertRaisesRegex(BenchError, "had not finished after 1 s"):
                run(python(code, str(written)), 1)
            self.assertTrue(ended(int(written.read_text())))

    def test_missing_program_is_named(self):
        with self.assertRaisesRegex(BenchError, "no-such-program"):
            run(Command("test", ["no-such-program"]), 5)


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only waits for its new parent to notice, within a second."""
    for _ in range(10):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


if __name__ == "__main__":
    unittest.main()
