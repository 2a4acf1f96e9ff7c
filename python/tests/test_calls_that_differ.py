"""Calls that differ between ranks, or come too late: each ends at once with an error that says how they differ."""

import os
import unittest

from .processes import run
from .ranks import needs_torch, started


def refused(act, *words):
    """Runs what raises an error with these words."""
    try:
        act()
    except (RuntimeError, ValueError) as error:
        assert all(word in str(error) for word in words), (words, str(error))
        return
    raise AssertionError(f"not refused: {words}")


def one_root():
    """The same root, which leaves first: no error, and the right data."""
    torch, dist, rank, size = started()
    dist.broadcast(data := torch.full((100_000,), float(rank)), 0)
    assert (data == 0).all()
    dist.destroy_process_group()


def message_after_the_end():
    torch, dist, rank, size = started()
    work = dist.irecv(torch.ones(1), (rank + 1) % size)
    dist.destroy_process_group()
    refused(work.wait, "this process has destroyed its group", "before destroy_process_group")


def uneven_parts():
    torch, dist, rank, size = started()
    parts = [torch.zeros(other + 1) for other in range(size)]
    refused(lambda: dist.all_gather(parts, torch.ones(rank + 1)), "outputs have [1, 2] elements", f"input has {rank + 1}")
    refused(lambda: dist.gather(torch.ones(2), parts if rank == 0 else None, 0) if rank == 0 else dist.gather(torch.ones(2), parts, 1),
            "outputs have [1, 2] elements", "input has 2")
    refused(lambda: dist.scatter(torch.ones(2), parts, rank), "inputs have [1, 2] elements", "output has 2")
    # Nothing was sent, so the group is usable.
    dist.all_reduce(data := torch.ones(2))
    assert data.tolist() == [size, size]
    dist.destroy_process_group()


def other_orders():
    """Rank 2 forms its groups in another order; every rank of the job learns of it."""
    torch, dist, rank, size = started()
    orders = [(0, 1), (0, 2)] if rank != 2 else [(0, 2), (0, 1)]

    def form():
        for ranks in orders:
            dist.new_group(list(ranks))

    words = "new_group of rank 2: its call is for ranks [0, 2], and that of rank 0 for ranks [0, 1]"
    if rank == 1:
        # Its own groups may have formed before the report came.
        try:
            form()
        except ValueError as error:
            assert words in str(error), error
        return
    refused(form, words, "in one order")
    # Rank 0 keeps torch's store until it has read the report.
    os._exit(0)


def other_sizes():
    import torch.distributed as dist

    import kolo.torch  # noqa: F401

    os.environ["WORLD_SIZE"] = str(2 + int(os.environ["RANK"]))
    refused(lambda: dist.init_process_group("kolo"), "WORLD_SIZE is 2 on rank 0 and 3 on rank 1")


@needs_torch
class CallsThatDifferTest(unittest.TestCase):
    def test_one_root_that_leaves_first(self):
        run(self, 3, one_root)

    def test_a_message_is_asked_for_and_the_group_destroyed(self):
        run(self, 2, message_after_the_end)

    def test_sizes_of_uneven_parts_are_named(self):
        run(self, 2, uneven_parts)

    def test_groups_in_other_orders(self):
        run(self, 3, other_orders)

    def test_other_numbers_of_processes(self):
        run(self, 2, other_sizes)


if __name__ == "__main__":
    unittest.main()
