"""Tensors on GPUs, without a GPU: tensors of float64 take their place, and Gloo or a recorder that of NCCL."""

import unittest

from tests.processes import run
from tests.ranks import needs_torch, started, train_beside_one_process


def stand_in(dist, form):
    """Makes tensors of float64 count as those of a GPU, for which `form` makes the group."""
    import torch

    from kolo.torch import _device_group

    _device_group.is_on_gpu = lambda tensor: tensor.dtype is torch.float64
    _device_group.obstacle = lambda: None
    _device_group.form = form


def over_gloo(group, store, timeout, ranks, options):
    import torch
    import torch.distributed as dist

    from kolo.torch._device_group import stock_group

    kind = dist.ProcessGroup.BackendType.GLOO
    backend = dist.ProcessGroupGloo(dist.PrefixStore("gpu/", store), group.rank(), group.size(), timeout)
    made = stock_group(group, store, kind, backend)
    made._register_backend(torch.device("cpu"), kind, backend)
    return made


def operations():
    torch, dist, rank, size = started()
    stand_in(dist, over_gloo)
    ranks, group = range(size), dist.group.WORLD
    total = float(sum(r + 1 for r in ranks))

    def of(number, shape=(2, 3)):
        return torch.full(shape, float(number), dtype=torch.float64)

    data = torch.ones(4)
    dist.all_reduce(data)
    assert group._devices is None and (data == size).all(), "tensors on the CPU need no group of GPUs"
    data = of(rank + 1)
    dist.all_reduce(data)
    assert type(group._devices) is dist.ProcessGroup and torch.equal(data, of(total)), data
    assert group._get_backend("cuda").name() == "gloo" and group._get_backend("cpu") is group
    assert [device.type for device in group._device_types] == ["cpu", "cuda"]
    data = of(rank + 1)
    work = dist.all_reduce(data, async_op=True)
    assert torch.equal(work.get_future().wait()[0], of(total))
    data = of(rank + 1)
    dist.broadcast(data, 1)
    assert torch.equal(data, of(2))
    data = of(rank + 1)
    dist.reduce(data, 1)
    assert rank != 1 or torch.equal(data, of(total))
    parts = [of(0) for _ in ranks]
    dist.all_gather(parts, of(rank + 1))
    assert all(torch.equal(part, of(r + 1)) for r, part in enumerate(parts))
    whole = of(0, (2 * size, 3))
    dist.all_gather_into_tensor(whole, of(rank + 1))
    assert torch.equal(whole, torch.cat(parts))
    data = of(0)
    dist.scatter(data, [of(r + 1) for r in ranks] if rank == 0 else None, 0)
    assert torch.equal(data, of(rank + 1))
    gathered = [of(0) for _ in ranks] if rank == 0 else None
    dist.gather(of(rank + 1), gathered, 0)
    assert rank or all(torch.equal(part, of(r + 1)) for r, part in enumerate(gathered))
    data = of(0)
    dist.reduce_scatter_tensor(data, of(2, (2 * size, 3)))
    assert torch.equal(data, of(2 * size))
    whole = of(0, (size, 3))
    dist.all_to_all_single(whole, of(rank + 1, (size, 3)))
    assert torch.equal(whole, torch.stack([of(r + 1, (3,)) for r in ranks]))
    with dist._coalescing_manager(async_ops=True) as manager:
        pair = [of(1), of(2)]
        [dist.all_reduce(data) for data in pair]
    manager.wait()
    assert torch.equal(pair[0], of(size)) and torch.equal(pair[1], of(2 * size))
    if rank == 0:
        dist.send(of(7), 1)
    elif rank == 1:
        dist.recv(data, 0)
        assert torch.equal(data, of(7))
    # A sub-group has a group of GPUs of its own.
    members = dist.new_group([0, 1])
    if rank < 2:
        data = of(rank + 1)
        dist.all_reduce(data, group=members)
        assert torch.equal(data, of(3)) and members._devices is not group._devices
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    assert objects == list(ranks)
    dist.barrier()
    dist.destroy_process_group()
    try:
        group.allreduce([of(1)])
        raise AssertionError("the group is destroyed")
    except (ValueError, RuntimeError):
        pass


