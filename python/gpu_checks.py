"""The checks of gpu.py, as one rank: first over Kolo, then over torch's own backends. Each check compares with numbers that
plain torch works out; what it returns must be the same over both."""

import faulthandler
import hashlib
import json
import os
import re
import socket
import sys
import traceback
from datetime import timedelta

CHECKS = []
# Seconds that a check may take.
LIMIT = 20
# True if the checks are rehearsed on a machine without a GPU: on the CPU, beside Gloo.
ON_CPU = os.environ.get("KOLO_GPU_CHECKS") == "cpu"


def check(function):
    CHECKS.append(function)
    return function


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Place:
    """This rank, its GPU, and values that each rank has."""

    def __init__(self, torch, dist, rank, size):
        self.torch, self.dist, self.rank, self.size, self.backend = torch, dist, rank, size, None
        self.device = torch.device("cpu") if ON_CPU else torch.device("cuda", rank % torch.cuda.device_count())
        if not ON_CPU:
            torch.cuda.set_device(self.device)

    def value(self, rank, dtype=None, shape=(3, 4)):
        """The tensor of a rank, on the CPU: small whole numbers."""
        torch = self.torch
        count = torch.Size(shape).numel()
        return ((torch.arange(count) % 5) + rank + 1).reshape(shape).to(dtype or torch.float32)

    def own(self, dtype=None, shape=(3, 4)):
        return self.value(self.rank, dtype, shape).to(self.device)

    def all(self, dtype=None, shape=(3, 4)):
        return [self.value(rank, dtype, shape) for rank in range(self.size)]

    def zeros(self, shape, dtype=None):
        return self.torch.zeros(shape, dtype=dtype, device=self.device)

    def same(self, got, expected):
        assert got.device == self.device, got.device
        assert got.dtype == expected.dtype and self.torch.equal(got.cpu(), expected), (got.cpu(), expected)

    def needs(self, size):
        if self.size < size:
            raise Skip(f"needs {size} ranks")

    def needs_gpu(self):
        if ON_CPU:
            raise Skip("needs a GPU")


class Skip(Exception):
    pass


def types(torch):
    return [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]


def weights_of(module):
    """A hash of the parameters' bits."""
    parts = [getattr(parameter, "full_tensor", lambda parameter=parameter: parameter)() for parameter in module.parameters()]
    return hashlib.sha256(b"".join(repr(part.detach().cpu().tolist()).encode() for part in parts)).hexdigest()[:16]


# ---- collectives


@check
def all_reduce(here):
    for dtype in types(here.torch):
        data, total = here.own(dtype), sum(here.all(dtype))
        here.dist.all_reduce(data)
        here.same(data, total)
        data = here.own(dtype)
        work = here.dist.all_reduce(data, async_op=True)
        work.wait()
        here.same(data, total)
    pairs = here.torch.complex(here.own(), 2 * here.own())
    here.dist.all_reduce(pairs)
    total = sum(here.all())
    here.same(pairs, here.torch.complex(total, 2 * total))
    large = here.own(shape=(1 << 20,))
    here.dist.all_reduce(large)
    here.same(large, sum(here.all(shape=(1 << 20,))))


@check
def reductions(here):
    dist, stack = here.dist, here.torch.stack(here.all())
    for op, expected in [(dist.ReduceOp.AVG, stack.mean(0)), (dist.ReduceOp.MAX, stack.amax(0)), (dist.ReduceOp.MIN, stack.amin(0)),
                         (dist.ReduceOp.PRODUCT, stack.prod(0)), (dist._make_nccl_premul_sum(0.5), (stack * 0.5).sum(0))]:
        data = here.own()
        dist.all_reduce(data, op)
        here.same(data, expected)


