"""From samples to tables, and tables into the document."""

import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import fakes
import figures
import readme
import report
import results
import tables
import targets
from processes import BenchError
from settings import ALL_REDUCES, STEPS

SHM, TCP, SLOW, FAST = ALL_REDUCES[0], ALL_REDUCES[2], ALL_REDUCES[4], ALL_REDUCES[5]
BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"


class Figures(unittest.TestCase):
    def test_ratio_is_taken_round_by_round(self):
        ratios = figures.pair_ratios({1: 2.0, 2: 8.0, 3: 3.0}, {1: 1.0, 2: 2.0, 3: 1.0, 4: 9.0})
        self.assertEqual(ratios, figures.Spread(3.0, 2.0, 4.0))

    def test_numbers_read_well(self):
        shown = [figures.duration(seconds) for seconds in (0.42, 0.0384, 1.84e-3, 283e-6, 3e-7)]
        self.assertEqual(shown, ["0.420 s", "38.4 ms", "1.84 ms", "283 µs", "0.300 µs"])
        for low, text in [(0.4, "0.500 s (0.400–0.600)"), (0.05, "0.500 s (50.0 ms–0.600 s)")]:
            self.assertEqual(figures.Spread(0.5, low, 0.6).show(figures.duration), text)
        self.assertEqual(figures.Spread(0.5, 0.5, 0.5).show(figures.duration), "0.500 s")
        sizes = [figures.byte_size(size) for size in (4, 65536, figures.MIB, 46_758_048)]
        self.assertEqual(sizes, ["4 B", "64 KiB", "1 MiB", "46.76 MB"])
        self.assertAlmostEqual(figures.bus_bandwidth(1_000_000_000, 0.5, 4), 3.0)


class Targets(unittest.TestCase):
    def test_shared_memory_asks_for_more_of_larger_messages(self):
        bounds = [
            targets.best_peer(size).bound for size in (4, figures.MIB - 4, figures.MIB, 16 * figures.MIB)
        ]
        self.assertEqual(bounds, [1, 1, 2, 3])

    def test_bounds_are_part_of_what_is_met(self):
        self.assertEqual(targets.LINK_STEP.cells(1.08)[1], "met")
        self.assertEqual(targets.LINK_STEP.cells(1.09)[1], "missed")
        self.assertEqual(targets.GLOO.cells(2.0)[1], "met")
        self.assertEqual(targets.GLOO.cells(None)[1], "")

    def test_a_link_is_to_be_filled_from_4_mb_on(self):
        self.assertEqual(targets.link_cells(SLOW, 3_999_996, 0.5, 9.0), ["", ""])
        self.assertEqual(targets.link_cells(SLOW, 4_000_000, 0.96, 9.0)[1], "missed")
        self.assertEqual(targets.link_cells(FAST, 4, 0.5, 2.5), ["≥ 2 × Gloo", "met"])
        self.assertEqual(targets.link_cells(FAST, 4_000_000, 0.98, 1.1), ["≥ 97 % of the link", "met"])


