"""Exceptions of groups, which the native module raises by these names."""


class Error(RuntimeError):
    """A group's operation failed. `operation` names it, `rank` is this process's, `culprit` the rank at fault."""

    operation = None
    rank = None
    culprit = None


class InvalidCall(Error, ValueError):
    """The arguments are wrong. Nothing was sent, and the group stays usable."""


class Timeout(Error, TimeoutError):
    """A rank did not take part in time; `missing` lists the ranks, if a barrier knows them."""

    missing = ()
