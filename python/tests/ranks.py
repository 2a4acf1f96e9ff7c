"""Frame of a rank's part of a test of torch: its group, and a training by stock DDP beside one process."""

import importlib.util
import unittest

needs_torch = unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")


def started():
    import torch
    import torch.distributed as dist

    import kolo.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("kolo")
    return torch, dist, dist.get_rank(), dist.get_world_size()


def train_beside_one_process(made, kind=None):
    """Trains a model of `made()` by stock DDP, and one alone with the batches of all ranks; both end alike."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, alone = made(), made()
    alone.load_state_dict(model.state_dict())
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    batch = torch.randn(4 * size, 8, generator=torch.Generator().manual_seed(1), dtype=kind)
    for _ in range(3):
        for net, rows in [(ddp, batch[4 * rank : 4 * rank + 4]), (alone, batch)]:
            net.zero_grad()
            net(rows).square().mean().backward()
            with torch.no_grad():
                [parameter.sub_(0.1 * parameter.grad) for parameter in net.parameters()]
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(ours, theirs)
