"""Exact collectives between processes: groups over the memory of numpy, PyTorch and others.

    import kolo, numpy
    group = kolo.Group()              # as `kolo launch`, torchrun, mpirun or srun has started this process
    data = numpy.ones(4, "float32")
    group.all_reduce(data)            # on every rank: the number of ranks
"""

from ._arrays import empty
from ._errors import Error, InvalidCall, Timeout
from ._group import Group

__all__ = ["Error", "Group", "InvalidCall", "Timeout", "empty"]
__version__ = "0.1.0"