@check
def futures(here):
    data = here.own()
    future = here.dist.all_reduce(data, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    here.same(future.wait(), 2 * sum(here.all()))


@check
def broadcast_and_reduce(here):
    root = here.size - 1
    data = here.own()
    here.dist.broadcast(data, root)
    here.same(data, here.value(root))
    data = here.own()
    here.dist.reduce(data, root)
    if here.rank == root:
        here.same(data, sum(here.all()))


@check
def all_gather(here):
    for dtype in types(here.torch):
        parts = [here.zeros((3, 4), dtype) for _ in range(here.size)]
        here.dist.all_gather(parts, here.own(dtype))
        [here.same(part, expected) for part, expected in zip(parts, here.all(dtype))]
        whole = here.zeros((3 * here.size, 4), dtype)
        here.dist.all_gather_into_tensor(whole, here.own(dtype))
        here.same(whole, here.torch.cat(here.all(dtype)))


@check
def reduce_scatter(here):
    shape = (2 * here.size, 4)
    expected = sum(here.all(shape=shape)).chunk(here.size)[here.rank]
    output = here.zeros((2, 4))
    here.dist.reduce_scatter(output, list(here.own(shape=shape).chunk(here.size)))
    here.same(output, expected)
    output = here.zeros((2, 4))
    here.dist.reduce_scatter_tensor(output, here.own(shape=shape))
    here.same(output, expected)
    output = here.zeros((2, 4))
    here.dist.reduce_scatter_tensor(output, here.own(shape=shape), here.dist.ReduceOp.AVG)
    here.same(output, expected / here.size)


@check
def all_to_all(here):
    outputs = [here.zeros((2,)) for _ in range(here.size)]
    inputs = [here.torch.full((2,), float(10 * here.rank + to), device=here.device) for to in range(here.size)]
    here.dist.all_to_all(outputs, inputs)
    [here.same(output, here.torch.full((2,), float(10 * source + here.rank))) for source, output in enumerate(outputs)]
    whole = here.zeros((here.size, 2))
    here.dist.all_to_all_single(whole, here.torch.stack(inputs))
    here.same(whole, here.torch.stack([here.torch.full((2,), float(10 * source + here.rank)) for source in range(here.size)]))
    # Rank r sends s + 1 elements to rank s.
    counts = [to + 1 for to in range(here.size)]
    source = here.torch.full((sum(counts),), float(here.rank), device=here.device)
    target = here.zeros((here.size * (here.rank + 1),))
    here.dist.all_to_all_single(target, source, [here.rank + 1] * here.size, counts)
    here.same(target, here.torch.arange(float(here.size)).repeat_interleave(here.rank + 1))


@check
def gather_and_scatter(here):
    parts = [here.zeros((3, 4)) for _ in range(here.size)] if here.rank == 0 else None
    here.dist.gather(here.own(), parts, 0)
    [here.same(part, expected) for part, expected in zip(parts or [], here.all())]
    output = here.zeros((3, 4))
    here.dist.scatter(output, [part.to(here.device) for part in here.all()] if here.rank == 0 else None, 0)
    here.same(output, here.value(here.rank))


@check
def send_and_receive(here):
    here.needs(2)
    if here.rank == 0:
        here.dist.send(here.own(), 1)
        here.dist.isend(here.own(here.torch.bfloat16), 1).wait()
    elif here.rank == 1:
        data = here.zeros((3, 4))
        here.dist.recv(data, 0)
        here.same(data, here.value(0))
        data = here.zeros((3, 4), here.torch.bfloat16)
        here.dist.irecv(data, 0).wait()
        here.same(data, here.value(0, here.torch.bfloat16))


@check
def batch_isend_irecv(here):
    here.needs(2)
    dist, shape = here.dist, (1 << 23,)
    after, before = (here.rank + 1) % here.size, (here.rank - 1) % here.size
    received = here.zeros(shape)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, here.own(shape=shape), after), dist.P2POp(dist.irecv, received, before)]):
        work.wait()
    here.same(received, here.value(before, shape=shape))


@check
def barriers(here):
    here.dist.barrier()
    if not ON_CPU:
        here.dist.barrier(device_ids=[here.device.index])
    here.dist.barrier(async_op=True).wait()


