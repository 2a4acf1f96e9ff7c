"""Buffers of a model, such as BatchNorm's running statistics, by shard.

Every shard begins with the buffers of the step's begin. At the end floats take the mean of the shards' changes,
weighted by samples, in 64 bits and in the order of the shards' tree. Others are those of the last shard.
"""

import torch

from ._shards import ShardSum


def _as_floats(tensor):
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class Buffers:
    """The buffers' values at the begin of a step and after each shard of this rank."""

    def __init__(self, buffers, group, shards, size, rank):
        self.buffers, self._group, self._place = buffers, group, (shards, size, rank)
        self._base, self._of_shards = [], []

    def begin(self):
        self._base = [buffer.clone() for buffer in self.buffers]
        self._of_shards = []

    def begin_shard(self):
        if self._of_shards:
            for buffer, base in zip(self.buffers, self._base):
                buffer.copy_(base)

    def end_shard(self, shard, rows):
        """Keeps what a shard has changed; `rows` is its weight."""
        changed = {}
        for index, (buffer, base) in enumerate(zip(self.buffers, self._base)) if rows else ():
            if not torch.equal(buffer, base):
                changed[index] = buffer.clone()
        self._of_shards.append((shard, rows, changed))

    def changed(self):
        """Returns for each buffer 1 if a shard of this rank has changed it, else 0."""
        return [int(any(index in changed for _, _, changed in self._of_shards)) for index in range(len(self.buffers))]

    def restore(self):
        for buffer, base in zip(self.buffers, self._base):
            buffer.copy_(base)

    def merge(self, changed, rows):
        """Sets the buffers to those of all shards; `changed` are those that any rank has changed, `rows` is the number
        of rows of all shards."""
        is_float = [buffer.is_floating_point() or buffer.is_complex() for buffer in self.buffers]
        self._merge_floats([index for index in changed if is_float[index]], rows)
        self._take_last([index for index in changed if not is_float[index]])

    def _merge_floats(self, indices, rows):
        if not indices:
            return
        base = torch.cat([_as_floats(self._base[index]).reshape(-1).double() for index in indices]).cpu()
        total = ShardSum(self._group, len(base), *self._place, torch.float64)
        for shard, weight, changed in self._of_shards:
            parts = [_as_floats(changed.get(index, self._base[index])).reshape(-1).double() for index in indices]
            own = torch.cat(parts).cpu()
            # Values that are not finite stay, where the shard has not changed them.
            total.current.copy_(torch.where(own == base, 0.0, (own - base) * weight))
            total.end_shard(shard)
        total.start()
        change = total.wait()
        merged = torch.where(change == 0.0, base, base + change / rows)
        counts = [_as_floats(self._base[index]).numel() for index in indices]
        for index, part in zip(indices, merged.split(counts)):
            target = _as_floats(self.buffers[index])
            target.copy_(part.view(target.shape))

    def _take_last(self, indices):
        size = self._place[1]
        for index in indices:
            # The last shard always has samples, and the last rank has it.
            value = self._of_shards[-1][2].get(index, self._base[index]) if self._of_shards else self._base[index]
            value = value.contiguous()
            if size > 1:
                self._group.broadcast_from(value, size - 1)
            self.buffers[index].copy_(value)
