"""PyTorch's side of gradients.py: `python gradients_pytorch.py SHAPES PROGRAM...`.

Gives the program a line for each of some random convolutions, computes the same ones, and says how far apart
the farthest value is.
"""

import random
import subprocess
import sys

import torch


def noise(seed: int, *dims: int) -> torch.Tensor:
    """As in the program: numbers that follow from their index."""
    index = torch.arange(torch.Size(dims).numel())
    return (((index * 7919 + seed * 104729) % 1000).float() / 1000.0 - 0.5).reshape(dims).requires_grad_()


def shape(draw: random.Random) -> list[int]:
    """Samples, groups, channels of a group, size of the image; kernel, stride, padding, dilation."""
    groups = draw.choice([1, 1, 1, 2, 3])
    least, most = ([1, 1], [40, 70]) if groups == 1 else ([4, 4], [9, 23])
    channels = [draw.randint(*bounds) for bounds in zip(least, most)]
    kernel, dilation = [draw.randint(1, 5) for _ in "hw"], [draw.randint(1, 2) for _ in "hw"]
    size = [d * (k - 1) + draw.randint(1, 12) for k, d in zip(kernel, dilation)]
    stride, padding = [draw.randint(1, 3) for _ in "hw"], [draw.randint(0, 2) for _ in "hw"]
    return [draw.randint(1, 9), groups, *channels, *size, *kernel, *stride, *padding, *dilation]


def convolution(numbers: list[int]) -> dict[str, torch.Tensor]:
    """The output, and the gradients of what went in."""
    samples, groups, source, target, height, width, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    weight, bias = noise(1, groups * target, source, kh, kw), noise(2, groups * target)
    x = noise(3, samples, groups * source, height, width)
    y = torch.nn.functional.conv2d(x, weight, bias, (sh, sw), (ph, pw), (dh, dw), groups)
    (y * noise(4, *y.shape).detach()).sum().backward()
    return {"output": y.detach(), "input": x.grad, "weights": weight.grad, "bias": bias.grad}


def main() -> None:
    draw = random.Random(1)
    shapes = [shape(draw) for _ in range(int(sys.argv[1]))]
    lines = "".join(" ".join(map(str, numbers)) + "\n" for numbers in shapes)
    answer = subprocess.run(sys.argv[2:], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    values, at, worst = torch.frombuffer(bytearray(answer), dtype=torch.float32), 0, (0.0, "")
    for numbers in shapes:
        for name, expected in convolution(numbers).items():
            ours = values[at : at + expected.numel()].reshape(expected.shape)
            at += expected.numel()
            apart = ((ours - expected).abs().max() / expected.abs().max().clamp_min(1e-3)).item()
            worst = max(worst, (apart, f"{name} of {numbers}"))
    assert at == values.numel(), (at, values.numel())
    print(*worst)


if __name__ == "__main__":
    main()
