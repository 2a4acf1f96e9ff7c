"""Tests of all that needs neither PyTorch nor Kolo: `python3 -m unittest discover bench/peers`."""

import os
import sys
import time
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import measure
import report
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


class Answers(unittest.TestCase):
    def test_object_array_and_lines_are_read(self):
        self.assertEqual(measure.json_records("x", '{"a": 1}\n'), [{"a": 1}])
        self.assertEqual(measure.json_records("x", '[{"a": 1},\n {"a": 2}]'), [{"a": 1}, {"a": 2}])
        self.assertEqual(measure.json_records("x", '{"a": 1}\n{"a": 2}\n'), [{"a": 1}, {"a": 2}])

    def test_what_is_no_answer_is_named(self):
        with self.assertRaisesRegex(BenchError, "not answer in JSON"):
            measure.json_records("x", "hello")
        with self.assertRaisesRegex(BenchError, "step_seconds is None"):
            measure.step_answer("x", "{}")
        with self.assertRaisesRegex(BenchError, r"no result for \[8\]"):
            measure.all_reduce_answer("x", '{"bytes": 4, "p50_us": 1}', [4, 8])
        with self.assertRaisesRegex(BenchError, "p50_us is 0"):
            measure.all_reduce_answer("x", '{"bytes": 4, "p50_us": 0}', [4])


class Tables(unittest.TestCase):
    def rounds(self) -> list[report.Round]:
        def step(seconds: float) -> dict:
            return {
                "step_seconds": seconds,
                "step_seconds_no_sync": 0.9 * seconds,
                "efficiency": 0.9,
                "images_per_second": 64 / seconds,
            }

        def reduce(factor: float) -> dict[int, dict]:
            return {size: {"bytes": size, "p50_us": factor * size} for size in (4, report.MIB)}

        return [
            report.Round(step(0.5 * slow), step(0.4 * slow), reduce(slow), reduce(5 * slow))
            for slow in (1, 2, 1)
        ]

    def test_ratio_is_taken_pair_by_pair(self):
        self.assertEqual(report.pair_ratios([2.0, 8.0, 3.0], [1.0, 2.0, 1.0]), report.Spread(3.0, 2.0, 4.0))

    def test_targets_are_judged_by_the_median(self):
        table = report.step_table(self.rounds())
        self.assertIn("| 128.0 (64.0–128.0) | 160.0 (80.0–160.0) | 0.800 × |", table)
        self.assertIn("| 0.800 × | ≥ 0.8 × PyTorch | met |", table)
        self.assertIn("| Kolo ≥ 95 % | missed |", table)

    def test_small_sizes_have_no_target(self):
        lines = report.all_reduce_table(self.rounds(), 2).splitlines()
        self.assertTrue(lines[2].endswith("| 5.00 × |  |  |"), lines[2])
        self.assertTrue(lines[3].endswith("| 5.00 × | ≥ 4 × | met |"), lines[3])

    def test_numbers_read_well(self):
        shown = [report.duration(seconds) for seconds in (0.42, 0.0384, 1.84e-3, 283e-6, 3e-7)]
        self.assertEqual(shown, ["0.420 s", "38.4 ms", "1.84 ms", "283 µs", "0.300 µs"])
        self.assertEqual(report.Spread(0.5, 0.4, 0.6).show(report.duration), "0.500 s (0.400–0.600)")
        self.assertEqual(report.Spread(0.5, 0.05, 0.6).show(report.duration), "0.500 s (50.0 ms–0.600 s)")
        self.assertEqual(report.Spread(0.5, 0.5, 0.5).show(report.duration), "0.500 s")
        self.assertEqual([report.byte_size(s) for s in (4, 65536, report.MIB)], ["4 B", "64 KiB", "1 MiB"])
        self.assertEqual(report.byte_size(46_758_048), "46.76 MB")
        self.assertAlmostEqual(report.bus_bandwidth(1_000_000_000, 0.5, 4), 3.0)


class Documents(unittest.TestCase):
    def test_only_the_part_between_the_markers_changes(self):
        document = f"# Mine\n{report.BEGIN}\nold\n{report.END}\nrest\n"
        new = report.splice(document, "new")
        self.assertEqual(new, f"# Mine\n{report.BEGIN}\n\nnew\n\n{report.END}\nrest\n")
        self.assertEqual(report.splice(new, "new"), new)

    def test_markers_are_appended_where_there_are_none(self):
        self.assertTrue(report.splice("", "new").startswith("# Benchmarks\n\n" + report.BEGIN))
        self.assertTrue(report.splice("# Mine\n", "new").startswith("# Mine\n\n" + report.BEGIN))

    def test_damaged_markers_are_refused(self):
        for document in (report.BEGIN, f"{report.END}{report.BEGIN}", 2 * f"{report.BEGIN}{report.END}"):
            with self.assertRaisesRegex(BenchError, "mend them"):
                report.splice(document, "new")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    unittest.main()
