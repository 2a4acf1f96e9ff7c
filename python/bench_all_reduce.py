"""Times torch.distributed's all_reduce over Kolo and over Gloo, in turn in one run, and prints their ratios.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench_all_reduce.py [largest size in MiB, default 64]

Every round times a few calls over Kolo (synchronous and asynchronous) and as many over Gloo. A time is the
median of 11 rounds; the ratio is the median of the rounds' ratios, with the smallest and the largest.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist

import kolo.torch  # noqa: F401

ROUNDS = 11


def main():
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    torch.set_num_threads(1)
    dist.init_process_group("kolo")
    gloo = dist.new_group(backend="gloo")
    ways = {
        "Kolo": lambda data: dist.all_reduce(data),
        "Kolo async": lambda data: dist.all_reduce(data, async_op=True).wait(),
        "Gloo": lambda data: dist.all_reduce(data, group=gloo),
    }
    show = print if dist.get_rank() == 0 else lambda *_: None
    show(f"all_reduce of float32, {dist.get_world_size()} processes, torch {torch.__version__}, microseconds")
    show(f"{'bytes':>10}" + "".join(f"{way:>12}" for way in ways) + "   Gloo / Kolo")
    size = 4
    while size <= largest << 20:
        data, calls = torch.zeros(size // 4), 20 if size <= 1 << 16 else 5 if size <= 1 << 20 else 1
        times = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, call in ways.items():
                call(data)
                began = time.perf_counter()
                for _ in range(calls):
                    call(data)
                times[way].append((time.perf_counter() - began) / calls * 1e6)
        ratios = sorted(slow / fast for slow, fast in zip(times["Gloo"], times["Kolo"]))
        columns = "".join(f"{statistics.median(values):12.1f}" for values in times.values())
        show(f"{size:>10}{columns}   {statistics.median(ratios):.1f} x ({ratios[0]:.1f}-{ratios[-1]:.1f})")
        size *= 16
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
