"""Gradients of one step, by shard, in buckets that are summed over the ranks while the last pass runs. Buckets are in the
host's memory, to which the gradients of a module on a GPU are copied."""

import torch

from ._shards import ShardSum

# Elements to whose multiple each gradient is padded: 64 bytes of the smallest type, so that each is aligned.
_PADDING = 16
# Sums of these are kept in `float32` and rounded once.
_SHORT = (torch.float16, torch.bfloat16)
# The first bucket is small, because it is complete first.
_FIRST = 1 << 20


class Bucket:
    """Gradients of some parameters, one behind another."""

    def __init__(self, indices, parameters, dtype, make_sum):
        self.indices, self.launched = indices, False
        self._filled = set()
        places, length = [], 0
        for index in indices:
            places.append((index, length))
            numbers = parameters[index].numel() * (2 if parameters[index].is_complex() else 1)
            length += -(-numbers // _PADDING) * _PADDING
        self.sum = make_sum(max(length, _PADDING), dtype)
        # By row and parameter, in the parameter's own order of axes.
        self._views = [{index: _view(row[offset:], parameters[index]) for index, offset in places} for row in self.sum.memory]

    def begin(self):
        self.launched, self._filled = False, set()
        self.sum.reset()

    def has(self, index):
        return index in self._filled

    def is_full(self):
        return len(self._filled) == len(self.indices)

    def put(self, index, gradient):
        self._views[self.sum.row][index].copy_(gradient)
        self._filled.add(index)

    def end_shard(self, shard):
        for index in self.indices:
            if index not in self._filled:
                self._views[self.sum.row][index].zero_()
        self._filled = set()
        self.sum.end_shard(shard)

    def result(self, index):
        return self._views[0][index]


def _view(flat, parameter):
    """Returns the beginning of flat memory in the shape of a parameter; also in its order of axes, where it is dense."""
    like = torch.empty_like(parameter.detach(), device="meta")
    if parameter.is_complex():
        return torch.view_as_complex(flat[: 2 * like.numel()].view(-1, 2)).as_strided(like.shape, like.stride())
    return flat[: like.numel()].as_strided(like.shape, like.stride())


def plan(parameters, limit):
    """Returns the parameters' indices by bucket, with the type of the sums. The last parameter's gradient is complete
    first; a bucket has at most `limit` bytes, or one parameter."""
    buckets = []
    for index in reversed(range(len(parameters))):
        dtype = parameters[index].dtype
        dtype = torch.float32 if dtype in _SHORT else dtype.to_real() if dtype.is_complex else dtype
        nbytes = parameters[index].numel() * parameters[index].element_size()
        most = min(_FIRST, limit) if len(buckets) < 2 else limit
        if not buckets or buckets[-1][1] is not dtype or buckets[-1][2] + nbytes > most:
            buckets.append([[], dtype, 0])
        buckets[-1][0].append(index)
        buckets[-1][2] += nbytes
    return [(indices, dtype) for indices, dtype, _ in buckets]


class Gradients:
    """All buckets of a model. Ranks start them in one order."""

    def __init__(self, parameters, group, shards, size, rank, limit):
        self._own_type = [(parameter.device, parameter.dtype) for parameter in parameters]

        def make_sum(length, dtype):
            return ShardSum(group, length, shards, size, rank, dtype)

        self.buckets = [Bucket(indices, parameters, dtype, make_sum) for indices, dtype in plan(parameters, limit)]
        self._bucket_of = {index: bucket for bucket in self.buckets for index in bucket.indices}
        self._next = 0

    def begin(self):
        self._next = 0
        for bucket in self.buckets:
            bucket.begin()

    def has(self, index):
        """Returns true if the current shard has given this gradient already."""
        bucket = self._bucket_of[index]
        return bucket.launched or bucket.has(index)

    def put(self, index, gradient, then):
        """Takes a gradient of the current shard. `then` are this shard and those without samples behind it if it is
        the rank's last one, else None: full buckets are summed over the ranks at once."""
        self._bucket_of[index].put(index, gradient)
        while then is not None and self._next < len(self.buckets) and self.buckets[self._next].is_full():
            self._launch(then)

    def _launch(self, shards):
        bucket = self.buckets[self._next]
        self._next += 1
        for shard in shards:
            bucket.end_shard(shard)
        bucket.launched = True
        bucket.sum.start()

    def end_shard(self, shard):
        """Ends a shard behind which there is another one."""
        for bucket in self.buckets:
            bucket.end_shard(shard)

    def launch(self, shards):
        """Ends the last shards and sums what has not been started."""
        while self._next < len(self.buckets):
            self._launch(shards)

    def wait(self, samples):
        """Waits for all sums and divides them."""
        for bucket in self.buckets:
            bucket.sum.wait().div_(samples)

    def result(self, index):
        return self._bucket_of[index].result(index).to(*self._own_type[index])
