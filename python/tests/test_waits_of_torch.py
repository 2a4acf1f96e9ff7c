"""Waits of torch's own C++ for Kolo's operations: each ends, with the right values, or with the error of a rank that is
dead."""

import os
import signal
import unittest

from .processes import run
from .ranks import needs_torch, started


def model_of(torch):
    """Returns a linear model whose first weights are the same everywhere."""
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def joined(divide_by_initial_world_size):
    """Rank r has r + 1 batches; a model alone takes the mean of the ranks' gradients that the setting defines."""
    torch, dist, rank, size = started()
    by_first = divide_by_initial_world_size == "True"
    alone, ddp = model_of(torch), torch.nn.parallel.DistributedDataParallel(model_of(torch))
    batches = [[torch.full((2, 3), 1.0 + other + 0.5 * step) for step in range(other + 1)] for other in range(size)]
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join(divide_by_initial_world_size=by_first):
        for inputs in batches[rank]:
            optimizer.zero_grad()
            ddp(inputs).square().mean().backward()
            optimizer.step()
    for step in range(size):
        active = [own[step] for own in batches if step < len(own)]
        loss = sum(alone(inputs).square().mean() for inputs in active) / (size if by_first else len(active))
        for parameter, gradient in zip(alone.parameters(), torch.autograd.grad(loss, list(alone.parameters()))):
            parameter.data.sub_(0.1 * gradient)
    for ours, theirs in zip(ddp.parameters(), alone.parameters()):
        torch.testing.assert_close(ours, theirs)
    dist.destroy_process_group()


def other_waits():
    """Hooks and operators of C++, which call the group and wait for what it returns."""
    torch, dist, rank, size = started()
    inputs = torch.full((2, 3), 1.0 + rank)
    alone = model_of(torch)
    loss = sum(alone(torch.full((2, 3), 1.0 + other)).square().mean() for other in range(size)) / size
    expected = torch.autograd.grad(loss, list(alone.parameters()))
    for kind in ("hook", "static", "unused", "accumulated"):
        options = {"static": {"static_graph": True}, "unused": {"find_unused_parameters": True}}.get(kind, {})
        ddp = torch.nn.parallel.DistributedDataParallel(model_of(torch), **options)
        if kind == "hook":
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        for _ in range(3):
            ddp.zero_grad()
            if kind == "accumulated":
                with ddp.no_sync():
                    ddp(inputs).square().mean().backward()
            ddp(inputs).square().mean().backward()
        scale = 2 if kind == "accumulated" else 1
        for parameter, gradient in zip(ddp.parameters(), expected):
            torch.testing.assert_close(parameter.grad, scale * gradient)
    functional = torch.distributed._functional_collectives
    total = functional.all_reduce(torch.tensor([rank + 1.0]), "sum", dist.group.WORLD)
    assert total.tolist() == [size * (size + 1) / 2], total
    gathered = functional.all_gather_tensor(torch.tensor([float(rank)]), 0, dist.group.WORLD)
    assert gathered.tolist() == [float(other) for other in range(size)], gathered
    parts = functional.reduce_scatter_tensor(torch.arange(float(size)), "sum", 0, dist.group.WORLD)
    assert parts.tolist() == [size * rank], parts
    from_one = functional.broadcast(torch.tensor([float(rank)]), 1, dist.group.WORLD)
    assert from_one.tolist() == [1.0], from_one
    coalesced = functional.all_reduce_coalesced([torch.ones(2), torch.full((3,), 2.0)], "sum", dist.group.WORLD)
    assert [part.tolist() for part in coalesced] == [[size] * 2, [2.0 * size] * 3]
    copies = [torch.full((2,), float(rank)), torch.full((3,), 10.0 + rank)]
    dist._broadcast_coalesced(dist.group.WORLD, copies, 1 << 20, 1)
    assert copies[0].tolist() == [1.0] * 2 and copies[1].tolist() == [11.0] * 3, copies
    dist._verify_params_across_processes(dist.group.WORLD, [torch.ones(2, 3)])
    dist.destroy_process_group()


def a_rank_dies_before_it_joins():
    torch, dist, rank, size = started()
    ddp = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    with ddp.join(divide_by_initial_world_size=False):
        ddp(torch.ones(1, 3)).mean().backward()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            ddp(torch.ones(1, 3)).mean().backward()
            raise AssertionError("rank 1 is dead")
        except RuntimeError as error:
            assert "rank 1 died" in str(error), error
            os._exit(0)


@needs_torch
class WaitsOfTorchTest(unittest.TestCase):
    def test_uneven_inputs_are_divided_by_the_ranks_that_have_some(self):
        run(self, 3, joined, False)

    def test_uneven_inputs_are_divided_by_all_ranks(self):
        run(self, 3, joined, True)

    def test_hooks_and_operators_of_c(self):
        run(self, 2, other_waits)

    def test_a_rank_that_dies_ends_the_wait_of_the_backward_pass(self):
        run(self, 3, a_rank_dies_before_it_joins, fails=[1])


if __name__ == "__main__":
    unittest.main()