def trains():
    """Stock DDP, whose C++ part gets operations of the inner group through Kolo's."""
    torch, dist, rank, size = started()
    stand_in(dist, over_gloo)
    kind = torch.float64
    train_beside_one_process(lambda: torch.nn.Linear(8, 3, dtype=kind), kind)
    assert dist.group.WORLD._devices is not None


def every_operation():
    """Each operation of a group reaches the group of GPUs, with its arguments; the others do not."""
    torch, dist, rank, size = started()
    calls = []

    class Recorder:
        def __getattr__(self, name):
            return lambda *arguments, **named: calls.append((name, arguments)) or name

    stand_in(dist, lambda *_: Recorder())
    group, data = dist.group.WORLD, torch.ones(2, dtype=torch.float64)
    many = [data]
    for name, arguments in [
            ("allreduce", (many,)), ("allreduce_coalesced", (many,)), ("broadcast", (many,)), ("reduce", (many,)),
            ("allgather", ([many], many)), ("_allgather_base", (data, data)), ("allgather_coalesced", ([many], many)),
            ("allgather_into_tensor_coalesced", (many, many)), ("gather", ([], many)), ("scatter", (many, [])),
            ("reduce_scatter", (many, [many])), ("_reduce_scatter_base", (data, data)),
            ("reduce_scatter_tensor_coalesced", (many, many)), ("alltoall_base", (data, data, [], [])), ("alltoall", (many, many)),
            ("send", (many, 0, 0)), ("recv", (many, 0, 0)), ("recv_anysource", (many, 0))]:
        assert getattr(group, name)(*arguments) == name and calls.pop() == (name, arguments), name
    options = dist.BarrierOptions()
    options.device = torch.device("cuda", 0)
    assert group.barrier(options) == "barrier" and calls.pop() == ("barrier", (options,))
    dist.barrier()
    device = data.device
    [work] = dist.batch_isend_irecv([dist.P2POp(dist.isend, data, 0), dist.P2POp(dist.irecv, data, 0, tag=3)])
    assert work == "_end_coalescing", work
    assert calls == [("_start_coalescing", (device,)), ("send", (many, 0, 0)), ("recv", (many, 0, 3)), ("_end_coalescing", (device,))]
    calls.clear()
    group.abort()
    assert calls == [("abort", ())]
    dist.destroy_process_group()
    assert calls == [("abort", ()), ("shutdown", ())]


def without_gpus():
    torch, dist, rank, size = started()
    group = dist.group.WORLD
    if torch.cuda.is_available():
        return
    assert [device.type for device in group._device_types] == ["cpu"]
    try:
        group._get_backend(torch.device("cuda"))
        raise AssertionError("there is no GPU")
    except RuntimeError as error:
        assert str(error) == "kolo: _get_backend of rank 0 on a GPU: torch finds no GPU on this machine", error
    for tensor in (torch.ones(2, device="meta"), [torch.ones(2), torch.ones(2, device="meta")]):
        try:
            group.alltoall([tensor] if isinstance(tensor, torch.Tensor) else tensor, [torch.ones(2)])
            raise AssertionError("on another device")
        except ValueError as error:
            assert "rank 0: a tensor on meta; all must be on the CPU, or all on a CUDA device" in str(error), error
    dist.destroy_process_group()
    try:
        dist.init_process_group("kolo", pg_options=dist.ProcessGroupGloo.Options("gloo"))
        raise AssertionError("options of Gloo")
    except ValueError as error:
        assert "pg_options" in str(error) and "ProcessGroupNCCL.Options" in str(error), error


@needs_torch
class DevicesTest(unittest.TestCase):
    def test_operations_of_gpu_tensors_run_in_the_inner_group(self):
        run(self, 3, operations)

    def test_stock_ddp_trains_over_the_inner_group(self):
        run(self, 2, trains)

    def test_every_operation_is_handed_over(self):
        run(self, 1, every_operation)

    def test_without_gpus_one_sentence_says_so(self):
        run(self, 1, without_gpus)


if __name__ == "__main__":
    unittest.main()
