"""What the comparison of loading reads and prints."""

import argparse
import sys
import unittest
from pathlib import Path

import loading
from processes import BenchError, Command

OPTIONS = argparse.Namespace(images=8, size=224, batch=4, threads=2)


class Loading(unittest.TestCase):
    def test_a_rate_is_images_by_seconds(self) -> None:
        self.assertEqual(loading.rate("2000 4.0\n"), 500.0)
        for line in ("", "2000", "2000 0", "a b", "1 2 3"):
            with self.assertRaisesRegex(BenchError, "IMAGES SECONDS"):
                loading.rate(line)

    def test_the_sides_take_turns(self) -> None:
        say = [sys.executable, "-c"]
        sides = {
            loading.KOLO: Command("kolo", [*say, "print(8, 0.5)"]),
            loading.TORCHVISION: Command("torchvision", [*say, "print(8, 1.0)"]),
        }
        rates = loading.measure(sides, 2)
        self.assertEqual(rates, {loading.KOLO: [16.0, 16.0], loading.TORCHVISION: [8.0, 8.0]})

    def test_both_sides_load_the_same(self) -> None:
        sides = loading.commands("example", "python", "folder", OPTIONS)
        self.assertEqual({tuple(command.argv[-4:]) for command in sides.values()}, {("folder", "224", "4", "2")})

    def test_the_ratio_is_that_of_each_round(self) -> None:
        rates = {loading.KOLO: [10.0, 40.0, 30.0], loading.TORCHVISION: [10.0, 20.0, 10.0]}
        text = loading.report(rates, OPTIONS, 0.25)
        self.assertTrue(text.endswith("| 30 (10–40) | 10 (10–20) | 2.00 (1.00–3.00) × |"), text)
        self.assertIn("load average before the run 0.25", text)

    def test_a_program_that_is_not_there_is_refused(self) -> None:
        with self.assertRaisesRegex(BenchError, "leave the option out"):
            loading.example(Path("/no-such-program"))


if __name__ == "__main__":
    unittest.main()
