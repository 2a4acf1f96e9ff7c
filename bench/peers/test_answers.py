"""What programs print is read in every form, and refused where something is missing."""

import unittest

import answers
import programs
from processes import BenchError


class Answers(unittest.TestCase):
    def test_object_array_rows_and_lines_are_read(self):
        read = answers.json_records
        self.assertEqual(read("x", '{"a": 1}\n'), [{"a": 1}])
        self.assertEqual(read("x", '[{"a": 1},\n {"a": 2}]'), [{"a": 1}, {"a": 2}])
        self.assertEqual(read("x", '{"ranks": 2, "rows": [{"a": 1}, {"a": 2}]}'), [{"a": 1}, {"a": 2}])
        self.assertEqual(read("x", '{"a": 1}\n{"a": 2}\n'), [{"a": 1}, {"a": 2}])

    def test_rows_are_found_by_size_and_keep_their_other_fields(self):
        output = '{"rows": [{"bytes": 8, "p50_us": 2, "algorithm": "ring"}, {"bytes": 4, "p50_us": 1}]}'
        rows = answers.all_reduce_answer("x", output, [4, 8])
        self.assertEqual((list(rows), rows[8]["algorithm"]), ([4, 8], "ring"))

    def test_what_is_no_answer_is_named(self):
        for call, words in [
            (lambda: answers.json_records("x", "hello"), "not answer in JSON"),
            (lambda: answers.step_answer("x", "{}"), "step_seconds is None"),
            (lambda: answers.step_answer("x", "[]"), "0 records instead of one"),
            (lambda: answers.link_answer("x", '{"bytes_per_second": null}'), "bytes_per_second is None"),
            (
                lambda: answers.all_reduce_answer("x", '{"bytes": 4, "p50_us": 1}', [4, 8]),
                r"no result for \[8\]",
            ),
            (lambda: answers.all_reduce_answer("x", '{"bytes": 4, "p50_us": 0}', [4]), "p50_us is 0"),
        ]:
            with self.assertRaisesRegex(BenchError, words):
                call()

    def test_versions_are_found_amid_other_words(self):
        self.assertEqual(programs.mpi_version("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to"), "4.1.4")
        self.assertEqual(programs.mpi_version("HYDRA build details:\n    Version:       4.0.2\n"), "4.0.2")
        self.assertEqual(programs.mpi_version("none"), "unknown")


if __name__ == "__main__":
    unittest.main()
