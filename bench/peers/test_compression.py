import tempfile
import unittest
from pathlib import Path
from unittest import mock

import compression


def answer(system: str, name: str, mbit: int, step: float, alone: float, **more: float) -> dict:
    own = {"system": system, "name": name, "mbit": mbit}
    return own | {"step_seconds": step, "step_seconds_no_sync": alone} | more


class Table(unittest.TestCase):
    def test_a_step_stands_beside_the_dense_one_of_its_system_and_beside_its_computation(self):
        answers = [
            answer("Kolo", "sum", 100, 4.0, 0.1, wire_bytes=44_000_000),
            answer("Kolo", "powersgd:rank=4", 100, 0.2, 0.1, wire_bytes=600_000),
            answer("Kolo", "powersgd:rank=4", 100, 0.4, 0.1, wire_bytes=600_000),
            answer("PyTorch", "none", 100, 3.0, 0.2),
            answer("PyTorch", "fp16", 100, 1.5, 0.2),
        ]
        rows = compression.table(answers, [100]).splitlines()[2:]
        self.assertEqual(
            rows,
            [
                "| Kolo | `sum` | 44.00 MB | 4000 ms | 1.0 | 40.00 |",
                "| Kolo | `powersgd:rank=4` | 0.60 MB | 300 ms | 13.3 | 3.00 |",
                "| PyTorch | `none` |  | 3000 ms | 1.0 | 15.00 |",
                "| PyTorch | `fp16` |  | 1500 ms | 2.0 | 7.50 |",
            ],
        )

    def test_what_failed_at_a_rate_leaves_its_cells_empty(self):
        answers = [answer("PyTorch", "none", 100, 3.0, 0.2), answer("PyTorch", "none", 1000, 0.5, 0.2)]
        answers.append(answer("PyTorch", "powersgd", 1000, 0.25, 0.2))
        self.assertIn("| PyTorch | `powersgd` |  | | | | 250 ms | 2.0 | 1.25 |", compression.table(answers, [100, 1000]))

    def test_only_what_is_between_the_marks_is_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "document.md"
            document.write_text(f"before\n{compression.BEGIN}\nold\n{compression.END}\nafter\n")
            with mock.patch.object(compression, "DOCUMENT", document), mock.patch("sys.argv", ["x", "--write"]):
                compression.write("| new |")
            text = document.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"), text)
        self.assertIn("`python3 bench/peers/compression.py --write`:\n\n| new |\n", text)
        self.assertNotIn("old", text)
