"""Address, length and type of an array, of whatever library."""

import ctypes
import math
import re

from ._errors import InvalidCall, whole
from ._native import ELEMENTS, SharedMemory, from_dlpack

CODES = {name: code for code, (name, _) in enumerate(ELEMENTS)}
SIZES = [size for _, size in ELEMENTS]
BYTE = CODES["byte"]
# Number of bytes that memory may have.
_LONGEST = (1 << 63) - 1

_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
_FORMATS = {"?": "bool", "e": "float16", "f": "float32", "d": "float64"}
_FORMATS.update({format: f"int{8 * ctypes.sizeof(kind)}" for format, kind in [
    ("b", ctypes.c_byte), ("h", ctypes.c_short), ("i", ctypes.c_int), ("l", ctypes.c_long), ("q", ctypes.c_longlong)]})
_FORMATS.update({format.upper(): f"u{name}" for format, name in list(_FORMATS.items()) if name.startswith("int")})


class Array:
    """Memory of an array, which it keeps alive: `address`, number of elements `len`, `code` of the type."""

    __slots__ = ("address", "len", "code", "name", "keep")

    def __init__(self, address, len, name, keep):
        self.address, self.len, self.name, self.keep = address, len, name, keep
        self.code = CODES.get(name)

    @property
    def nbytes(self):
        return self.len * SIZES[self.code]


def _refuse(place, what):
    raise InvalidCall(f"{place}: {what}")


def describe(array, place, writable=False):
    """Returns the `Array` of an object; `place` (operation and rank) begins the message of an error."""
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        found = _of_interface(array, interface, place, writable)
    elif hasattr(array, "__dlpack__"):
        found = _of_dlpack(array, place)
    else:
        found = _of_buffer(array, place, writable)
    if found.code is None:
        _refuse(place, f"an array of {found.name}, which Kolo does not carry; convert it first")
    return found


def _of_interface(array, interface, place, writable):
    address, read_only = interface["data"]
    if writable and read_only:
        _refuse(place, "the array is read-only, and the result is written to it")
    typestr, shape = interface["typestr"], interface["shape"]
    if typestr[0] == ">":
        _refuse(place, f"the array has the byte order of another machine ({typestr}); use newbyteorder first")
    # Dates have a unit behind their size.
    kind, bits = typestr[1], 8 * int(re.match(r"\d*", typestr[2:]).group() or 0)
    name = "bool" if kind == "b" else f"{_KINDS[kind]}{bits}" if kind in _KINDS else "object" if kind == "O" else str(
        getattr(array, "dtype", typestr))
    count = 1
    for length in shape:
        count *= length
    # `strides` is None if the array is contiguous in the order of C.
    if interface.get("strides") is not None and count:
        expected = bits // 8
        for length, stride in zip(reversed(shape), reversed(interface["strides"])):
            if length != 1 and stride != expected:
                _refuse(place, "the array is not contiguous; pass numpy.ascontiguousarray(array)")
            expected *= length
    return Array(address, count, name, array)


def _of_dlpack(array, place):
    if getattr(array, "requires_grad", False):
        array = array.detach()
    # torch negates some tensors only when they are read.
    if getattr(array, "is_neg", bool)():
        _refuse(place, "the array's values are not in its memory; pass tensor.resolve_neg()")
    try:
        capsule = array.__dlpack__()
        address, count, name, contiguous = from_dlpack(capsule)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        _refuse(place, f"the array cannot be shared by DLPack: {error}")
    if not contiguous:
        _refuse(place, "the array is not contiguous; copy it to a contiguous one")
    return Array(address, count, name, (array, capsule))


def _of_buffer(array, place, writable):
    try:
        view = memoryview(array)
    except TypeError:
        _refuse(place, f"{type(array).__name__} has neither __array_interface__ nor DLPack nor the buffer protocol")
    if not view.c_contiguous:
        _refuse(place, "the buffer is not contiguous")
    name = _FORMATS.get(view.format.lstrip("@="), view.format)
    if not view.nbytes:
        return Array(0, 0, name, array)
    if view.readonly:
        if writable:
            _refuse(place, "the buffer is read-only, and the result is written to it")
        view = memoryview(bytearray(view)).cast("B")
    memory = (ctypes.c_char * view.nbytes).from_buffer(view)
    return Array(ctypes.addressof(memory), view.nbytes // memoryview(array).itemsize, name, memory)


def empty(shape, dtype="float32"):
    """Returns a numpy array of any values in memory that Kolo shares: other ranks on this host read it in place, so
    collectives on it, or on parts of it, copy less. It may outlive groups. A forked process shares it, too."""
    import numpy

    kind, lengths = numpy.dtype(dtype), shape if isinstance(shape, (tuple, list)) else [shape]
    if kind.hasobject:
        _refuse("empty", f"an array of {kind}, whose elements are not in the array's memory")
    shape = [whole("empty", "a length", length, 0, _LONGEST) for length in lengths]
    if math.prod(shape) * kind.itemsize > _LONGEST:
        _refuse("empty", f"an array of {shape} elements of {kind} is too large")
    return numpy.asarray(SharedMemory(math.prod(shape) * kind.itemsize)).view(kind).reshape(shape)
