"""A process group of torch.distributed over a native group of Kolo.

Torch calls `group.all_reduce` and the like; here a call becomes codes and addresses of contiguous tensors. A call
that waits runs on its own thread. Others run one after another on the group's thread, which calls back for
futures only. Groups form by the store that torch gives to their members.
"""

import datetime
import functools
import os
import socket
import threading

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from .._arrays import BYTE, CODES
from .._barrier import FIRST_TAG, barrier
from .._errors import Error, InvalidCall, whole
from .._group import _OPERATIONS, _REDUCTIONS, _open
from . import _device_group
from ._described import Described
from ._device_group import by_device
from ._forming import Forming
from ._sparse import sum_sparse
from ._tensors import check, check_factor, check_written, contiguous, joined, writable
from ._work import ReceiveWork, Work, Works, backend_error, seconds

_DTYPES = {getattr(torch, name): code for name, code in CODES.items() if isinstance(getattr(torch, name, None), torch.dtype)}
_KINDS = ReduceOp.RedOpType
_OPS = {
    _KINDS.SUM: "sum", _KINDS.AVG: "mean", _KINDS.MAX: "max", _KINDS.MIN: "min", _KINDS.PRODUCT: "product",
    _KINDS.BAND: "band", _KINDS.BOR: "bor", _KINDS.BXOR: "bxor", _KINDS.PREMUL_SUM: "sum",
}
# Of a group that torch gives no timeout.
_DEFAULT_TIMEOUT = 1800.0


def _reduction(op):
    """Returns the code of a ReduceOp and the factor by which the inputs are multiplied before, or None."""
    kind = getattr(op, "op", op)
    for known, name in _OPS.items():
        if kind == known:
            factor = op.__getstate__()[1] if known == _KINDS.PREMUL_SUM else None
            return _REDUCTIONS[name], factor
    raise InvalidCall(f"kolo: the reduction {op} is not known")


