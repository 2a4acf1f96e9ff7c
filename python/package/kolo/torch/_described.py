"""What torch asks of a group besides operations, by the names of several versions."""

import torch
import torch.distributed as dist

from . import _device_group
from ._tensors import HAS_NUMPY, empty


class Described(dist.ProcessGroup):
    """A group of torch's with its place, names, abilities and settings."""

    def __init__(self, store, rank, size):
        # The base class with a store cannot be made from a subclass.
        super().__init__(rank, size)
        self._rank, self._size, self._store = rank, size, store
        self._group_name, self._description, self._sequence = "", "undefined", 0

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return "kolo"

    def get_group_store(self):
        return self._store

    def setGroupName(self, name):
        self._group_name = name

    def setGroupDesc(self, description):
        self._description = description

    getRank, getSize, getBackendName, _get_backend_name = rank, size, name, name
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    @property
    def group_name(self):
        return self._group_name

    pg_name = group_name

    @property
    def group_desc(self):
        return self._description

    def getGroupName(self):
        return self._group_name

    def getGroupDesc(self):
        return self._description

    @property
    def _device_types(self):
        return [torch.device(kind) for kind in (["cpu"] if _device_group.obstacle() else ["cpu", "cuda"])]

    @property
    def options(self):
        return None

    @property
    def supports_splitting(self):
        # torch splits groups with an accelerator only; `new_group` forms one by its members alone.
        return False

    def supports_tensor_alloc(self, device):
        return HAS_NUMPY and torch.device(device).type == "cpu" and "shm" in self.transport

    def allocate_tensor(self, size, dtype=None, device=None):
        return empty(size, dtype=dtype)

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._sequence

    def set_timeout(self, timeout):
        pass

    _set_default_timeout = set_timeout

    def _verify_work_timeout(self, *_):
        return True

    def _has_hooks(self):
        return False
