"""One of several processes that train GPT-2 by PyTorch on CPUs, over Gloo or over Kolo.

    PYTHON -P bench/peers/gpt2_processes_pytorch.py gloo|kolo fsdp2|ddp

It reads lines `SETTINGS LAYERS WIDTH VOCABULARY BATCH TIME STEPS` from standard input, and answers each with the median
of the steps' wall-clock times, in milliseconds. Settings are numbers:

- fsdp2: 1 if parameters are freed after the forward pass; the number of blocks whose parameters are gathered ahead; 1
  if messages lie in memory of the process group.
- ddp: the size of a bucket in MB; 1 for a graph that DDP may take for the same in every step. Gradients are always
  views of their buckets. (Compiled modules are no faster: `gpt2.py`.)
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

# Behind the installed packages, of which a file here has the name of one.
sys.path.append(str(Path(__file__).parent))
from gpt2_pytorch import Gpt2, windows  # noqa: E402
from lines_pytorch import answer  # noqa: E402


def divided(model: Gpt2, reshard: int, ahead: int, shared: int) -> Module:
    """The model, its blocks divided among all processes."""
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = list(model.blocks)
    for module in [*blocks, model]:
        fully_shard(module, mesh=mesh, reshard_after_forward=bool(reshard))
        if shared:
            module.set_allocate_memory_from_process_group_for_comm(True)
    if ahead:
        for module in [*blocks, model]:
            module._set_unshard_async_op(True)
        for order, prefetch in ((blocks, "forward"), (blocks[::-1], "backward")):
            for index, block in enumerate(order):
                getattr(block, f"set_modules_to_{prefetch}_prefetch")(order[index + 1 : index + 1 + ahead])
    return model


def replicated(model: Gpt2, bucket_mb: int, static: int) -> Module:
    """The model, whole in each process."""
    return DistributedDataParallel(
        model, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True, static_graph=bool(static)
    )


WAYS = {"fsdp2": divided, "ddp": replicated}


def step(way: str, *setting: int) -> Callable[[], float]:
    """A function that takes a step and returns its milliseconds, after two that warm up."""
    *settings, layers, width, vocabulary, batch, length = setting
    torch.manual_seed(0)
    model = WAYS[way](Gpt2(layers, width, vocabulary), *settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    tokens = windows(vocabulary, batch, length)
    seen, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def take() -> float:
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(seen, targets).backward()
        optimizer.step()
        return 1e3 * (time.perf_counter() - begun)

    take()
    take()
    return take


if __name__ == "__main__":
    answer(step)