@check
def coalesced(here):
    dist = here.dist
    for device in [None] if ON_CPU else [None, here.device]:
        pair = [here.own(), here.own(shape=(5,))]
        with dist._coalescing_manager(device=device, async_ops=True) as manager:
            [dist.all_reduce(data) for data in pair]
        manager.wait()
        here.same(pair[0], sum(here.all()))
        here.same(pair[1], sum(here.all(shape=(5,))))
    wholes = [here.zeros((3 * here.size, 4)) for _ in range(2)]
    with dist._coalescing_manager():
        [dist.all_gather_into_tensor(whole, here.own()) for whole in wholes]
    [here.same(whole, here.torch.cat(here.all())) for whole in wholes]
    outputs = [here.zeros((2, 4)) for _ in range(2)]
    with dist._coalescing_manager():
        [dist.reduce_scatter_tensor(output, here.own(shape=(2 * here.size, 4))) for output in outputs]
    [here.same(output, sum(here.all(shape=(2 * here.size, 4))).chunk(here.size)[here.rank]) for output in outputs]


@check
def objects(here):
    dist, size = here.dist, here.size
    found = [None] * size
    dist.all_gather_object(found, {"rank": here.rank})
    assert found == [{"rank": rank} for rank in range(size)], found
    found = [f"of {here.rank}"]
    dist.broadcast_object_list(found, size - 1)
    assert found == [f"of {size - 1}"], found
    found = [None]
    dist.scatter_object_list(found, list(range(size)) if here.rank == 0 else None, 0)
    assert found == [here.rank], found


@check
def beside_the_cpu(here):
    """CPU tensors and GPU tensors in turn, asynchronously."""
    works, parts = [], []
    for number in range(4):
        parts.append(here.own() if number % 2 else here.value(here.rank))
        works.append(here.dist.all_reduce(parts[-1], async_op=True))
    [work.wait() for work in works]
    assert all(here.torch.equal(part.cpu(), sum(here.all())) for part in parts)


@check
def streams(here):
    """An all-reduce on another stream, whose result a third one reads."""
    here.needs_gpu()
    torch, shape = here.torch, (1 << 22,)
    side, data = torch.cuda.Stream(), here.own(shape=shape)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        data.mul_(2)
        work = here.dist.all_reduce(data, async_op=True)
        work.wait()
        data.add_(1)
    torch.cuda.current_stream().wait_stream(side)
    here.same(data, 2 * sum(here.all(shape=shape)) + 1)


@check
def sub_groups(here):
    dist = here.dist
    last = dist.new_group([here.size - 1], use_local_synchronization=False)
    if here.rank == here.size - 1:
        data = here.own()
        dist.all_reduce(data, group=last)
        here.same(data, here.value(here.rank))
    everyone = dist.new_group(list(range(here.size)))
    data = here.own()
    dist.all_reduce(data, group=everyone)
    here.same(data, sum(here.all()))
    dist.destroy_process_group(everyone)


@check
def functional(here):
    import torch.distributed._functional_collectives as functional

    group, total = here.dist.group.WORLD, sum(here.all())
    here.same(functional.all_reduce(here.own(), "sum", group).clone(), total)
    here.same(functional.all_gather_tensor(here.own(), 0, group).clone(), here.torch.cat(here.all()))
    shape = (2 * here.size, 4)
    here.same(functional.reduce_scatter_tensor(here.own(shape=shape), "sum", 0, group).clone(),
              sum(here.all(shape=shape)).chunk(here.size)[here.rank])
    here.same(functional.broadcast(here.own(), 0, group).clone(), here.value(0))
    counts = [1] * here.size
    expected = here.torch.stack([value[here.rank] for value in here.all(shape=(here.size, 4))])
    here.same(functional.all_to_all_single(here.own(shape=(here.size, 4)), counts, counts, group).clone(), expected)


@check
def device_mesh(here):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = here.dist.init_device_mesh(here.device.type, (here.size,))
    whole = here.torch.arange(8.0 * here.size).reshape(2 * here.size, 4)
    tensor = distribute_tensor(whole.to(here.device), mesh, [Shard(0)])
    here.same(tensor.to_local(), whole.chunk(here.size)[here.rank])
    here.same(tensor.redistribute(mesh, [Replicate()]).to_local(), whole)
    here.same(tensor.full_tensor(), whole)
    square = here.dist.init_device_mesh(here.device.type, (here.size, 1), mesh_dim_names=("data", "model"))
    data = here.own()
    here.dist.all_reduce(data, group=square["data"].get_group())
    here.same(data, sum(here.all()))


