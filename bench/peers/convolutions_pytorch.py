"""PyTorch's convolutions of ResNet-18 on one core: the fastest time of each pass, in milliseconds.

`python convolutions_pytorch.py BATCH SECONDS` reads layers from standard input, a line `KERNEL STRIDE IN OUT
SIZE` each, and answers with a line of three times each: forward, gradient of the input, of the weights; each
in the faster one of PyTorch's two memory formats.
"""

import sys
import time
from collections.abc import Callable

import torch

FORMATS = (torch.contiguous_format, torch.channels_last)


def fastest(seconds: float, work: Callable[[], object]) -> float:
    """In milliseconds; one run at least, after one that warms up."""
    work()
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
        if time.perf_counter() >= end:
            return best * 1e3


def passes(
    samples: int, seconds: float, kernel: int, stride: int, source: int, target: int, size: int
) -> list[float]:
    """The three times of one layer."""
    times = []
    for memory in FORMATS:
        layer = torch.nn.Conv2d(source, target, kernel, stride, kernel // 2, bias=False)
        layer = layer.to(memory_format=memory)
        x = torch.randn(samples, source, size, size).contiguous(memory_format=memory)
        with torch.no_grad():
            gradient = torch.randn_like(layer(x))

            def backward(wanted: list[bool]) -> object:
                padding = [kernel // 2] * 2
                return torch.ops.aten.convolution_backward(
                    gradient, x, layer.weight, None, [stride] * 2, padding, [1, 1], False, [0, 0], 1, wanted
                )

            works = (
                lambda: layer(x),
                lambda: backward([True, False, False]),
                lambda: backward([False, True, False]),
            )
            times.append([fastest(seconds, work) for work in works])
    return [min(pair) for pair in zip(*times)]


def main() -> None:
    torch.set_num_threads(1)
    samples, seconds = int(sys.argv[1]), float(sys.argv[2])
    for line in sys.stdin:
        print(*passes(samples, seconds, *map(int, line.split())), flush=True)


if __name__ == "__main__":
    main()
