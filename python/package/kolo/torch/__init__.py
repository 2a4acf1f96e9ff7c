"""Kolo for PyTorch on CPUs: a backend, `torch.distributed.init_process_group("kolo")`, and data-parallel training whose
weights have the same bits for any number of processes."""

from .._autoload import register
from ._data_parallel import DistributedDataParallel
from ._process_group import ProcessGroup
from ._sampler import ShardSampler
from ._tensors import empty
from ._work import Work

__all__ = ["DistributedDataParallel", "ProcessGroup", "ShardSampler", "Work", "empty", "monitored_barrier"]

register()


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Does what `torch.distributed.monitored_barrier` does, which takes groups of Gloo only. Every rank that
    arrives learns which ranks are missing; the group stays usable."""
    import torch.distributed as dist

    (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks)
