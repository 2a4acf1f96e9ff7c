"""Tensors and numbers that torch's users pass by mistake get one sentence with operation and rank; values at the
ends of their types get Gloo's results. Skips without torch."""

import math
import os
import threading
import unittest

from tests.processes import run
from tests.ranks import needs_torch, started


def refused(act, *words):
    """Has a call fail with one sentence that has the words."""
    try:
        act()
    except (ValueError, RuntimeError) as error:
        text = str(error)
        assert all(word in text for word in words) and "\n" not in text, (words, text)
        return
    raise AssertionError(f"nobody objected: {words}")


def bad_tensors():
    torch, dist, rank, size = started()
    from torch.distributed.tensor import DTensor, Replicate

    group, own = dist.group.WORLD, f"of rank {rank}:"
    mesh = dist.init_device_mesh("cpu", (size,))
    distributed = DTensor.from_local(torch.ones(4), mesh, [Replicate()])
    meta, expanded = torch.ones(4, device="meta"), torch.ones(1).expand(4)
    rows = torch.ones(size, 2)
    reduce_scatter, all_to_all = dist.reduce_scatter, dist.all_to_all
    premultiplied = dist._make_nccl_premul_sum(2.0)
    for act, *words in [
        (lambda: dist.all_reduce(meta), "all_reduce", "a tensor on meta"),
        (lambda: dist.all_gather([meta] * size, meta), "all_gather", "a tensor on meta"),
        (lambda: dist.send(meta, (rank + 1) % size), "send", "a tensor on meta"),
        (lambda: dist.all_reduce(distributed), "all_reduce", "DTensor", "to_local()"),
        (lambda: dist.all_reduce(expanded), "all_reduce", "several elements in one place", "clone()"),
        (lambda: dist.recv(expanded, (rank + 1) % size), "recv", "several elements in one place"),
        (lambda: dist.all_gather([expanded] * size, torch.ones(4)), "all_gather", "several elements in one place"),
        (lambda: dist.broadcast(torch.ones(2).to_sparse(), 0), "broadcast", "sparse"),
        (lambda: dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.MAX), "all_reduce", "sparse tensors are summed only"),
        (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), "all_reduce", "band of float32 is not defined"),
        (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)), "all_reduce", "sums of torch.float8_e4m3fn"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), premultiplied), "all_reduce", "PREMUL_SUM of torch.int32"),
        (lambda: group.all_gather_single(torch.ones(3), torch.ones(3)), "all_gather", "must be equal to world_size times"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(3)), "reduce_scatter", "output size times world size"),
        (lambda: reduce_scatter(torch.ones(2), [torch.ones(2)] * (size + 1)), "reduce_scatter", "pass one input for each"),
        (lambda: reduce_scatter(torch.ones(2), [torch.ones(3)] * size), "reduce_scatter", "pass one input for each"),
        (lambda: all_to_all([torch.ones(2)], [torch.ones(2)]), "all_to_all", "pass one input and one output for each"),
        (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [-1, 2, 2]), "all_to_all", "Split sizes"),
        (lambda: dist.all_to_all_single(torch.ones(()), torch.ones(())), "all_to_all", "does not divide equally"),
        (lambda: dist.all_gather(list(rows), torch.ones(3)), "all_gather", "the outputs have [2, 2, 2] elements, and the input has 3"),
        (lambda: group.send([torch.ones(1)], size, 0), "send", f"the rank is {size}"),
        (lambda: group.send([torch.ones(1)], 0, -1), "send", "the tag is -1"),
        (lambda: group.recv([torch.ones(1)], -2, 0), "recv", "the rank is -2"),
    ]:
        refused(act, own, *words)
    # The group is as before.
    for data in (torch.ones(2, requires_grad=True), torch.ones(0), torch.ones(()), torch.ones(2, 3).t(), torch.nn.Parameter(torch.ones(2))):
        dist.all_reduce(data)
        assert (data == size).all() and data.grad_fn is None, data
    # Only rank 0's factor and data change.
    data = torch.full((2,), float(rank + 1))
    dist.reduce(data, 0, premultiplied)
    assert (data == (size * (size + 1) if rank == 0 else rank + 1)).all(), data
    dist.destroy_process_group()
    refused(lambda: group.allreduce([torch.ones(1)]), "all_reduce", own, "the group is closed")
    refused(lambda: group.send([torch.ones(1)], 0, 0), "send", own, "the group is closed")
    refused(lambda: group.recv([torch.ones(1)], 0, 0), "receive", own, "the group is closed")
    group.abort()
    group.shutdown()