class Tables(unittest.TestCase):
    def test_step_is_judged_by_the_median(self):
        table = tables.step_table(fakes.results(), STEPS[0])
        values = "| 128.0 (64.0–128.0) | 80.0 (40.0–80.0) | 160.0 (80.0–160.0) | 0.800 × |"
        self.assertIn(f"{values} ≥ 1.5 × PyTorch's best | missed |", table)
        self.assertIn("| Kolo ≥ 95 % | missed |", table)

    def test_shared_memory_is_judged_by_the_best_peer(self):
        lines = tables.all_reduce_table(fakes.results(), SHM).splitlines()
        self.assertTrue(lines[0].startswith("| size | Kolo | GB/s | Kolo, slices | Gloo |"), lines[0])
        judged = [line.split(" | ", 7)[7] for line in lines[2:]]
        slices = "≥ 2 × the best | missed |"
        expected = [
            "≥ 1 × the best | met |  |  |",
            f"≥ 2 × the best | met | {slices}",
            f"≥ 3 × the best | missed | {slices}",
        ]
        self.assertEqual(judged, [f"2.50 × | 1.25 × | {each}" for each in expected])

    def test_tcp_is_judged_by_gloo(self):
        line = tables.all_reduce_table(fakes.results(), TCP).splitlines()[2]
        self.assertTrue(line.endswith("| 2.50 × | 1.25 × | 10.0 × | ≥ 2 × Gloo | met |"), line)

    def test_share_of_the_link_is_left_out_for_messages_like_the_burst(self):
        lines = tables.link_table(fakes.results(), SLOW).splitlines()
        self.assertTrue(lines[2].endswith("|  |  | 10.0 × |  |  |"), lines[2])
        self.assertTrue(
            lines[4].endswith("| 98.4 % | 39.4 % | 10.0 × | ≥ 97 % of the link | met |"), lines[4]
        )

    def test_step_over_the_link_is_held_against_its_longer_part(self):
        lines = tables.link_step_table(fakes.results(), STEPS[1]).splitlines()
        self.assertIn("| 0.374 s (0.374–0.749) | 1.11 × | Kolo ≤ 1.08 | missed |", lines[2])
        self.assertEqual(len(lines), 5)

    def test_a_missing_peer_leaves_its_column_out(self):
        found = fakes.results()
        found.samples = [each for each in found.samples if each.system in ("Kolo", "link")]
        section = report.section(found, None)
        self.assertNotIn("MPICH |", section)
        self.assertIn("- not measured: Setting: a reason", section)


class Readme(unittest.TestCase):
    def test_figures_are_those_of_the_tables(self):
        lines = readme.table(fakes.results()).splitlines()
        self.assertIn("| one worker alone: images/s | 128 | 160 (PyTorch DDP at its best) | 0.800 × |", lines)
        self.assertIn("| all-reduce of 1 MiB, 2 ranks in shared memory | 8.91 ms | 22.3 ms (Open MPI) | 2.50 × |", lines)
        self.assertEqual(readme.table(results.Results()).count("\n"), 1)


class Documents(unittest.TestCase):
    def test_all_parts_stand_in_their_order(self):
        section = report.section(fakes.results(), "picture.svg")
        titles = [STEPS[2].title, "picture.svg", *[each.title for each in ALL_REDUCES], STEPS[1].title]
        places = [section.index(f"{title}") for title in titles[:2]] + [
            section.index(f"# {title}\n") for title in titles[2:]
        ]
        self.assertEqual(places, sorted(places))
        self.assertIn("carries 119.5 MB/s (59.8–119.5) of payload one way", section)

    def test_parts_that_were_not_measured_are_left_out(self):
        found = fakes.results(1)
        found.samples = [each for each in found.samples if each.setting == "shm-2"]
        section = report.section(found, None)
        self.assertIn("One round", section)
        for absent in ("Gbit/s", "Training step", "loopback"):
            self.assertNotIn(absent, section)

    def test_only_the_part_between_the_markers_changes(self):
        document = f"# Mine\n{BEGIN}\nold\n{END}\nrest\n"
        new = report.splice(document, "new")
        self.assertEqual(new, f"# Mine\n{BEGIN}\n\nnew\n\n{END}\nrest\n")
        self.assertEqual(report.splice(new, "new"), new)

    def test_markers_are_appended_where_there_are_none(self):
        self.assertTrue(report.splice("", "new").startswith("# Benchmarks\n\n" + BEGIN))
        self.assertTrue(report.splice("# Mine\n", "new").startswith("# Mine\n\n" + BEGIN))

    def test_damaged_markers_are_refused(self):
        for document in (BEGIN, f"{END}{BEGIN}", 2 * f"{BEGIN}{END}"):
            with self.assertRaisesRegex(BenchError, "mend them"):
                report.splice(document, "new")

    def test_results_are_read_as_they_were_written(self):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "results.json"
            fakes.results().write(path)
            self.assertEqual(results.read(path), fakes.results())
            path.write_text("{}")
            with self.assertRaisesRegex(BenchError, "not the results"):
                results.read(path)


if __name__ == "__main__":
    unittest.main()
