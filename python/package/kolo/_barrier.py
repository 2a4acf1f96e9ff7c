"""A barrier by messages, which knows all ranks that are missing, and leaves the group usable."""

import struct
import time

from ._errors import Timeout

# Tags of the group's own messages; those of users are below.
FIRST_TAG = 1 << 63
# Seconds that rank 0's verdict may take beyond the timeout.
_GRACE = 10.0


def barrier(group, sequence, timeout, find_all=True):
    """Returns when all ranks have called it, else raises `Timeout` on every rank that has, with the missing
    ranks. Unless `find_all`, the search ends with the first one. `group` is the native group."""
    rank, size, tag = group.rank, group.size, FIRST_TAG | sequence
    until = time.monotonic() + timeout
    if rank != 0:
        group.send(0, 0, 0, tag)
        verdict = group.receive(0, tag)
        if verdict.wait(timeout + _GRACE) is None:
            raise _missing(group, [0], timeout)
        text = bytes(verdict.bytes())
        missing = list(struct.unpack(f"<{len(text) // 8}q", text))
    else:
        arrivals, missing = [(other, group.receive(other, tag)) for other in range(1, size)], []
        for other, arrival in arrivals:
            if arrival.wait(max(0.0, until - time.monotonic())) is None:
                missing.append(other)
                if not find_all:
                    break
        text = bytearray(struct.pack(f"<{len(missing)}q", *missing))
        for other in range(1, size):
            _send(group, text, other, tag)
    if missing:
        raise _missing(group, missing, timeout)


def _send(group, text, to, tag):
    import ctypes

    memory = (ctypes.c_char * len(text)).from_buffer(text) if text else None
    group.send(ctypes.addressof(memory) if text else 0, len(text), to, tag)


def _missing(group, missing, timeout):
    names = ", ".join(str(rank) for rank in missing)
    error = Timeout(f"barrier of rank {group.rank}: Timed out after {timeout:g} s: rank{'s' * (len(missing) > 1)} {names} "
                    "did not arrive")
    error.operation, error.rank, error.culprit, error.missing = "barrier", group.rank, missing[0], tuple(missing)
    return error
