"""kolo.torch: torch.distributed over Kolo, each result beside a number worked out here. Skips without torch."""

import datetime
import os
import signal
import time
import unittest

from tests.processes import run
from tests.ranks import needs_torch, started, train_beside_one_process


def collectives():
    torch, dist, rank, size = started()
    ranks = range(size)
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
             torch.uint8, torch.bool, torch.complex64, torch.complex128]
    for kind in kinds:
        for memory in ("plain", "strided", "shared"):
            def tensor(number, shape=(2, 3)):
                made = torch.full(shape, number).to(kind)
                if memory == "shared":
                    return kolo_torch().empty(shape, dtype=kind).copy_(made)
                return made.t().contiguous().t() if memory == "strided" and len(shape) == 2 else made

            def same(got, number):
                expected = torch.full(got.shape, number).to(kind)
                assert torch.equal(got, expected), (kind, memory, got, expected)

            total = sum(r + 1 for r in ranks)
            data = tensor(rank + 1)
            dist.all_reduce(data)
            same(data, total)
            data = tensor(rank + 1)
            work = dist.all_reduce(data, async_op=True)
            assert work.get_future().wait()[0].data_ptr() == data.data_ptr() and work.is_completed() and work.is_success()
            same(data, total)
            data = tensor(rank + 1)
            dist.broadcast(data, 1)
            same(data, 2)
            data = tensor(rank + 1)
            dist.reduce(data, 0)
            same(data, total if rank == 0 else rank + 1)
            gathered = [tensor(0) for _ in ranks]
            dist.all_gather(gathered, tensor(rank + 1))
            [same(part, r + 1) for r, part in enumerate(gathered)]
            whole = tensor(0, (2 * size, 3))
            dist.all_gather_into_tensor(whole, tensor(rank + 1))
            [same(whole[2 * r : 2 * r + 2], r + 1) for r in ranks]
            gathered = [tensor(0) for _ in ranks] if rank == 1 else None
            dist.gather(tensor(rank + 1), gathered, 1)
            [same(part, r + 1) for r, part in enumerate(gathered or [])]
            data = tensor(0)
            dist.scatter(data, [tensor(r + 1) for r in ranks] if rank == 0 else None, 0)
            same(data, rank + 1)
            data = tensor(0)
            dist.reduce_scatter(data, [tensor(r + 1) for r in ranks])
            same(data, size * (rank + 1))
            dist.reduce_scatter_tensor(data, tensor(2, (2 * size, 3)))
            same(data, 2 * size)
            received = [tensor(0, (r + 1, 2)) for r in ranks]
            dist.all_to_all(received, [tensor(rank + 1, (rank + 1, 2)) for _ in ranks])
            [same(part, r + 1) for r, part in enumerate(received)]
            whole = tensor(0, (size, 3))
            dist.all_to_all_single(whole, tensor(rank + 1, (size, 3)))
            [same(whole[r], r + 1) for r in ranks]
    number = torch.tensor([1.5])
    for op, expected in [(dist.ReduceOp.AVG, 1.5), (dist.ReduceOp.MAX, 1.5), (dist.ReduceOp.PRODUCT, 1.5**size),
                         (dist._make_nccl_premul_sum(2.0), 3.0 * size)]:
        data = number.clone()
        dist.all_reduce(data, op)
        assert data.item() == expected, (op, data, expected)
    # The mean of integers is cut off toward zero.
    values = [3, -3, 1, -1, 3 * size + 1, -3 * size - 1]
    data = torch.tensor(values if rank == 0 else [0] * len(values))
    dist.all_reduce(data, dist.ReduceOp.AVG)
    assert data.tolist() == [int(value / size) for value in values], data
    bits = torch.tensor([1 << rank | 8])
    dist.all_reduce(bits, dist.ReduceOp.BAND)
    assert bits.item() == 8
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    assert bits.item() == (1 << size) - 1
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((r + 1,), float(r + rank)) for r in ranks])
    assert (uneven == sum(rank + r for r in ranks)).all(), uneven
    with dist._coalescing_manager(async_ops=True) as manager:
        pair = [torch.ones(2), torch.ones(3)]
        [dist.all_reduce(data) for data in pair]
    manager.wait()
    assert all((data == size).all() for data in pair)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in ranks]
    objects = ["from 0"] if rank == 0 else [None]
    dist.broadcast_object_list(objects)
    assert objects == ["from 0"]
    dist.barrier()
    dist.destroy_process_group()