# ---- training


def network(torch):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))


def batch(torch, step, rows=16):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, 16, generator=generator), torch.randint(0, 4, (rows,), generator=generator)


def train(here, model, share, steps=4):
    """Trains a wrapped model with this rank's share of each batch; returns the losses."""
    torch, losses = here.torch, []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        inputs, labels = (part[share].to(here.device) for part in batch(torch, step))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().item())
    return losses


def close_to_alone(here, model):
    """Compares trained parameters with those of one process that has the whole batches."""
    alone = network(here.torch).to(here.device)
    train(here, alone, slice(None))
    for own, expected in zip(model.parameters(), alone.parameters()):
        own = own.full_tensor() if hasattr(own, "full_tensor") else own
        here.torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-4)


@check
def stock_ddp(here):
    share, found = slice(here.rank, None, here.size), []
    for hook in (False, True):
        model = here.torch.nn.parallel.DistributedDataParallel(network(here.torch).to(here.device), bucket_cap_mb=0.01)
        if hook:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            model.register_comm_hook(None, fp16_compress_hook)
        losses = train(here, model, share)
        if not hook:
            close_to_alone(here, model)
        found.append((weights_of(model), losses))
    return found


@check
def fsdp2(here):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    share, found = slice(here.rank, None, here.size), []
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=here.torch.bfloat16, reduce_dtype=here.torch.float32)):
        model = network(here.torch).to(here.device)
        mesh = here.dist.init_device_mesh(here.device.type, (here.size,))
        for layer in (model[0], model[2], model[4], model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        losses = train(here, model, share)
        if policy.param_dtype is None:
            close_to_alone(here, model)
        found.append((weights_of(model), losses))
    return found


@check
def checkpoint(here):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network(here.torch).to(here.device), mesh=here.dist.init_device_mesh(here.device.type, (here.size,)))
    before = weights_of(model)
    folder = os.path.join(os.environ["KOLO_GPU_FOLDER"], f"{here.size}-{here.backend[:4]}")
    dcp.save(model.state_dict(), checkpoint_id=folder)
    with here.torch.no_grad():
        [parameter.zero_() for parameter in model.parameters()]
    state = model.state_dict()
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state)
    assert weights_of(model) == before


@check
def kolo_ddp(here):
    """kolo.torch.DistributedDataParallel: the same bits for one rank and for two."""
    if here.backend != "kolo":
        raise Skip("of Kolo only")
    import kolo.torch

    torch = here.torch
    torch.use_deterministic_algorithms(True)
    try:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.3), torch.nn.Linear(64, 4))
        ddp = kolo.torch.DistributedDataParallel(model.to(here.device), shards=4)
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
        for step in range(4):
            inputs, labels = (part.to(here.device) for part in batch(torch, step))
            for own, wanted in ddp.shards(inputs, labels):
                ddp.backward(torch.nn.functional.cross_entropy(ddp(own), wanted), len(wanted))
            optimizer.step()
            optimizer.zero_grad()
    finally:
        torch.use_deterministic_algorithms(False)
    found, path = f"{ddp.weights_sha256()} {ddp.loss}", os.path.join(os.environ["KOLO_GPU_FOLDER"], "kolo_ddp")
    if here.size == 1:
        open(path, "w").write(found)
    elif os.path.exists(path):
        assert open(path).read() == found, (open(path).read(), found)


# ---- wrong calls, and the end


@check
def mixed_devices_are_refused(here):
    here.needs_gpu()
    if here.backend != "kolo":
        raise Skip("of Kolo only")
    parts = [here.value(0), here.own()]
    try:
        here.dist.all_to_all(parts, parts)
    except ValueError as error:
        assert f"rank {here.rank}" in str(error) and "cuda" in str(error), error
    else:
        raise AssertionError("tensors on two devices")


