"""Shards of a batch: which rank computes them, in which order their values are added, and their random numbers.

A sum over shards is that of a balanced binary tree over all shards: shards 2k and 2k + 1 first, then pairs of
pairs. What is left at the end is added from the right. So its bits depend on the number of shards, and not on the
number of ranks.
"""

import torch

_WORD = (1 << 64) - 1


def share(shards, size, rank):
    """Returns the shards of a rank: consecutive ones, whose numbers differ by one at most between ranks."""
    return range(rank * shards // size, (rank + 1) * shards // size)


def rows_of(shard, shards, rows):
    """Returns the rows of a shard, of a batch of `rows`."""
    return range(shard * rows // shards, (shard + 1) * rows // shards)


def stream(*numbers):
    """Returns a seed that is a function of some numbers."""
    state = 0
    for number in numbers:
        # SplitMix64.
        state = ((state ^ (number & _WORD)) + 0x9E3779B97F4A7C15) & _WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
        state ^= state >> 31
    return state >> 1


def _join(nodes):
    """Joins the last two of the nodes (first shard, number of shards), if they are siblings in the tree."""
    if len(nodes) < 2:
        return False
    (left, count), (_, other) = nodes[-2:]
    if count != other or left % (2 * count):
        return False
    nodes[-2:] = [(left, 2 * count)]
    return True


def _depth(shards):
    nodes, deepest = [], 1
    for shard in shards:
        nodes.append((shard, 1))
        deepest = max(deepest, len(nodes))
        while _join(nodes):
            pass
    return deepest


class ShardSum:
    """Sum of one vector of each shard. A rank holds a row for each node of the tree that its shards form, and the
    row of the shard that is being computed. At the end row 0 has the sum over all ranks."""

    def __init__(self, group, length, shards, size, rank, dtype):
        self._group, self._size = group, size
        self._shares = [len(share(shards, size, other)) for other in range(size)]
        self.memory = torch.zeros(_depth(share(shards, size, rank)), length, dtype=dtype)
        self._nodes, self._work = [], None

    @property
    def row(self):
        """Number of the current shard's row."""
        return len(self._nodes)

    @property
    def current(self):
        """The current shard's row."""
        return self.memory[self.row]

    def reset(self):
        self._nodes = []

    def end_shard(self, shard):
        """Adds the current shard to its siblings that are complete."""
        self._nodes.append((shard, 1))
        while _join(self._nodes):
            self._add(len(self._nodes))

    def _add(self, row):
        self.memory[row - 1].add_(self.memory[row])

    def start(self):
        """Starts the sum over the ranks."""
        if self._size > 1:
            self._work = self._group.tree_sum(self.memory[: max(1, len(self._nodes))], self._shares)
            return
        for row in reversed(range(1, len(self._nodes))):
            self._add(row)

    def wait(self):
        """Returns the sum over all shards; it is valid until the next `reset`."""
        work, self._work = self._work, None
        if work is not None:
            work.wait()
        return self.memory[0]
