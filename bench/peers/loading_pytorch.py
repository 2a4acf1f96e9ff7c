"""Images that torchvision loads, and the images themselves.

`python loading_pytorch.py make FOLDER IMAGES SIZE` writes JPEG files in four classes with Pillow.
`python loading_pytorch.py load FOLDER SIZE BATCH WORKERS` loads one epoch by ImageFolder and DataLoader, as
for training, and prints `IMAGES SECONDS`; the workers have started before the clock runs.
"""

import random
import sys
import time
from pathlib import Path

CLASSES = 4
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make(folder: Path, images: int, size: int) -> None:
    """Noise at several scales, so that files are about as large as those of photographs."""
    from PIL import Image

    random.seed(0)
    for number in range(images):
        place = folder / f"class {number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.new("RGB", (size, size))
        for scale, weight in ((8, 0.5), (32, 0.3), (size, 0.1)):
            noise = Image.frombytes("RGB", (scale, scale), random.randbytes(3 * scale * scale))
            picture = Image.blend(picture, noise.resize((size, size), Image.Resampling.BICUBIC), weight)
        picture.save(place / f"{number:05}.jpg", quality=90)


def load(folder: Path, size: int, batch: int, workers: int) -> tuple[int, float]:
    """One epoch: the number of images, and the seconds that it took."""
    import torch
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = datasets.ImageFolder(str(folder), transforms.Compose([*steps, transforms.Normalize(MEAN, DEVIATION)]))
    loader = torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    # One epoch starts the workers and imports what they need; the next one counts.
    for _ in loader:
        pass
    begun = time.perf_counter()
    images = sum(len(labels) for _, labels in loader)
    return images, time.perf_counter() - begun


def main() -> None:
    what, folder, *numbers = sys.argv[1:]
    if what == "make":
        make(Path(folder), *map(int, numbers))
    else:
        print(*load(Path(folder), *map(int, numbers)))


if __name__ == "__main__":
    main()