def groups_and_messages():
    torch, dist, rank, size = started()
    pairs = [[a, b] for a in range(size) for b in range(a + 1, size)]
    groups = [(pair, dist.new_group(pair)) for pair in pairs]
    mine = [(pair, group) for pair, group in groups if rank in pair]
    # Asynchronous operations of several groups, in another order on each rank.
    data = {tuple(pair): torch.full((50_000,), float(rank)) for pair, _ in mine}
    works = [dist.all_reduce(data[tuple(pair)], group=group, async_op=True) for pair, group in (mine if rank % 2 else mine[::-1])]
    [work.wait() for work in works]
    assert all((data[pair] == sum(pair)).all() for pair in data)
    # A message beside a collective that the receiver has not called yet.
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        dist.send(torch.arange(5), 1, tag=3)
        work.wait()
    else:
        if rank == 1:
            got = torch.zeros(5, dtype=torch.int64)
            assert dist.recv(got, tag=3) == 0 and got.tolist() == [0, 1, 2, 3, 4]
        dist.all_reduce(torch.ones(1))
    after, before = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, torch.full((3,), float(rank)), after)])
    [work.wait() for work in works]
    assert (got == before).all()
    if rank == 2:
        time.sleep(1.5)
    try:
        kolo_torch().monitored_barrier(timeout=0.5, wait_all_ranks=True)
        raise AssertionError("rank 2 is late")
    except dist.DistBackendError as error:
        assert "rank 2 did not arrive" in str(error), error
    kolo_torch().monitored_barrier(timeout=30)
    if rank == 0:
        try:
            kolo_torch().monitored_barrier(timeout=datetime.timedelta(0))
            raise AssertionError("nobody else has come")
        except dist.DistBackendError as error:
            assert "Timed out after 0 s: rank 1 did not arrive" in str(error), error
        dist.barrier()
    else:
        dist.barrier()
        try:
            kolo_torch().monitored_barrier(timeout=30)
            raise AssertionError("rank 0 has given up")
        except dist.DistBackendError as error:
            assert "rank 1 did not arrive" in str(error), error
    sparse = torch.sparse_coo_tensor([[0, rank]], [1.0, 2.0], (size,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [size + 2.0] + [2.0] * (size - 1), sparse
    try:
        dist.broadcast(torch.ones(2).to_sparse(), 0)
        raise AssertionError("sparse")
    except ValueError as error:
        assert "sparse" in str(error) and f"rank {rank}" in str(error), error
    dist.destroy_process_group()


def kolo_torch():
    import kolo.torch

    return kolo.torch


def trains():
    torch, dist, rank, size = started()
    nn = torch.nn
    train_beside_one_process(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    # The interpreter ends with an operation under way and without destroy_process_group.
    dist.all_reduce(torch.ones(1000), async_op=True).get_future()


def trains_in_parts():
    """FSDP2, with parameters that do not divide evenly and memory that the group allocates, beside one process."""
    torch, dist, rank, size = started()
    from torch.distributed.fsdp import fully_shard

    nn = torch.nn
    torch.manual_seed(0)
    alone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    model.load_state_dict(alone.state_dict())
    mesh = dist.init_device_mesh("cpu", (size,))
    group = mesh.get_group()
    allocate, allocated = group.allocate_tensor, []
    group.allocate_tensor = lambda *size, **kind: allocated.append(allocate(*size, **kind)) or allocated[-1]
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
        module.set_allocate_memory_from_process_group_for_comm(True)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in (model, alone)]
    batch = torch.randn(4 * size, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        for net, rows, optimizer in zip((model, alone), (batch[4 * rank : 4 * rank + 4], batch), optimizers):
            optimizer.zero_grad()
            net(rows).square().mean().backward()
            optimizer.step()
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(ours.full_tensor(), theirs)
    # A part of each gathered parameter, and of each gradient, was in memory that the other ranks read.
    assert len(allocated) >= 3 * 3 * 2 and kolo_torch().empty(2, 3).shape == (2, 3), len(allocated)
    dist.destroy_process_group()


def callbacks_that_communicate():
    torch, dist, rank, size = started()
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    first, second = torch.ones(3), torch.ones(2)

    def then(future):
        dist.all_reduce(second, async_op=True).get_future().wait()
        dist.all_reduce(second)
        return future.value()

    dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    assert (first == size).all() and (second == size * size).all(), (first, second)
    # Its callbacks run on the group's thread, start collectives there and wait for them.
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
    ddp.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1), powerSGD_hook)
    for _ in range(6):
        ddp(torch.randn(8, 64)).sum().backward()
    sums = torch.stack([parameter.grad.sum() for parameter in ddp.parameters()])
    gathered = [torch.zeros_like(sums) for _ in range(size)]
    dist.all_gather(gathered, sums)
    assert all(torch.equal(gathered[0], other) for other in gathered)
    dist.destroy_process_group()


def a_rank_is_killed():
    torch, dist, rank, size = started()
    dist.all_reduce(torch.ones(10))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        # The C++ of torch waits here, and learns of the error by the future alone.
        model(torch.ones(2, 4)).sum().backward()
        raise AssertionError("rank 1 is dead")
    except RuntimeError as error:
        assert f"all_reduce of rank {rank}: rank 1 died" in str(error), error
    for start in (lambda: dist.all_reduce(torch.ones(10)), lambda: dist.all_reduce(torch.ones(10), async_op=True).wait()):
        try:
            start()
            raise AssertionError("rank 1 is dead")
        except dist.DistBackendError as error:
            assert error.culprit == 1 and "rank 1 died" in str(error), error


@needs_torch
class TorchTest(unittest.TestCase):
    def test_collectives(self):
        run(self, 3, collectives)

    def test_groups_and_messages(self):
        run(self, 4, groups_and_messages)

    def test_callbacks_that_communicate(self):
        run(self, 2, callbacks_that_communicate)

    def test_training_equals_one_process(self):
        run(self, 2, trains)

    def test_training_in_parts_equals_one_process(self):
        run(self, 3, trains_in_parts)

    def test_a_killed_rank_is_named(self):
        run(self, 3, a_rank_is_killed, fails=[1])


if __name__ == "__main__":
    unittest.main()
