"""Exceptions of groups, which the native module raises by these names."""

import operator


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


def whole(place, name, number, least, most):
    """Returns a number as an int; `place` (operation and rank) begins the message if it is no whole number in range."""
    try:
        index = operator.index(number)
    except TypeError:
        index = None
    if index is None or not least <= index <= most:
        raise InvalidCall(f"{place}: {name} is {number!r}; it must be a whole number from {least} to {most}")
    return index
