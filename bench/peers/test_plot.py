"""The picture is well-formed, complete, and within its frame."""

import re
import unittest
import xml.etree.ElementTree as xml

import fakes
import plot
from results import Results
from settings import ALL_REDUCES

SVG = "{http://www.w3.org/2000/svg}"


class Plot(unittest.TestCase):
    def test_a_panel_for_each_setting_and_a_line_for_each_system(self):
        root = xml.fromstring(plot.svg(fakes.results()) or "")
        texts = [element.text for element in root.iter(f"{SVG}text")]
        for setting in ALL_REDUCES:
            self.assertIn(setting.title, texts)
        lines = [element for element in root.iter(f"{SVG}path") if element.get("class") == "line"]
        systems = len(plot.LOOKS)
        self.assertEqual(len(lines), systems * len(ALL_REDUCES) + systems)
        self.assertEqual(texts.count("the link"), 2)

    def test_lines_stay_in_their_panels(self):
        root = xml.fromstring(plot.svg(fakes.results()) or "")
        for element in root.iter(f"{SVG}path"):
            if element.get("class") == "line":
                numbers = list(map(float, re.findall(r"-?\d+\.?\d*", element.get("d") or "")))
                self.assertLessEqual(max(numbers[::2]), plot.WIDTH - plot.RIGHT)
                self.assertLessEqual(max(numbers[1::2]), plot.HEIGHT - plot.BOTTOM)

    def test_axes_are_in_powers_of_ten(self):
        axis = plot.Axis(1, 100, 0, 50)
        self.assertEqual([axis.place(value) for value in (1, 10, 100)], [0, 25, 50])
        self.assertEqual(
            [plot.rate(exponent) for exponent in (-7, -3, 0, 2)], ["100 B/s", "1 MB/s", "1 GB/s", "100 GB/s"]
        )

    def test_one_size_and_no_size(self):
        found = fakes.results(1)
        for sample in found.samples:
            for size in fakes.SIZES[1:]:
                sample.answer.pop(size, None)
        xml.fromstring(plot.svg(found) or "")
        self.assertIsNone(plot.svg(Results()))


if __name__ == "__main__":
    unittest.main()