def values_that_are_not_in_memory():
    """Tensors that torch conjugates or negates when they are read, and those of inference mode."""
    torch, dist, rank, size = started()
    pair = torch.tensor([1 + 2j, 3 - 4j])
    negated = pair.conj().imag
    assert negated.is_neg() and negated.tolist() == [-2, 4]
    for strided in (False, True):
        made = torch.stack([negated, negated]).t() if strided else negated
        first = made.clone() if strided else torch.tensor([1 + 2j, 3 - 4j]).conj().imag
        expected = first.clone() * size
        dist.all_reduce(first)
        assert torch.equal(first.clone(), expected), (first, expected)
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, negated)
    assert all(part.tolist() == [-2, 4] for part in parts), parts
    got = torch.zeros(2, dtype=torch.complex64).conj().imag
    dist.batch_isend_irecv([dist.P2POp(dist.isend, negated, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)])[1].wait()
    dist.barrier()
    whole = torch.zeros(2 * size, dtype=torch.complex64)
    dist.group.WORLD._allgather_base(whole, pair.conj()).wait()
    assert whole.tolist() == [1 - 2j, 3 + 4j] * size, whole
    with torch.inference_mode():
        parts, own = [torch.zeros(2) for _ in range(size)], torch.full((2,), float(rank))
        future = dist.all_gather(parts, own, async_op=True).get_future()
    future.wait()
    assert [part.tolist() for part in parts] == [[float(r)] * 2 for r in range(size)], parts
    dist.destroy_process_group()


def edges(torch, kind, rank):
    """Values at the ends of a type, other ones on each rank."""
    if kind is torch.bool:
        values = [[True, True, False, False], [True, False, True, False]][rank]
    elif kind.is_floating_point:
        most, least = torch.finfo(kind).max, torch.finfo(kind).smallest_normal
        inf = math.inf
        values = [[inf, inf, most, -most, least, -0.0, 1.0, 0.1, -inf, 3.0], [-inf, 1.0, most, -most, least / 2, 0.0, 1e-3, 0.2, -inf, -7.0]][rank]
    else:
        most, least = torch.iinfo(kind).max, torch.iinfo(kind).min
        values = [[most, least, most, 0, 5, 1], [1, least, most, 0, 3, least]][rank]
    return torch.tensor(values).to(kind)


def same_as_gloo():
    torch, dist, rank, size = started()
    gloo, ops = dist.new_group(backend="gloo"), dist.ReduceOp
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]

    def bits(tensor):
        return [None if value != value else value for value in tensor.double().tolist()] if tensor.is_floating_point() else tensor.tolist()

    for kind in [*kinds, torch.bool]:
        bitwise = [] if kind.is_floating_point else [ops.BAND, ops.BOR, ops.BXOR]
        for op in [ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX, *bitwise]:
            values = edges(torch, kind, rank)
            uneven = values.repeat(1001)[: 7 * 1001 - 3]
            for data in (values, uneven, values[:0], values[:1]):
                ours, theirs = data.clone(), data.clone()
                dist.all_reduce(ours, op)
                dist.all_reduce(theirs, op, group=gloo)
                # Gloo adds bool as bytes, so a sum of two is the byte 2, which no bool has.
                theirs = theirs.view(torch.uint8).bool() if kind is torch.bool else theirs
                assert bits(ours) == bits(theirs), (kind, op, bits(data)[:10], bits(ours)[:10], bits(theirs)[:10])
        # NaN: a sum of any bits, and the largest and the smallest of values among which one is NaN.
        if kind.is_floating_point:
            for op in [ops.SUM, ops.MIN, ops.MAX, ops.PRODUCT, ops.AVG]:
                data = torch.tensor([math.nan, 1.0] if rank == 0 else [1.0, math.nan]).to(kind)
                dist.all_reduce(data, op)
                assert data.isnan().all(), (kind, op, data)
        for send in ([1, 2], [3, 0]), ([0, 0], [0, 0]):
            own, rows = send[rank], [counts[rank] for counts in send]
            source, outputs = edges(torch, kind, rank)[: sum(own)], []
            for group in (None, gloo):
                outputs.append(torch.zeros(sum(rows), dtype=kind))
                dist.all_to_all_single(outputs[-1], source, rows, own, group=group)
            assert bits(outputs[0]) == bits(outputs[1]), (kind, send, outputs)
    dist.destroy_process_group()


