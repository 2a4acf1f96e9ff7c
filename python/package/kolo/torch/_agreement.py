"""Settings that all ranks must share."""

import os

import torch
import torch.distributed as dist

from .._errors import InvalidCall


def settings(device):
    """Returns what decides the bits of torch's kernels on a device, by name."""
    facts = {
        "the type of the module's device": device.type,
        "torch's version": torch.__version__,
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.backends.mkldnn.enabled": torch.backends.mkldnn.enabled,
        "the processor's vector instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if device.type == "cuda":
        facts |= {
            "the GPU": torch.cuda.get_device_name(device),
            "the version of CUDA": torch.version.cuda,
            "torch.backends.cudnn.version()": torch.backends.cudnn.version(),
            "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
            "the environment's CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        }
    return facts


def tensors(module):
    """Returns the form of each parameter and buffer, by name."""
    found = {}
    for kind, named in [("parameter", module.named_parameters()), ("buffer", module.named_buffers())]:
        for name, tensor in named:
            form = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} with strides {list(tensor.stride())}"
            found[f"{kind} {name}"] = form + ("" if tensor.requires_grad or kind == "buffer" else ", frozen")
    return found


def agree(group, place, facts):
    """Raises the same error on all ranks, with both values and their ranks, if the facts differ."""
    if group is None or group.size() == 1:
        return
    everyone = [None] * group.size()
    dist.all_gather_object(everyone, facts, group=group)
    for rank, other in enumerate(everyone):
        for field in [*everyone[0], *(field for field in other if field not in everyone[0])]:
            first, second = everyone[0].get(field, "missing"), other.get(field, "missing")
            if first != second:
                error = InvalidCall(f"{place}: {field} is {first} on rank 0 and {second} on rank {rank}; "
                                    "all ranks need the same")
                error.operation, error.rank, error.culprit = place, group.rank(), rank
                raise error
