"""One rank that times Gloo's all-reduce (f32, sum, in place) through torch.distributed, size by size.

The sampling rules are those of `kolo bench all-reduce`: 5 rounds of warm-up, then batches of 20 samples until
the given seconds have passed on rank 0's clock, 2000 at most; a barrier stands before each sample and the
slowest rank counts. The result is checked before and after, outside the clock. Rank 0 prints one JSON line
a size.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist

import ranks

WARM_UP = 5
BATCH = 20
MOST_SAMPLES = 2000
F32_BYTES = 4


def verify(buffer: torch.Tensor) -> None:
    """All-reduces small whole numbers, whose sum is exact in any order, and compares every element."""
    world, rank = dist.get_world_size(), dist.get_rank()
    pattern = torch.arange(buffer.numel()).remainder_(251).to(torch.float32)
    buffer.copy_(pattern).add_(rank)
    dist.all_reduce(buffer)
    expected = pattern.mul_(world).add_(world * (world - 1) / 2)
    if not torch.equal(buffer, expected):
        raise SystemExit(f"rank {rank}: all-reduce of {buffer.nbytes} bytes gave a wrong sum")


def sample(buffer: torch.Tensor, count: int) -> list[float]:
    """Seconds of `count` all-reduces."""
    seconds = []
    for _ in range(count):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(buffer)
        seconds.append(time.perf_counter() - start)
    return seconds


def take_samples(buffer: torch.Tensor, seconds: float) -> list[float]:
    """Samples in batches; after each rank 0 decides, or the ranks would stop at different counts."""
    sample(buffer, WARM_UP)
    until = time.perf_counter() + seconds
    samples: list[float] = []
    more = torch.ones(1)
    while more.item():
        samples += sample(buffer, BATCH)
        more.fill_(time.perf_counter() < until and len(samples) < MOST_SAMPLES)
        dist.broadcast(more, 0)
    return samples


def measure(size: int, seconds: float) -> dict:
    """Times one size. Zeros are summed: repeated sums of anything else would leave the range of f32."""
    buffer = torch.empty(size // F32_BYTES)
    verify(buffer)
    buffer.zero_()
    times = ranks.slowest_rank(take_samples(buffer, seconds))
    verify(buffer)
    p50, world = ranks.percentile(times, 50), dist.get_world_size()
    bandwidth = size / p50 / 1e9
    return {
        "bytes": size,
        "p50_us": p50 * 1e6,
        "p99_us": ranks.percentile(times, 99) * 1e6,
        "algbw_gbps": bandwidth,
        "busbw_gbps": 2 * (world - 1) / world * bandwidth,
        "samples": times.numel(),
    }


def byte_sizes(text: str) -> list[int]:
    """Sizes such as `4,65536`, each whole f32 values."""
    sizes = [int(word) for word in text.split(",")]
    if any(size < F32_BYTES or size % F32_BYTES for size in sizes):
        raise argparse.ArgumentTypeError(f"each size is a positive multiple of {F32_BYTES} bytes: {text}")
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=byte_sizes, required=True, help="bytes, separated by commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="time a size")
    options = parser.parse_args()
    with ranks.gloo_group():
        for size in options.sizes:
            result = measure(size, options.seconds)
            if dist.get_rank() == 0:
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