@check
def timeouts(here):
    here.needs_gpu()
    here.dist.distributed_c10d._set_pg_timeout(timedelta(seconds=77), here.dist.group.WORLD)
    backend = here.dist.group.WORLD._get_backend(here.torch.device("cuda"))
    assert backend.options._timeout == timedelta(seconds=77), backend.options._timeout


@check
def again_and_abort(here):
    """The group is destroyed and formed again, with NCCL connected at once; then it is aborted."""
    here.dist.destroy_process_group()
    start(here, **({} if ON_CPU else {"device_id": here.device}))
    data = here.own()
    here.dist.all_reduce(data)
    here.same(data, sum(here.all()))
    if not ON_CPU:
        here.torch.cuda.synchronize()
    if here.backend == "kolo":
        here.dist.distributed_c10d._abort_process_group()
        assert not here.dist.is_initialized()


def start(here, **options):
    start.count += 1
    store = here.dist.PrefixStore(f"group {start.count}", here.store)
    here.dist.init_process_group(here.backend, store=store, rank=here.rank, world_size=here.size, timeout=timedelta(seconds=20), **options)


start.count = 0


def attempt(here, function):
    """Returns (outcome, result or reason) of a check on this rank."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    try:
        return "ok", function(here)
    except Skip as reason:
        return "skip", str(reason)
    except BaseException as error:
        traceback.print_exc()
        # The next check begins without what this one has left behind.
        here.dist.distributed_c10d._world.pg_coalesce_state.clear()
        return "FAIL", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        faulthandler.cancel_dump_traceback_later()


def everyones(here, key, outcome):
    """Returns the worst outcome of all ranks, which wait for each other without the group that is checked."""
    here.store.set(f"{key}/{here.rank}", json.dumps(outcome))
    here.store.wait([f"{key}/{rank}" for rank in range(here.size)], timedelta(seconds=LIMIT + 5))
    found = [json.loads(here.store.get(f"{key}/{rank}")) for rank in range(here.size)]
    wrong = [(rank, each) for rank, each in enumerate(found) if each[0] != "ok"]
    return ("ok", found) if not wrong else (wrong[0][1][0], f"rank {wrong[0][0]}: {wrong[0][1][1]}")


def main(pattern):
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not (ON_CPU or torch.cuda.is_available()):
        sys.exit("torch finds no GPU")
    # Device meshes choose the GPU by this number.
    os.environ["LOCAL_RANK"] = str(rank % max(1, torch.cuda.device_count()))
    torch.backends.cuda.matmul.allow_tf32 = False
    here, kolo = Place(torch, dist, rank, size), {}
    here.store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0, timedelta(seconds=40))
    stock = "gloo" if ON_CPU else "cpu:gloo,cuda:nccl"
    chosen = [function for function in CHECKS if re.search(pattern, function.__name__)]
    for backend in ("kolo", stock):
        here.backend, found = backend, {}
        start(here)
        for function in chosen:
            outcome = attempt(here, function)
            found[function] = everyones(here, f"{here.backend} {function.__name__}", outcome)
            if rank == 0:
                print(*lines(function.__name__, found[function], kolo.get(function)), sep="\n", flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()
        kolo = kolo or found
    gpu = "the CPU, beside Gloo" if ON_CPU else f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {torch.cuda.get_device_name()}"
    print(f"note torch {torch.__version__}, {gpu}", flush=True)


def lines(name, found, kolo):
    """Returns the lines about a check: over Kolo, if there is no earlier outcome over Kolo, else over torch's own backends."""
    outcome, result = found
    if kolo is None:
        return [f"{outcome} {name}" + ("" if outcome == "ok" else f": {result}")]
    if outcome == "FAIL":
        return [f"note {name}: torch's own backends: {result}"]
    if outcome == "ok" and kolo[0] == "ok" and result != kolo[1]:
        return [f"FAIL {name}: Kolo's result {kolo[1]} differs from {result} of torch's own backends"]
    return []


if __name__ == "__main__":
    main(sys.argv[1])
