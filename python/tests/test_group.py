"""Groups over numpy arrays, each result beside the number that numpy works out."""

import array
import functools
import math
import os
import random
import signal
import sys
import time
import unittest

import numpy as np

import kolo
from tests.processes import run

TYPES = ["float32", "float64", "int32", "int64", "uint8", "float16", "int8", "int16", "uint16", "uint32", "uint64", "bool",
         "complex64", "complex128"]
FOLDS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "product": np.multiply, "band": np.bitwise_and,
         "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def data_of(rank, step, length, kind):
    """The data of a rank in a step: small whole numbers, whose sums and products are exact in every type."""
    numbers = np.random.default_rng([step, rank]).integers(1, 4, length)
    return numbers.astype(kind) if kind != "bool" else numbers > 2


def combined(parts, op):
    """What numpy makes of the data of all ranks."""
    kind = parts[0].dtype
    if op == "mean":
        total = functools.reduce(np.add, [part.astype("int64" if kind.kind in "iu" else kind) for part in parts])
        return (total // len(parts) if kind.kind in "iu" else total / len(parts)).astype(kind)
    return functools.reduce(FOLDS[op], parts)


def is_defined(kind, op):
    """Whether a reduction has a meaning for a type."""
    kind = np.dtype(kind).kind
    return not (op in ("band", "bor", "bxor") and kind in "fc" or op in ("max", "min") and kind == "c" or op == "mean" and kind == "b")


def equal(got, expected, what):
    if got.dtype.kind == "f" and got.dtype.itemsize < 8 or got.dtype.kind == "c":
        np.testing.assert_allclose(got, expected, rtol=1e-3 if got.dtype.itemsize == 2 else 1e-6, err_msg=what)
    else:
        np.testing.assert_array_equal(got, expected, err_msg=what)


def placed(array, dice):
    """The array, or a copy of it in the middle of memory that Kolo shares; ranks may choose differently."""
    if dice.random() < 0.5:
        return array
    shared = kolo.empty(array.size + 5, array.dtype)[3 : array.size + 3]
    shared[:] = array
    return shared


def one_operation(group, step, members):
    """A random operation of a group, the same on all of its ranks, and its comparison with numpy."""
    dice, size, rank = random.Random(step * 1000 + len(members)), group.size, group.rank
    kind, length, root = dice.choice(TYPES), dice.choice([0, 1, 7, 100, 3000]), dice.randrange(size)
    op = dice.choice([op for op in [*FOLDS, "mean"] if is_defined(kind, op)])
    name = dice.choice(["all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "gather", "scatter", "all_to_all"])
    whole = length * size if name in ("reduce_scatter", "scatter", "all_to_all") else length
    parts = [data_of(member, step, whole, kind) for member in members]
    own, what = parts[rank].copy(), f"step {step}: {name} {op} of {length} {kind} on {members}"
    own_dice = random.Random(step * 100 + rank)
    own, one, all_ = (placed(array, own_dice) for array in (own, np.zeros(length, kind), np.zeros(length * size, kind)))
    mine = slice(rank * length, (rank + 1) * length)
    if name == "all_reduce":
        equal(group.all_reduce(own, op), combined(parts, op), what)
    elif name == "reduce":
        equal(group.reduce(own, op, root), combined(parts, op) if rank == root else parts[rank], what)
    elif name == "reduce_scatter":
        equal(group.reduce_scatter(own, one, op), combined(parts, op)[mine], what)
        equal(own, parts[rank], what)
    elif name == "all_gather":
        equal(group.all_gather(own, all_), np.concatenate(parts), what)
    elif name == "broadcast":
        equal(group.broadcast(own, root), parts[root], what)
    elif name == "gather":
        group.gather(own, all_ if rank == root else None, root)
        equal(all_, np.concatenate(parts) if rank == root else np.zeros_like(all_), what)
    elif name == "scatter":
        equal(group.scatter(own if rank == root else None, one, root), parts[root][mine], what)
    else:
        equal(group.all_to_all(own, all_), np.concatenate([part[mine] for part in parts]), what)


def random_sequences(steps):
    with kolo.Group() as world:
        groups = [(world, list(range(world.size)))]
        for number in range(3):
            colors = [random.Random(number * 10 + rank).choice([0, 1, None]) for rank in range(world.size)]
            group = world.split(colors[world.rank])
            members = [rank for rank, color in enumerate(colors) if color == colors[world.rank]]
            if group is not None:
                assert group.members == members, (group.members, members)
                groups.append((group, members))
        # Every group has its own sequence; ranks use their groups in one order.
        for step in range(int(steps)):
            for group, members in groups:
                one_operation(group, step, members)


def all_types_and_reductions():
    with kolo.Group() as group:
        for kind in TYPES:
            for op in [*FOLDS, "mean"]:
                parts = [data_of(rank, 7, 11, kind) for rank in range(group.size)]
                own = parts[group.rank].copy()
                if is_defined(kind, op):
                    equal(group.all_reduce(own, op), combined(parts, op), f"{op} of {kind}")
                else:
                    try:
                        group.all_reduce(own, op)
                        raise AssertionError(f"{op} of {kind} has no meaning")
                    except kolo.InvalidCall as error:
                        assert f"all_reduce of rank {group.rank}" in str(error) and kind in str(error), error
        # Integers wrap around; the largest unsigned numbers are no negative ones.
        for kind, bits in [("int8", 8), ("uint16", 16), ("uint32", 32), ("uint64", 64)]:
            largest = np.full(3, np.iinfo(kind).max, kind)
            wrapped = int(largest[0]) * group.size % 2**bits
            assert int(group.all_reduce(largest.copy())[0]) % 2**bits == wrapped, kind
            first = largest.copy() if group.rank == 0 else np.zeros(3, kind)
            np.testing.assert_array_equal(group.all_reduce(first, "max"), largest)
        # A sum of 16-bit floats is rounded once: 2048 + 1 + 1 is 2050, though 2048 + 1 is 2048.
        half = np.array([2048 if group.rank == 0 else 1], "float16")
        assert group.all_reduce(half)[0] == np.float16(2047 + group.size), half


def shared_memory():
    group = kolo.Group()
    n, rank = group.size, group.rank
    for length in (0, 1, 1000, 300_001):
        parts = [np.random.default_rng(member).standard_normal((length, n)).astype("float32") for member in range(n)]
        own, one, all_ = kolo.empty((length, n)), kolo.empty(length), kolo.empty(length * n)
        for _ in range(2):
            own[:] = parts[rank]
            total = functools.reduce(np.add, parts).reshape(-1)
            mine = slice(rank * length, (rank + 1) * length)
            np.testing.assert_allclose(group.reduce_scatter(own, one), total[mine], rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(own, parts[rank])
            # The input may be the output's own part, or the output a part of the input.
            all_[mine] = one
            np.testing.assert_allclose(group.all_gather(all_[mine], all_), total, rtol=1e-5, atol=1e-5)
            flat = own.reshape(-1)
            for start in (0, rank * length, (n - 1) * length):
                own[:] = parts[rank]
                group.reduce_scatter(flat, flat[start : start + length], "max")
                np.testing.assert_array_equal(flat[start : start + length], functools.reduce(np.maximum, parts).reshape(-1)[mine])
                group.barrier()
    assert kolo.empty(np.int64(3)).shape == (3,) and kolo.empty([2, 3], "bool").shape == (2, 3)
    for wrong, call in [("a length is -1", lambda: kolo.empty((2, -1))), ("of object", lambda: kolo.empty(2, object)),
                        ("too large", lambda: kolo.empty((1 << 40, 1 << 40))), ("too large", lambda: kolo.empty(1 << 61))]:
        try:
            call()
            raise AssertionError(f"nobody objected: {wrong}")
        except kolo.InvalidCall as error:
            assert wrong in str(error), error
    try:
        kolo.empty(1 << 50, "uint8")
        raise AssertionError("no machine has as much")
    except kolo.Error as error:
        assert str(1 << 50) in str(error), error
    # A forked process has the array, and its end takes nothing from this one.
    child = os.fork()
    if child == 0:
        assert kolo.empty(3).shape == (3,)
        all_[0] = 7
        del own, one, all_
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all_[0] == 7
    # The array outlives its group; the next group has the same memory.
    group.all_reduce(kolo.empty(1))
    group.split(0).close()
    again = group.split(0)
    all_[:] = rank
    assert (again.all_reduce(all_) == sum(range(n))).all()
    group.close()
    all_[:] = 5
    assert (all_ == 5).all()


def a_failure_leaves_shared_memory():
    """Rank 2 dies in a collective. The others write to their arrays at once, and one of them then reads the others'."""
    group = kolo.Group()
    data = kolo.empty(1_000_000)
    data[:] = 1
    group.all_reduce(data)
    if group.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            data[:] = 1
            group.all_reduce(data)
            # A rank that was late has the right sum, or an error.
            assert (data == group.size).all(), data
    except kolo.Error as error:
        assert error.culprit == 2, error
    data[:] = 9
    assert (data == 9).all()


def other_memory():
    class OnlyDLPack:
        def __init__(self, inner):
            self.inner = inner

        def __dlpack__(self, **_):
            return self.inner.__dlpack__()

    with kolo.Group() as group:
        n = group.size
        assert group.all_reduce(bytearray([1, 2])) == bytearray([n, 2 * n])
        assert group.all_reduce(array.array("d", [0.5])) == array.array("d", [n / 2])
        numbers = np.ones((2, 3), "int32")
        group.all_reduce(OnlyDLPack(numbers))
        np.testing.assert_array_equal(numbers, np.full((2, 3), n))
        out = bytearray(n)
        group.all_gather(bytes([group.rank]), out)
        assert list(out) == list(range(n))
        counts = [group.rank + 1] * n
        sent = np.full(sum(counts), group.rank)
        received = group.all_to_all(sent, np.zeros(sum(range(1, n + 1)), int), counts, list(range(1, n + 1)))
        np.testing.assert_array_equal(received, np.repeat(np.arange(n), np.arange(1, n + 1)))


def bad_input():
    group = kolo.Group()
    ones = np.ones(group.size * 2)
    for wrong, call in [
        ("not contiguous", lambda: group.all_reduce(np.ones((4, 4)).T)),
        ("read-only", lambda: group.all_reduce(np.frombuffer(bytes(8)))),
        ("the op is 'add'; known are sum", lambda: group.all_reduce(ones, "add")),
        ("the root is 9", lambda: group.broadcast(ones, 9)),
        ("must have 2", lambda: group.all_gather(np.ones(1), np.ones(3))),
        ("of float64 and the output of float32", lambda: group.all_gather(np.ones(1), np.ones(2, "float32"))),
        ("object", lambda: group.all_reduce(np.array([None]))),
        ("list has neither", lambda: group.all_reduce([1.0])),
        ("do not divide", lambda: group.all_to_all(np.ones(3), np.ones(3))),
        ("the tag is -1", lambda: group.send(ones, 0, -1)),
        ("the rank is -1", lambda: group.send(ones, -1)),
        ("the source is 9", lambda: group.receive(ones, 9)),
        ("the timeout is -1", lambda: group.receive(ones, 0, timeout=-1)),
        ("the timeout is NaN", lambda: group.receive(ones, 0, timeout=math.nan)),
        ("the timeout is nan", lambda: group.barrier(timeout=math.nan)),
        ("the color is -1", lambda: group.split(-1)),
        ("the key is 'a'", lambda: group.split(0, "a")),
        ("the root is 0.5", lambda: group.broadcast(ones, 0.5)),
        ("a count of the input is -1", lambda: group.all_to_all(ones, ones, [-1, 5], [2, 2])),
        ("a sum of 3", lambda: group.all_to_all(ones, ones, [2, 1], [2, 2])),
        ("datetime64", lambda: group.all_reduce(np.array(["2020"], "datetime64[s]"))),
        ("Kolo does not carry", lambda: group.all_reduce(np.zeros(2, "f4,i4"))),
        ("multiple of 8", lambda: group.all_reduce(np.frombuffer(bytearray(17), "uint8")[1:].view("float64"))),
    ]:
        try:
            call()
            raise AssertionError(f"nobody objected: {wrong}")
        except kolo.InvalidCall as error:
            assert wrong in str(error) and f"of rank {group.rank}" in str(error), error
    # The group is as before, until ranks make different calls.
    assert group.all_reduce(ones.copy())[0] == group.size
    try:
        group.all_reduce(np.ones(group.rank + 1))
        raise AssertionError("ranks made different calls")
    except kolo.Error as error:
        assert "all_reduce" in str(error) and "rank 1" in str(error), error
    group.close()
    try:
        group.barrier()
    except kolo.Error as error:
        assert "the group is closed" in str(error)


def a_rank_is_killed():
    group = kolo.Group()
    ones = np.ones(100_000)
    for _ in range(5):
        group.all_reduce(ones.copy())
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            group.all_reduce(ones.copy())
    except kolo.Error as error:
        assert error.culprit == 1 and error.operation == "all_reduce" and "rank 1" in str(error), error
        assert time.monotonic() - began < 20
    try:
        group.receive(ones, source=0)
    except kolo.Error as error:
        assert error.culprit == 1, error


def messages():
    with kolo.Group() as group:
        n, rank = group.size, group.rank
        for tag in (3, 4):
            group.send(np.full(5, 10 * rank + tag), (rank + 1) % n, tag)
        got = np.zeros(5, int)
        for tag in (4, 3):
            assert group.receive(got, None, tag, timeout=60) == (rank - 1) % n
            assert (got == 10 * ((rank - 1) % n) + tag).all()
        try:
            group.receive(got, 0, 9, timeout=0.2)
            raise AssertionError("nobody has sent it")
        except kolo.Timeout as error:
            assert error.culprit == 0 and "rank 0" in str(error), error
        group.send(np.ones(5, int), rank, 6)
        assert group.receive(got, rank, 6, timeout=math.inf) == rank
        group.send(np.ones(2, "int8"), rank, 5)
        try:
            group.receive(got, rank, 5)
        except kolo.InvalidCall as error:
            assert "2 bytes" in str(error) and "40" in str(error), error


def barrier_names_the_missing():
    with kolo.Group() as group:
        if group.rank in (1, 3):
            time.sleep(1.5)
        try:
            group.barrier(timeout=0.5)
            raise AssertionError("two ranks are late")
        except kolo.Timeout as error:
            assert error.missing == (1, 3), (error, error.missing)
        group.barrier(timeout=60)
        group.barrier()


def interrupted():
    group = kolo.Group()
    if group.rank == 1:
        time.sleep(3)
        try:
            group.barrier()
            raise AssertionError("rank 0 was interrupted")
        except kolo.Error as error:
            assert error.culprit == 0 and "interrupted" in str(error), error
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    try:
        group.barrier()
        raise AssertionError("the alarm interrupts it")
    except KeyboardInterrupt:
        assert time.monotonic() - began < 2.5
    time.sleep(3)


def ends_without_closing():
    group = kolo.Group()
    group.all_reduce(np.ones(10))


def forks():
    with kolo.Group() as group:
        child = os.fork()
        if child == 0:
            try:
                group.barrier()
            except kolo.InvalidCall as error:
                assert "forks" in str(error), error
                # Neither an exception that leaves the block nor the end of the interpreter ends the
                # parent's group.
                sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert group.all_reduce(np.ones(1))[0] == group.size


def alone():
    # No launcher: a group of one.
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name)
    with kolo.Group() as group:
        assert (group.rank, group.size) == (0, 1)
        assert group.all_reduce(np.ones(1), "mean")[0] == 1


def explicit():
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    rank, size = int(os.environ.pop("RANK")), int(os.environ.pop("WORLD_SIZE"))
    with kolo.Group(rank, size, address, token="0123456789abcdef", timeout=60) as group:
        assert group.all_reduce(np.ones(1))[0] == size


def missing_rank():
    if os.environ["RANK"] == "1":
        return
    try:
        kolo.Group(timeout=1)
    except kolo.Timeout as error:
        assert error.culprit == 1 and "rank 1" in str(error), error
        return
    raise AssertionError("rank 1 never comes")


class GroupTest(unittest.TestCase):
    def test_random_sequences_on_random_groups(self):
        run(self, 4, random_sequences, 150)

    def test_all_types_and_reductions(self):
        run(self, 2, all_types_and_reductions)
        run(self, 3, all_types_and_reductions, KOLO_TRANSPORT="tcp")

    def test_shared_memory(self):
        run(self, 3, shared_memory)
        run(self, 2, shared_memory, KOLO_TRANSPORT="tcp")
        run(self, 1, shared_memory)
        run(self, 3, a_failure_leaves_shared_memory, fails=[2])

    def test_other_memory(self):
        run(self, 3, other_memory)

    def test_bad_input(self):
        run(self, 2, bad_input)

    def test_a_killed_rank_is_named(self):
        run(self, 3, a_rank_is_killed, fails=[1])

    def test_messages(self):
        run(self, 3, messages)

    def test_a_barrier_names_the_missing(self):
        run(self, 4, barrier_names_the_missing)

    def test_a_signal_interrupts(self):
        run(self, 2, interrupted)

    def test_processes_end_without_closing(self):
        for _ in range(3):
            run(self, 2, ends_without_closing)

    def test_a_forked_process_is_no_rank(self):
        run(self, 2, forks)

    def test_ways_to_form(self):
        run(self, 1, alone)
        run(self, 2, explicit)
        run(self, 2, missing_rank)


if __name__ == "__main__":
    unittest.main()
