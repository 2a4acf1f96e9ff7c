"""The predictions' part of the document, from made-up answers."""

import unittest

import predictions
from settings import ALL_REDUCES


def row(algorithm: str, size: int, measured: float, predicted: float | None) -> dict:
    told = {} if predicted is None else {"predicted_us": predicted}
    return {"algorithm": algorithm, "bytes": size, "p50_us": measured, **told}


class Predictions(unittest.TestCase):
    rows = [row("direct", 1024, 10.0, 11.0), row("direct", 1 << 20, 200.0, 100.0), row("ring", 1024, 20.0, None)]

    def test_errors_are_relative_to_what_was_measured(self) -> None:
        self.assertEqual([round(error, 6) for error in predictions.errors(self.rows)], [0.1, 0.5])

    def test_every_algorithm_has_a_line_and_gaps_are_marked(self) -> None:
        lines = predictions.table(self.rows)
        self.assertEqual(len(lines), 4)
        self.assertIn("| direct | 11.0 µs / 10.0 µs |", lines[2])
        self.assertEqual(lines[3], "| ring | – | – |")

    def test_a_missed_target_is_told(self) -> None:
        text = predictions.section({"here": self.rows}, "`command`")
        self.assertIn("| here | 30.0% | target below 15 %: missed |", text)
        self.assertIn("met", predictions.section({"here": self.rows[:1]}, "`command`"))

    def test_all_settings_over_tcp_are_measured(self) -> None:
        self.assertEqual(predictions.settings(), [each for each in ALL_REDUCES if each.key[:3] != "shm"])


if __name__ == "__main__":
    unittest.main()