def _listed(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _own_address():
    """Returns this host's address that the job's other hosts reach: KOLO_HOST, else the one that routes to MASTER_ADDR."""
    if host := os.environ.get("KOLO_HOST"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


class ProcessGroup(Described):
    """Kolo's collectives on CPU tensors of any type; strided ones are copied. Tensors on GPUs go to NCCL."""

    def __init__(self, store, rank, size, timeout, ranks=(), options=None):
        """`ranks` are the members' ranks in the job; `options` are those of NCCL."""
        super().__init__(store, rank, size)
        self._timeout = seconds(timeout) or _DEFAULT_TIMEOUT
        self._barriers, self._server = 0, None
        # The group of GPUs forms when it is needed; it takes the timeout in torch's form.
        self._devices, self._is_shut, self._forming = None, False, threading.Lock()
        self._of_devices = (timeout, list(ranks), _device_group.checked(options))
        self.forming = Forming(store, rank, size, ranks, self._timeout)
        try:
            if size > 1 and rank == 0:
                self._server = self.forming.serve(_own_address())
            self._native = self.forming.join()
        except Error as error:
            raise backend_error(error) from None
        _open.add(self)

    @property
    def transport(self):
        """Name of the transport between the ranks' host memory: shm, tcp, shm+tcp or solo."""
        return self._native.transport

    def __repr__(self):
        return f"<kolo.torch.ProcessGroup: rank {self._rank} of {self._size}>"

    # ---- GPUs

    def _get_backend(self, device):
        device = torch.device(device)
        return self.device_group("_get_backend")._get_backend(device) if device.type == "cuda" else self

    def device_group(self, operation):
        """Returns the group of GPUs, which forms at the first call."""
        with self._forming:
            reason = "the group is closed" if self._is_shut else _device_group.obstacle()
            if reason:
                raise InvalidCall(f"kolo: {operation} of rank {self._rank} on a GPU: {reason}")
            if self._devices is None:
                timeout, ranks, options = self._of_devices
                self._devices = _device_group.form(self, self._store, timeout, ranks, options)
            return self._devices

    def _start_coalescing(self, device):
        self.device_group("coalescing")._start_coalescing(device)

    def _end_coalescing(self, device):
        return self.device_group("coalescing")._end_coalescing(device)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing

    # ---- from tensors to the native group

    def _start(self, operation, options, value, source=None, target=None, *, op=None, root=0, counts=(None, None), after=None,
               keep=None):
        """Starts an operation on contiguous tensors of one type; `keep` lives as long as it runs."""
        self._sequence += 1
        sample = target if target is not None else source
        # Types that Kolo does not know are only moved, as bytes.
        code = BYTE if sample is None else _DTYPES.get(sample.dtype, BYTE)

        def place(tensor):
            if tensor is None:
                return 0, 0
            return tensor.data_ptr(), tensor.nbytes if code == BYTE else tensor.numel()

        if code == BYTE and op is not None:
            raise InvalidCall(f"{self._place(operation)}: sums of {sample.dtype} are not defined")
        scale = sample.element_size() if code == BYTE and sample is not None else 1
        send, receive = (None if part is None else [scale * count for count in part] for part in counts)
        try:
            handle = self._native.run(
                _OPERATIONS[operation], code, 0 if op is None else op, root, *place(source), *place(target),
                getattr(options, "asyncOp", True), (source, target, keep), send, receive)
        except Error as error:
            raise backend_error(error) from None
        work = Work(handle, value, after)
        if handle is None:
            work._finish()
        return work

    def _place(self, operation):
        return f"kolo: {operation} of rank {self._rank}"

    def _in_place(self, operation, tensor, options, value, op=None, root=0):
        check(self._place(operation), tensor)
        code, factor = (None, None) if op is None else _reduction(op)
        is_read_only = operation == "reduce" and self._rank != root
        memory, after = (contiguous(tensor), None) if is_read_only else writable(self._place(operation), tensor, filled=True)
        if factor is not None:
            check_factor(self._place(operation), memory)
            memory = memory * factor if is_read_only else memory.mul_(factor)
        return self._start(operation, options, value, target=memory, op=code, root=root, after=after)

    def _check_parts(self, operation, name, parts, single, tensor):
        """Refuses tensors for the ranks of which one has another number of elements than this rank's `single` one."""
        sizes = [part.numel() for part in parts]
        if sizes != [tensor.numel()] * self._size:
            raise InvalidCall(f"{self._place(operation)}: the {name} have {sizes} elements, and the {single} has {tensor.numel()}; pass "
                              f"{self._size} {name} of the {single}'s size, the same on all ranks (all_to_all takes uneven ones)")

    # ---- collectives

    @by_device
    def allreduce(self, tensors, opts=None, timeout=None, op=None):
        tensors = _listed(tensors)
        if opts is not None and not hasattr(opts, "reduceOp"):
            op, opts = opts, None
        if op is None:
            op = ReduceOp.SUM if opts is None else opts.reduceOp
        if tensors[0].layout is torch.sparse_coo:
            if op != ReduceOp.SUM:
                raise InvalidCall(f"{self._place('all_reduce')}: sparse tensors are summed only")
            sum_sparse(self, tensors[0])
            return Work(None, tensors)
        works = [self._in_place("all_reduce", tensor, opts, tensors, op) for tensor in tensors]
        return works[0] if len(works) == 1 else Works(works, tensors)

    @by_device
    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    @by_device
    def broadcast(self, tensors, opts=None, timeout=None, **_):
        tensors = _listed(tensors)
        root = opts.rootRank if hasattr(opts, "rootRank") else opts or 0
        return self._in_place("broadcast", tensors[0], opts if hasattr(opts, "rootRank") else None, tensors, root=root)

    @by_device
    def reduce(self, tensors, opts=None, op=None, timeout=None, **_):
        tensors = _listed(tensors)
        return self._in_place("reduce", tensors[0], opts, tensors, opts.reduceOp, opts.rootRank)

    @by_device
    def allgather(self, outputs, inputs, opts=None, timeout=None):
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        if len(inputs) != 1 or len(outputs) != 1 or len(outputs[0]) != self._size:
            raise InvalidCall(f"{self._place('all_gather')}: pass one input, and one output for each of {self._size} ranks")
        parts = outputs[0]
        check(self._place("all_gather"), inputs[0], *parts)
        check_written(self._place("all_gather"), *parts)
        source = contiguous(inputs[0])
        self._check_parts("all_gather", "outputs", parts, "input", source)
        memory = torch.empty((self._size, *source.shape), dtype=source.dtype)

        def after():
            for part, gathered in zip(parts, memory):
                part.copy_(gathered.view(part.shape))

        return self._start("all_gather", opts, outputs, source, memory, after=after)

    @by_device
    def _allgather_base(self, output, input, opts=None):
        check(self._place("all_gather"), output, input)
        if output.numel() != input.numel() * self._size:
            raise InvalidCall(f"{self._place('all_gather')}: output tensor size must be equal to world_size times input tensor "
                              f"size; they have {output.numel()} and {input.numel()} elements")
        source = contiguous(input)
        memory, after = writable(self._place("all_gather"), output, filled=False)
        return self._start("all_gather", opts, [output], source, memory, after=after)

    all_gather_single = _allgather_base

    @by_device
    def allgather_coalesced(self, outputs, inputs, opts=None):
        # outputs[r] takes what rank r gives, one tensor for each input.
        parts = zip(zip(*outputs), inputs)
        return Works([self.allgather([list(part)], [tensor], opts) for part, tensor in parts], outputs)

    @by_device
    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return Works([self._allgather_base(*pair, opts) for pair in zip(outputs, inputs)], outputs)

    @by_device
    def gather(self, outputs, inputs, opts=None, timeout=None):
        root = opts.rootRank
        check(self._place("gather"), inputs[0])
        source = contiguous(inputs[0])
        if self._rank != root:
            return self._start("gather", opts, outputs, source, root=root)
        parts = outputs[0]
        check(self._place("gather"), source, *parts)
        check_written(self._place("gather"), *parts)
        self._check_parts("gather", "outputs", parts, "input", source)
        memory = torch.empty((self._size, *source.shape), dtype=source.dtype)

        def after():
            for part, gathered in zip(parts, memory):
                part.copy_(gathered.view(part.shape))

        return self._start("gather", opts, outputs, source, memory, root=root, after=after)

    @by_device
    def scatter(self, outputs, inputs, opts=None, timeout=None):
        root, source = opts.rootRank, None
        check(self._place("scatter"), outputs[0])
        if self._rank == root:
            parts = inputs[0]
            check(self._place("scatter"), outputs[0], *parts)
            self._check_parts("scatter", "inputs", parts, "output", outputs[0])
            source = joined(parts)
        memory, after = writable(self._place("scatter"), outputs[0], filled=False)
        return self._start("scatter", opts, outputs, source, memory, root=root, after=after)

    @by_device
    def _reduce_scatter_base(self, output, input, opts=None):
        check(self._place("reduce_scatter"), output, input)
        if input.numel() != output.numel() * self._size:
            raise InvalidCall(f"{self._place('reduce_scatter')}: input tensor must be the same size as output size times world "
                              f"size; they have {input.numel()} and {output.numel()} elements")
        op, factor = _reduction(ReduceOp.SUM if opts is None else opts.reduceOp)
        source = contiguous(input)
        if factor is not None:
            check_factor(self._place("reduce_scatter"), source)
            source = source * factor
        memory, after = writable(self._place("reduce_scatter"), output, filled=False)
        return self._start("reduce_scatter", opts, [output], source, memory, op=op, after=after)

    reduce_scatter_single = _reduce_scatter_base

    @by_device
    def reduce_scatter(self, outputs, inputs, opts=None, timeout=None, op=None):
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        output, parts = outputs[0], inputs[0]
        check(self._place("reduce_scatter"), output, *parts)
        if len(parts) != self._size or parts[self._rank].numel() != output.numel():
            raise InvalidCall(f"{self._place('reduce_scatter')}: pass one input for each of {self._size} ranks, the own one of the "
                              "output's size")
        everything = joined(parts)
        if all(part.numel() == output.numel() for part in parts):
            work = self._reduce_scatter_base(output, everything, opts)
            work._value = outputs
            return work
        # Parts of different lengths: everything is reduced, and every rank takes its own part.
        check_written(self._place("reduce_scatter"), output)
        part = everything.split([part.numel() for part in parts])[self._rank].view(output.shape)
        code, factor = _reduction(opts.reduceOp)
        if factor is not None:
            check_factor(self._place("reduce_scatter"), everything)
            everything.mul_(factor)
        return self._start("all_reduce", opts, outputs, target=everything, op=code, after=lambda: output.copy_(part))

    @by_device
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        return Works([self._reduce_scatter_base(*pair, opts) for pair in zip(outputs, inputs)], outputs)

    @by_device
    def alltoall_base(self, output, input, output_split_sizes=None, input_split_sizes=None, opts=None, **_):
        check(self._place("all_to_all"), output, input)
        send, receive = self._counts(input, input_split_sizes), self._counts(output, output_split_sizes)
        source = contiguous(input)
        memory, after = writable(self._place("all_to_all"), output, filled=False)
        return self._start("all_to_all", opts, [output], source, memory, counts=(send, receive), after=after)

    all_to_all_single = alltoall_base

    def _counts(self, tensor, splits):
        """Returns the elements for each rank, of a tensor that is split along its first dimension."""
        rows, place = tensor.shape[0] if tensor.dim() else 0, self._place("all_to_all")
        if not splits:
            if rows % self._size or not tensor.dim():
                raise InvalidCall(f"{place}: Tensor's dim 0 does not divide equally across group size: {list(tensor.shape)} "
                                  f"among {self._size} ranks")
            return [tensor.numel() // self._size] * self._size
        if len(splits) != self._size:
            raise InvalidCall(f"{place}: Number of tensor splits not equal to group size: {len(splits)} for {self._size} ranks")
        if sum(splits) != rows or min(splits) < 0:
            raise InvalidCall(f"{place}: Split sizes doesn't match total dim 0 size: {list(splits)} of {rows} rows")
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    @by_device
    def alltoall(self, outputs, inputs, opts=None):
        check(self._place("all_to_all"), *outputs, *inputs)
        if len(outputs) != self._size or len(inputs) != self._size:
            raise InvalidCall(f"{self._place('all_to_all')}: pass one input and one output for each of {self._size} ranks")
        check_written(self._place("all_to_all"), *outputs)
        source = joined(inputs)
        counts = [tensor.numel() for tensor in outputs]
        memory = torch.empty(sum(counts), dtype=outputs[0].dtype)

        def after():
            for output, part in zip(outputs, memory.split(counts)):
                output.copy_(part.view(output.shape))

        return self._start("all_to_all", opts, outputs, source, memory, counts=([tensor.numel() for tensor in inputs], counts), after=after)

    def barrier(self, opts=None, timeout=None, **_):
        device = getattr(opts, "device", None)
        if device is not None and device.type == "cuda":
            return self.device_group("barrier").barrier(opts)
        return self._start("barrier", opts, [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """See `kolo.torch.monitored_barrier`."""
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        # No time at all is a limit, too; torch's own default is below 0.
        limit = self._timeout if timeout is None or timeout < 0 else timeout
        self._barriers += 1
        try:
            barrier(self._native, self._barriers, limit, wait_all_ranks)
        except Error as error:
            raise backend_error(error) from None

    # ---- sums over shards

    def tree_sum(self, rows, shares):
        """Starts the sum of all ranks' rows in the order of the shards' tree; it replaces row 0. A row is the sum of
        one node of the tree, and `shares` are the numbers of shards of all ranks."""
        return self._start("tree_sum", None, [rows], target=rows, counts=(shares, None))

    def broadcast_from(self, tensor, root):
        """Copies the tensor of a rank of this group to all, through the host's memory."""
        on_host = tensor.cpu()
        memory, after = writable(self._place("broadcast"), on_host, filled=True)
        self._start("broadcast", None, [tensor], target=memory, root=root, after=after).wait()
        if on_host is not tensor:
            tensor.copy_(on_host)

    # ---- messages

    @by_device
    def send(self, tensors, dstRank, tag=0):
        check(self._place("send"), tensors[0])
        source, to = contiguous(tensors[0]), whole(self._place("send"), "the rank", dstRank, 0, self._size - 1)
        try:
            self._native.send(source.data_ptr(), source.nbytes, to, self._tag("send", tag))
        except Error as error:
            raise backend_error(error) from None
        return Work(None, tensors)

    @by_device
    def recv(self, tensors, srcRank, tag=0):
        check(self._place("recv"), tensors[0])
        check_written(self._place("recv"), tensors[0])
        if srcRank is not None:
            srcRank = whole(self._place("recv"), "the rank", srcRank, 0, self._size - 1)
        try:
            message = self._native.receive(srcRank, self._tag("recv", tag))
        except Error as error:
            raise backend_error(error) from None
        return ReceiveWork(message, tensors[0], srcRank, self._timeout, lambda: self._is_shut)

    def _tag(self, operation, tag):
        # Larger ones are those of barriers.
        return whole(self._place(operation), "the tag", tag, 0, FIRST_TAG - 1)

    @by_device
    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, None, tag)

    # ---- the end

    def abort(self):
        self._native.abandon("it aborted the group")
        if self._devices is not None:
            self._devices.abort()

    def shutdown(self):
        self._is_shut = True
        try:
            if self._devices is not None:
                self._devices.shutdown()
        finally:
            self.close()

    def close(self, patience=10.0):
        self._is_shut = True
        _open.discard(self)
        try:
            self._native.close(patience)
        finally:
            server, self._server = self._server, None
            if server is not None:
                server.close(10.0)


def _unrecorded(attach):
    """Returns the function of newer versions that has torch record a group's operations, without Kolo's groups: torch's
    recorder knows groups of its own backends only, and fails for one that takes the place of torch's group."""

    @functools.wraps(attach)
    def attach_to_others(group, *arguments, **named):
        return None if isinstance(group, ProcessGroup) else attach(group, *arguments, **named)

    return attach_to_others


dist.batch_isend_irecv = dist.distributed_c10d.batch_isend_irecv = _device_group.batches(dist.batch_isend_irecv, ProcessGroup)
if hasattr(dist.distributed_c10d, "_maybe_attach_flight_recorder"):
    dist.distributed_c10d._maybe_attach_flight_recorder = _unrecorded(dist.distributed_c10d._maybe_attach_flight_recorder)
