"""Samples of each shard."""

import torch
import torch.distributed as dist
import torch.utils.data

from .._errors import InvalidCall
from ._shards import rows_of, share, stream


class ShardSampler(torch.utils.data.Sampler):
    """Batch sampler whose batches are the shards of this rank, one step after another.

        sampler = kolo.torch.ShardSampler(dataset, batch_size=32, shards=4, seed=0)
        loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)

    A step has `shards * batch_size` samples. The order is a function of seed, epoch and number of samples. The last
    step may be short: it is divided evenly among the shards, and nothing is dropped (unless `drop_last`) or repeated.
    """

    def __init__(self, data, batch_size, shards, *, shuffle=True, seed=0, drop_last=False, rank=None, size=None):
        """`data` is the data set or its number of samples, `batch_size` the number of samples of a shard. Rank and
        size are those of the default group, if not given."""
        in_group = dist.is_available() and dist.is_initialized()
        self.rank = rank if rank is not None else dist.get_rank() if in_group else 0
        self.size = size if size is not None else dist.get_world_size() if in_group else 1
        self.samples = data if isinstance(data, int) else len(data)
        for name, number in [("batch_size", batch_size), ("shards", shards), ("number of samples", self.samples)]:
            if not isinstance(number, int) or number < 1:
                raise InvalidCall(f"ShardSampler of rank {self.rank}: the {name} is {number}; it must be a whole number from 1")
        if not 0 <= self.rank < self.size:
            raise InvalidCall(f"ShardSampler: there is no rank {self.rank} among {self.size}")
        self.batch_size, self.shards, self.seed, self.drop_last = batch_size, shards, seed, bool(drop_last)
        self.shuffle, self.epoch, self.first_step = bool(shuffle), 0, 0

    def set_epoch(self, epoch, step=0):
        """Sets the epoch, and the step at which it begins, for a run that is resumed."""
        self.epoch, self.first_step = epoch, step

    @property
    def steps(self):
        """Number of steps of an epoch."""
        whole, rest = divmod(self.samples, self.batch_size * self.shards)
        return whole + (1 if rest and not self.drop_last else 0)

    def rows(self, step):
        """Returns the number of samples of a step."""
        return min(self.batch_size * self.shards, self.samples - step * self.batch_size * self.shards)

    def counts(self, step):
        """Returns the number of samples of each shard of this rank."""
        rows = self.rows(step)
        return [len(rows_of(shard, self.shards, rows)) for shard in share(self.shards, self.size, self.rank)]

    def _batches(self):
        for step in range(self.first_step, self.steps):
            begin = step * self.batch_size * self.shards
            for shard in share(self.shards, self.size, self.rank):
                span = rows_of(shard, self.shards, self.rows(step))
                if span:
                    yield range(begin + span.start, begin + span.stop)

    def __iter__(self):
        if self.shuffle:
            generator = torch.Generator().manual_seed(stream(self.seed, self.epoch))
            order = torch.randperm(self.samples, generator=generator).tolist()
        else:
            order = list(range(self.samples))
        for span in self._batches():
            yield order[span.start : span.stop]

    def __len__(self):
        return sum(1 for _ in self._batches())
