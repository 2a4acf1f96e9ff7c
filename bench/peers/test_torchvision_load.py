"""Where the test images of a data set are."""

import unittest
from pathlib import Path

import torchvision_load
from processes import BenchError


class Folders(unittest.TestCase):
    def test_the_small_data_set_is_in_the_repository(self) -> None:
        folder = torchvision_load.folder("fashion-mnist-small")
        self.assertTrue((folder / "t10k-images-idx3-ubyte.gz").exists(), folder)

    def test_a_folder_may_be_given(self) -> None:
        self.assertEqual(torchvision_load.folder("mnist:a/b"), Path("a/b"))

    def test_other_formats_are_refused_with_the_option(self) -> None:
        for data in ("cifar10:a", "imagenet", "mnist"):
            with self.assertRaisesRegex(BenchError, f"--data {data}: .*MNIST's format"):
                torchvision_load.folder(data)


if __name__ == "__main__":
    unittest.main()
