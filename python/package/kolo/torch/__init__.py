"""Kolo as a backend of torch.distributed for CPU tensors: `torch.distributed.init_process_group("kolo")`."""

from .._autoload import register
from ._process_group import ProcessGroup
from ._work import Work

__all__ = ["ProcessGroup", "Work", "monitored_barrier"]

register()


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Does what `torch.distributed.monitored_barrier` does, which takes groups of Gloo only. Every rank that
    arrives learns which ranks are missing; the group stays usable."""
    import torch.distributed as dist

    (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks)
