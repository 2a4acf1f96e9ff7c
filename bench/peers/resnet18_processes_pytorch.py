"""One of several processes that train ResNet-18 by PyTorch on CPUs.

    PYTHON -P bench/peers/resnet18_processes_pytorch.py gloo|kolo stock|silent|shards

`stock` is PyTorch's DDP, and `silent` the same with a hook that sends nothing: the fastest that a backend could make it.
`shards` is `kolo.torch.DistributedDataParallel` with a shard for each process.

It reads lines `BUCKET STATIC LAST BATCH STEPS` from standard input, and answers each with the median of the steps'
wall-clock times, in milliseconds. BUCKET is in MB; STATIC is 1 for a graph that DDP may take for the same in every step,
and LAST for the memory format channels_last.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

# Behind the installed packages, of which a file here has the name of one.
sys.path.append(str(Path(__file__).parent))
from lines_pytorch import answer  # noqa: E402
from resnet18 import ResNet18  # noqa: E402

CLASSES = 10


def stock(model: Module, bucket_mb: int, static: int) -> DistributedDataParallel:
    return DistributedDataParallel(
        model, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True, static_graph=bool(static)
    )


def silent(model: Module, bucket_mb: int, static: int) -> DistributedDataParallel:
    silenced = stock(model, bucket_mb, static)

    def nothing(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    silenced.register_comm_hook(None, nothing)
    return silenced


def shards(model: Module, bucket_mb: int, _: int) -> Module:
    import kolo.torch

    return kolo.torch.DistributedDataParallel(model, shards=dist.get_world_size(), bucket_cap_mb=bucket_mb)


WAYS = {"stock": stock, "silent": silent, "shards": shards}


def step(way: str, bucket_mb: int, static: int, channels_last: int, batch: int) -> Callable[[], float]:
    """A function that takes a step and returns its milliseconds, after two that warm up."""
    torch.manual_seed(0)
    order = torch.channels_last if channels_last else torch.contiguous_format
    model = WAYS[way](ResNet18(CLASSES).to(memory_format=order), bucket_mb, static)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(CLASSES, (batch,))
    world = dist.get_world_size()
    images = images.to(memory_format=order)
    batches = images.repeat(world, 1, 1, 1).to(memory_format=order), labels.repeat(world)

    def take() -> float:
        begun = time.perf_counter()
        optimizer.zero_grad()
        if way == "shards":
            for inputs, targets in model.shards(*batches):
                model.backward(cross_entropy(model(inputs), targets), batch)
        else:
            cross_entropy(model(images), labels).backward()
        optimizer.step()
        return 1e3 * (time.perf_counter() - begun)

    take()
    take()
    return take


if __name__ == "__main__":
    answer(step)
