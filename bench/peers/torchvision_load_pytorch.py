"""PyTorch's side of torchvision_load.py: `python torchvision_load_pytorch.py WEIGHTS SCORES IMAGES`.

Loads WEIGHTS, which `kolo export --format torchvision` has written, into torchvision's model, and brings the
test images of the folder IMAGES to it as the description beside WEIGHTS says. Answers with one line of JSON:
how many images there are, the share that is classified rightly, and how far the scores are from those in
SCORES (`f32`, image by image), as a share of the largest.
"""

import gzip
import json
import sys
from pathlib import Path

import torch
import torchvision
from safetensors import safe_open
from safetensors.torch import load_file
from torchvision.transforms import functional

BATCH = 250


def idx(folder: Path, name: str, header: int) -> torch.Tensor:
    """The bytes of a file of MNIST's format, compressed or not."""
    path = next(path for end in ("", ".gz") if (path := folder / f"{name}-ubyte{end}").exists())
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header)


def network(weights: str, description: dict) -> torch.nn.Module:
    """torchvision's model with these weights; an error if one is missing or left over."""
    how = description["preprocessing"]
    model = torchvision.models.get_model(description["model"], num_classes=how["num_classes"])
    channels = how["input_size"][0]
    if channels != 3:
        model.conv1 = torch.nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    model.load_state_dict(load_file(weights), strict=True)
    return model.eval()


def preprocess(images: torch.Tensor, how: dict) -> torch.Tensor:
    """As the description says: channels repeated, padded, from 0 to 1, normalized."""
    images = images.expand(-1, how["input_size"][0], -1, -1)
    return functional.normalize(functional.pad(images, how["padding"]) / 255, how["mean"], how["std"])


def main() -> None:
    weights, scores, folder = sys.argv[1:]
    description = json.loads(Path(weights + ".json").read_text())
    with safe_open(weights, framework="pt") as file:
        assert json.loads(file.metadata()["kolo"]) == description, "the metadata says something else"
    how = description["preprocessing"]
    images = idx(Path(folder), "t10k-images-idx3", 16).reshape(-1, *how["image_size"])
    labels = idx(Path(folder), "t10k-labels-idx1", 8)
    model = network(weights, description)
    with torch.no_grad():
        ours = torch.cat([model(preprocess(batch, how)) for batch in images.split(BATCH)])
    theirs = torch.frombuffer(bytearray(Path(scores).read_bytes()), dtype=torch.float32).reshape(ours.shape)
    apart = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    right = (ours.argmax(1) == labels).sum().item()
    print(json.dumps({"images": len(labels), "accuracy": right / len(labels), "apart": apart}))


if __name__ == "__main__":
    main()
