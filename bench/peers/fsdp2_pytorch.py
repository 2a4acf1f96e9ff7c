"""One of several processes that train GPT-2 by PyTorch's FSDP2 on CPUs, over Gloo or over Kolo.

It reads lines `RESHARD AHEAD SHARED LAYERS VOCABULARY BATCH TIME STEPS` from standard input, and answers each with
the median of the steps' wall-clock times, in milliseconds. RESHARD 1 frees parameters after the forward pass. AHEAD is
the number of blocks whose parameters are gathered ahead, SHARED 1 takes memory of the process group for messages.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

# Behind the installed packages, of which a file here has the name of one.
sys.path.append(str(Path(__file__).parent))
from gpt2_pytorch import Gpt2, windows  # noqa: E402


def divided(layers: int, vocabulary: int, reshard: bool, ahead: int, shared: bool) -> Gpt2:
    """The model, its blocks divided among all processes."""
    torch.manual_seed(0)
    model = Gpt2(layers, vocabulary)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = list(model.blocks)
    for module in [*blocks, model]:
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
        if shared:
            module.set_allocate_memory_from_process_group_for_comm(True)
    if ahead:
        for module in [*blocks, model]:
            module._set_unshard_async_op(True)
        for order, prefetch in ((blocks, "forward"), (blocks[::-1], "backward")):
            for index, block in enumerate(order):
                getattr(block, f"set_modules_to_{prefetch}_prefetch")(order[index + 1 : index + 1 + ahead])
    return model


def step(setting: list[int]) -> Callable[[], float]:
    """A function that takes a step and returns its milliseconds, after two that warm up."""
    reshard, ahead, shared, layers, vocabulary, batch, length = setting
    model = divided(layers, vocabulary, bool(reshard), ahead, bool(shared))
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


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])
    made, take = None, None
    for line in sys.stdin:
        *setting, steps = map(int, line.split())
        if take is None or setting != made:
            take = None
            made, take = setting, step(setting)
        print(statistics.median(take() for _ in range(steps)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
