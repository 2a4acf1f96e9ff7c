"""Tensors as memory: what an operation may read and write, and what it refuses. `place` (operation and rank) begins the
message of an error."""

import importlib.util
import math

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .._arrays import empty as array
from .._errors import InvalidCall

# Types of tensors that have memory of their own.
_PLAIN = (torch.Tensor, torch.nn.Parameter)

# numpy makes the arrays of shared memory.
HAS_NUMPY = importlib.util.find_spec("numpy") is not None


def empty(*size, dtype=None):
    """Returns a tensor as `torch.empty` does, in memory that Kolo shares: see `kolo.empty`."""
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    dtype = dtype or torch.get_default_dtype()
    return torch.from_numpy(array(math.prod(size) * dtype.itemsize, "uint8")).view(dtype).view(size)


def check(place, *tensors):
    """Refuses tensors that are not dense, of one type and in the host's memory."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise InvalidCall(f"{place}: a tensor of {tensor.layout}; only a sum takes sparse ones, so pass a dense one "
                              "(tensor.to_dense())")
        if type(tensor) not in _PLAIN and is_traceable_wrapper_subclass(tensor.detach()):
            raise InvalidCall(f"{place}: a {type(tensor).__name__}, which consists of other tensors; pass these "
                              "(to_local() of a DTensor)")
        if tensor.device.type != "cpu":
            raise InvalidCall(f"{place}: a tensor on {tensor.device}; all must be on the CPU, or all on a CUDA device")
        if tensor.dtype is not tensors[0].dtype:
            raise InvalidCall(f"{place}: Invalid usage of tensors with different dtypes, {tensors[0].dtype} and {tensor.dtype}")


def check_written(place, *tensors):
    """Refuses results of which several elements are one place in memory, such as those of `expand`."""
    for tensor in tensors:
        if not tensor.is_contiguous() and torch._debug_has_internal_overlap(tensor) == 1:
            raise InvalidCall(f"{place}: the result goes to a tensor with several elements in one place; pass a copy "
                              "(tensor.clone())")


def check_factor(place, tensor):
    """Refuses a sum with factors of numbers that have none."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise InvalidCall(f"{place}: PREMUL_SUM of {tensor.dtype}; only floats have factors")


def has_its_values(tensor):
    """Returns true if a tensor's memory is contiguous and holds its values: torch conjugates and negates some only when
    they are read."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def contiguous(tensor):
    """Returns a tensor's contiguous memory to read."""
    tensor = tensor.detach()
    return tensor if has_its_values(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def joined(tensors):
    """Returns the elements of some tensors in new memory, one tensor behind another."""
    return torch.cat([tensor.detach().resolve_conj().resolve_neg().reshape(-1) for tensor in tensors])


def writable(place, tensor, filled):
    """Returns contiguous memory for a result, and the function that copies it to the tensor, or None."""
    tensor = tensor.detach()
    if has_its_values(tensor):
        return tensor, None
    check_written(place, tensor)
    memory = torch.empty(tensor.shape, dtype=tensor.dtype)
    if filled:
        memory.copy_(tensor)
    return memory, lambda: tensor.copy_(memory)


def writing(tensor):
    """Returns the context in which any thread may write a tensor: that of inference mode for tensors that were made in it."""
    return torch.inference_mode() if tensor is not None and tensor.is_inference() else torch.no_grad()