def threads_that_call_at_once():
    torch, dist, rank, size = started()
    groups, wrong = [dist.new_group() for _ in range(3)], []

    def reduce(group, number):
        try:
            for step in range(200):
                data = torch.full((step * 7 % 50 if number else 9,), float(number + rank))
                work = dist.all_reduce(data, group=group, async_op=bool(step % 3))
                if work is not None:
                    work.wait()
                if not (data == sum(number + r for r in range(size))).all():
                    wrong.append((number, step, data))
        except Exception as error:
            wrong.append(error)

    # One thread a group; then two of them on one group with equal calls, whose order does not matter.
    for choice in (groups, [groups[0], groups[0]]):
        threads = [threading.Thread(target=reduce, args=(group, 0 if len(choice) == 2 else number)) for number, group in enumerate(choice)]
        [thread.start() for thread in threads]
        [thread.join(100) for thread in threads]
        assert not wrong and not any(thread.is_alive() for thread in threads), wrong
    dist.destroy_process_group()


def forks():
    """A forked process is told that the group is not its own, and cannot end it, whatever it calls."""
    torch, dist, rank, size = started()
    dist.all_reduce(torch.ones(4))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused(lambda: dist.all_reduce(torch.ones(4)), f"all_reduce of rank {rank}", "not to one that it forks")
            refused(lambda: dist.all_reduce(torch.ones(4), async_op=True), "not to one that it forks")
            refused(lambda: dist.recv(torch.ones(4), (rank + 1) % size), "not to one that it forks")
            dist.group.WORLD.abort()
            dist.destroy_process_group()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    data = torch.ones(4)
    dist.all_reduce(data)
    assert (data == size).all()
    dist.destroy_process_group()


def fails_in_a_hook():
    """A hook of a gradient that fails on one rank: it has its own exception, the others one that names it."""
    torch, dist, rank, size = started()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()

    def hook(gradient):
        raise ArithmeticError("on purpose")

    if rank == 1:
        model.module.weight.register_hook(hook)
        refused_with(lambda: model(torch.ones(2, 4)).sum().backward(), ArithmeticError, "on purpose")
        dist.destroy_process_group()
        return
    refused_with(lambda: model(torch.ones(2, 4)).sum().backward(), RuntimeError, "rank 1")


def refused_with(act, kind, *words):
    try:
        act()
    except kind as error:
        assert all(word in str(error) for word in words), (words, error)
        return
    raise AssertionError(words)


def is_too_old():
    import torch

    torch.__version__ = type(torch.__version__)("2.10.1")
    refused(started, "PyTorch 2.10.1 is too old")


@needs_torch
class OddInputTest(unittest.TestCase):
    def test_bad_tensors(self):
        run(self, 3, bad_tensors)

    def test_values_that_are_not_in_memory(self):
        run(self, 2, values_that_are_not_in_memory)

    def test_same_values_as_gloo(self):
        run(self, 2, same_as_gloo)

    def test_threads_that_call_at_once(self):
        run(self, 2, threads_that_call_at_once)

    def test_a_forked_process_is_no_rank(self):
        run(self, 2, forks)

    def test_an_old_version_is_refused(self):
        run(self, 1, is_too_old)

    def test_a_hook_that_fails(self):
        run(self, 2, fails_in_a_hook)


if __name__ == "__main__":
    unittest.main()
