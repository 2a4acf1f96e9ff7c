"""Tensors on GPUs: a group of torch's NCCL within Kolo's group, which forms when the first such tensor comes.

It is a stock group of torch.distributed with the same ranks and store. So an operation on a GPU does what it does
with `backend="cpu:gloo,cuda:nccl"`.
"""

import functools

import torch
import torch.distributed as dist

from .._errors import InvalidCall


@functools.cache
def obstacle():
    """Returns the reason that this process has no group of GPUs, or None."""
    if not torch.cuda.is_available():
        return "torch finds no GPU on this machine"
    if not dist.is_nccl_available():
        return "this build of torch has no NCCL"
    return None


def is_on_gpu(tensor):
    return tensor.device.type == "cuda"


def checked(options):
    """Returns `pg_options`, which are those of NCCL or None."""
    if options is not None and not (dist.is_nccl_available() and isinstance(options, dist.ProcessGroupNCCL.Options)):
        raise InvalidCall(f"kolo: pg_options is of {type(options).__module__}.{type(options).__qualname__}; this backend takes "
                          "ProcessGroupNCCL.Options, for tensors on GPUs")
    return options


def form(group, store, timeout, ranks, options):
    """Forms the group of GPUs with the ranks of `group`, whose names it takes. No rank waits for another here."""
    options = dist.ProcessGroupNCCL.Options() if options is None else options
    options._timeout, options.global_ranks_in_group, options.group_name = timeout, ranks, group.group_name
    store = dist.PrefixStore("cuda/", store)
    backend = dist.ProcessGroupNCCL(store, group.rank(), group.size(), options)
    backend._set_sequence_number_for_group()
    return stock_group(group, store, dist.ProcessGroup.BackendType.NCCL, backend)


def stock_group(group, store, kind, backend):
    """Returns a group of torch.distributed over one backend."""
    made = dist.ProcessGroup(store, group.rank(), group.size())
    made._set_default_backend(kind)
    made._register_backend(torch.device("cuda"), kind, backend)
    made._set_group_name(group.group_name)
    made._set_group_desc(group.group_desc)
    return made


def first_tensor(values):
    """Returns the first tensor of arguments that may be lists of tensors, or lists of lists; None without one."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := first_tensor(value)) is not None:
            return found
    return None


def by_device(method):
    """Makes an operation of Kolo's group hand tensors on GPUs to its group of GPUs."""
    name = method.__name__

    @functools.wraps(method)
    def operation(self, *arguments, **named):
        tensor = first_tensor(arguments or named.values())
        if tensor is not None and is_on_gpu(tensor):
            return getattr(self.device_group(name), name)(*arguments, **named)
        return method(self, *arguments, **named)

    return operation


def batches(stock, kind):
    """Returns `torch.distributed.batch_isend_irecv` for groups of a kind as well. The stock function starts messages
    on GPUs one after another in groups of other types, so two ranks that send to each other would wait forever."""

    @functools.wraps(stock)
    def batch_isend_irecv(p2p_op_list):
        first = p2p_op_list[0] if p2p_op_list else None
        if not (isinstance(first, dist.P2POp) and isinstance(first.group, kind) and is_on_gpu(first.tensor)):
            return stock(p2p_op_list)
        dist.distributed_c10d._check_p2p_op_list(p2p_op_list)
        group, device = first.group.device_group("batch_isend_irecv"), first.tensor.device
        group._start_coalescing(device)
        for op in p2p_op_list:
            tensor = torch.view_as_real(op.tensor) if op.tensor.is_complex() else op.tensor
            start = group.send if op.op is dist.isend else group.recv
            start([tensor], op.group_peer, op.tag)
        return [group._end_coalescing(device)]

    return batch_isend_irecv
