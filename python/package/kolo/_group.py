"""Groups of processes and their collectives."""

import atexit
import os
import weakref

from . import _native
from ._arrays import BYTE, describe
from ._barrier import FIRST_TAG, barrier
from ._errors import InvalidCall, Timeout, whole

_OPERATIONS = {name: code for code, name in enumerate(_native.OPERATIONS)}
_REDUCTIONS = {name: code for code, name in enumerate(_native.REDUCTIONS)}

# Of sizes and colors.
_LARGEST = (1 << 32) - 1
# Groups that are left in order when the interpreter ends.
_open = weakref.WeakSet()


@atexit.register
def _leave_all():
    for group in list(_open):
        group.close(patience=2.0)
    _native.end_callbacks()


if hasattr(os, "register_at_fork"):
    # A forked process is no rank.
    os.register_at_fork(after_in_child=_open.clear)


class Group:
    """Processes that act together. All ranks make the same calls in the same order.

    Arrays are of any library that has `__array_interface__`, DLPack or the buffer protocol; they are
    contiguous and in host memory. Other Python threads run while a call waits. Nothing else may use the arrays.

    A failure is a `kolo.Error`. It names the operation, this rank and the rank at fault, and ends the group for all
    ranks, unless it is a `kolo.InvalidCall`. A signal whose handler raises, as Ctrl-C does, also ends the group.
    """

    def __init__(self, rank=None, size=None, address=None, *, token=None, timeout=None):
        """Forms the group of the launcher's environment (`kolo launch`, torchrun, mpirun, srun), or of one
        process without a launcher.

        With `rank`, `size` and `address` ("node0:29500", where rank 0 listens) it needs no launcher. Beyond
        loopback a job needs a `token` of at least 16 characters, the same on all ranks (or KOLO_TOKEN).
        `timeout` is the longest wait for other ranks, in seconds.
        """
        given = [rank is not None, size is not None, address is not None]
        if any(given) and not all(given):
            raise InvalidCall("Group: pass rank, size and address, or none of them")
        if all(given):
            size = whole("Group", "the size", size, 1, _LARGEST)
            rank = whole("Group", "the rank", rank, 0, size - 1)
            native = _native.NativeGroup.join(rank, size, address, token, timeout)
        elif token is not None:
            raise InvalidCall("Group: a token needs rank, size and address; the environment's is KOLO_TOKEN")
        else:
            native = _native.NativeGroup.from_env(timeout)
        self._begin(native)

    def _begin(self, native):
        self._native, self._barriers = native, 0
        self._rank, self._size = native.rank, native.size
        _open.add(self)

    @property
    def rank(self):
        """This process's number in the group, from 0."""
        return self._rank

    @property
    def size(self):
        """Number of processes."""
        return self._size

    @property
    def transport(self):
        """Name of the transport between the ranks: shm, tcp, shm+tcp or solo."""
        return self._native.transport

    @property
    def members(self):
        """The job's rank of each rank; errors name the job's ranks."""
        return self._native.members

    def __repr__(self):
        return f"<kolo.Group: rank {self._rank} of {self._size}, {self.transport}>"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self._native.abandon(f"it left by {kind.__name__}")
        self.close()

    # ---- collectives

    def all_reduce(self, data, op="sum"):
        """Combines `data` over all ranks, element by element and in place; returns it.

        `op` is sum, mean, max, min or product; band, bor or bxor for integers. Every rank gets the same
        bits, in every run. Integers wrap around. Sums of 16-bit floats are rounded once.
        """
        self._run("all_reduce", None, data, op)
        return data

    def reduce(self, data, op="sum", root=0):
        """Combines `data` over all ranks in the root's `data`; the others' stay as they are. Returns it."""
        self._run("reduce", None, data, op, root)
        return data

    def reduce_scatter(self, input, output, op="sum"):
        """Combines `input` over all ranks; rank r gets part r, of `size` parts, in `output`. Returns it."""
        self._run("reduce_scatter", input, output, op)
        return output

    def all_gather(self, input, output):
        """Gathers the inputs of all ranks in `output`, in rank order. Returns it."""
        self._run("all_gather", input, output)
        return output

    def broadcast(self, data, root=0):
        """Copies the root's `data` to every rank's `data`; returns it."""
        self._run("broadcast", None, data, root=root)
        return data

    def gather(self, input, output=None, root=0):
        """Gathers the inputs of all ranks in the root's `output`, in rank order. Returns it."""
        self._run("gather", input, output if self._rank == root else None, root=root)
        return output

    def scatter(self, input, output, root=0):
        """Copies part r of the root's `input` to rank r's `output`; other ranks pass None. Returns `output`."""
        self._run("scatter", input if self._rank == root else None, output, root=root)
        return output

    def all_to_all(self, input, output, send_counts=None, receive_counts=None):
        """Sends part r of `input` to rank r; `output` takes the parts received, in rank order. Returns it.

        Parts are equal, or have so many elements as the counts say for each rank.
        """
        place = self._place("all_to_all")
        source, target = describe(input, place), describe(output, place, writable=True)
        counts = []
        for array, given, name in [(source, send_counts, "input"), (target, receive_counts, "output")]:
            if given is None:
                if array.len % self._size:
                    raise InvalidCall(f"{place}: {array.len} elements of the {name} do not divide into {self._size} parts")
                given = [array.len // self._size] * self._size
            counts.append([whole(place, f"a count of the {name}", count, 0, array.len) for count in given])
        self._call("all_to_all", source, target, 0, 0, *counts)
        return output

    def barrier(self, timeout=None):
        """Returns when all ranks have called it. With a timeout, in seconds, it raises `kolo.Timeout` on all
        ranks that have called it, whose `missing` lists the others; the group stays usable."""
        if timeout is None:
            self._wait(self._native.run(_OPERATIONS["barrier"], BYTE, 0, 0, 0, 0, 0, 0))
        else:
            if not float(timeout) >= 0.0:
                raise InvalidCall(f"{self._place('barrier')}: the timeout is {timeout}; it must be a number of seconds from 0")
            self._barriers += 1
            barrier(self._native, self._barriers, float(timeout))

    def split(self, color, key=None):
        """Splits the group: ranks of one color form a group, ordered by key, else by rank. A rank whose color
        is None gets None. All ranks must call it."""
        place = self._place("split")
        color = None if color is None else whole(place, "the color", color, 0, _LARGEST)
        key = self._rank if key is None else whole(place, "the key", key, -1 << 63, (1 << 63) - 1)
        native = self._native.split(color, key)
        if native is None:
            return None
        group = Group.__new__(Group)
        group._begin(native)
        return group

    # ---- messages between two ranks, beside the collectives

    def send(self, data, to, tag=0):
        """Sends a message to a rank. Returns when `data` may change; the receiver need not have asked yet."""
        place = self._place("send")
        array, to = describe(data, place), whole(place, "the rank", to, 0, self._size - 1)
        self._native.send(array.address, array.nbytes, to, whole(place, "the tag", tag, 0, FIRST_TAG - 1))

    def receive(self, data, source=None, tag=0, timeout=None):
        """Receives the next message with a tag, of rank `source` or of any, in `data` of the same number of
        bytes. Returns the sender. Raises `kolo.Timeout` after `timeout` seconds; without one it waits until a
        message comes or the group fails."""
        place = self._place("receive")
        array = describe(data, place, writable=True)
        source = None if source is None else whole(place, "the source", source, 0, self._size - 1)
        message = self._native.receive(source, whole(place, "the tag", tag, 0, FIRST_TAG - 1))
        sender = message.wait(timeout)
        if sender is None:
            whom = "any rank" if source is None else f"rank {source}"
            error = Timeout(f"{place}: Timed out after {timeout:g} s: no message of {whom} has come")
            error.operation, error.rank, error.culprit = "receive", self._rank, source
            raise error
        message.copy_to(array.address, array.nbytes)
        return sender

    # ---- the end

    def close(self, patience=10.0):
        """Leaves the group. Other ranks that still wait for this one get an error."""
        _open.discard(self)
        self._native.close(patience)

    # ---- inside

    def _place(self, operation):
        return f"{operation} of rank {self._rank}"

    def _run(self, operation, input, output, op="sum", root=0):
        place = self._place(operation)
        reduction = _REDUCTIONS.get(op)
        if reduction is None:
            raise InvalidCall(f"{place}: the op is {op!r}; known are {', '.join(_REDUCTIONS)}")
        root = whole(place, "the root", root, 0, self._size - 1)
        source = None if input is None else describe(input, place)
        target = None if output is None else describe(output, place, writable=operation != "reduce" or root == self._rank)
        if source is None and target is None:
            raise InvalidCall(f"{place}: an array is missing")
        self._call(operation, source, target, reduction, root)

    def _call(self, operation, source, target, reduction, root, send=None, receive=None):
        if source is not None and target is not None and source.code != target.code:
            raise InvalidCall(f"{self._place(operation)}: the input is of {source.name} and the output of {target.name}")
        self._wait(self._native.run(
            _OPERATIONS[operation], (source or target).code, reduction, root,
            0 if source is None else source.address, 0 if source is None else source.len,
            0 if target is None else target.address, 0 if target is None else target.len,
            False, None, send, receive))

    @staticmethod
    def _wait(handle):
        if handle is not None:
            handle.wait()
