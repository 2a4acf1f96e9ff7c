"""Data-parallel training whose weights have the same bits for any number of processes."""

import os

import torch
import torch.distributed as dist

from .._errors import InvalidCall
from . import _verification
from ._agreement import agree, settings, tensors
from ._buckets import Gradients
from ._buffers import Buffers
from ._fingerprint import fingerprint
from ._loaders import warn_of_random_transforms
from ._process_group import ProcessGroup
from ._random import Generators
from ._sampler import ShardSampler
from ._shards import ShardSum, rows_of, share, stream

# Ranks compare numbers below this; sums of their squares are exact.
_COMPARED = 1 << 20
_FORM = 'call torch.distributed.init_process_group("kolo")'
# Types of devices that a module may be on.
_DEVICES = ("cpu", "cuda")


def _group_of(group):
    """Returns Kolo's group, or None in a process on its own."""
    if not (dist.is_available() and dist.is_initialized()):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InvalidCall(f"DistributedDataParallel: this process is one of several; {_FORM} first")
        return None
    group = group or dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        raise InvalidCall(f"DistributedDataParallel: the group is not one of Kolo; {_FORM}")
    return group


def _samples(part):
    """Returns the number of samples of a part of a batch; None if it has no entry for each sample."""
    if isinstance(part, torch.Tensor):
        return len(part) if part.dim() else None
    is_sequence = hasattr(part, "__len__") and hasattr(part, "__getitem__") and not isinstance(part, (dict, str))
    return len(part) if is_sequence else None


def _aligned(value):
    """Returns a batch whose tensors begin at multiples of 64 bytes: kernels' bits depend on the alignment."""
    if isinstance(value, torch.Tensor):
        is_dense = value.device.type in _DEVICES and value.layout is torch.strided
        return value.clone() if is_dense and value.data_ptr() % 64 else value
    if isinstance(value, dict):
        return {key: _aligned(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_aligned, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_aligned, value))
    return value


class DistributedDataParallel(torch.nn.Module):
    """Trains a module on the shards of each batch. The gradients are those of the mean loss of all samples, in the same
    bits for any number of processes.

        ddp = kolo.torch.DistributedDataParallel(model, shards=4)
        optimizer = torch.optim.AdamW(ddp.parameters())
        for inputs, labels in batches:                                      # the whole batch, on every rank
            for own_inputs, own_labels in ddp.shards(inputs, labels):       # this rank's shards of it
                loss = torch.nn.functional.cross_entropy(ddp(own_inputs), own_labels)
                ddp.backward(loss, len(own_labels))
            optimizer.step()
            optimizer.zero_grad()

    After the last shard the parameters' `grad`, the buffers, `loss` and `samples` are those of the whole batch, on
    every rank. `steps` does the same with a DataLoader that only loads this rank's shards.
    """

    def __init__(self, module, shards, *, seed=0, threads=1, process_group=None, bucket_cap_mb=25, overlap=True):
        """`shards` is the number of parts of each batch: a setting of the job, which any number of ranks divides.

        A shard's dropout is a function of `seed`, epoch, step and shard. torch gets `threads` computing threads, because
        other numbers give other bits. With `overlap`, gradients are summed over the ranks while the last shard's
        backward pass runs. Rank 0's parameters and buffers go to all ranks.
        """
        super().__init__()
        group = _group_of(process_group)
        rank, size = (0, 1) if group is None else (group.rank(), group.size())
        self._place = f"DistributedDataParallel of rank {rank}"
        for name, number in [("shards", shards), ("threads", threads)]:
            if not isinstance(number, int) or number < 1:
                raise InvalidCall(f"{self._place}: {name} is {number}; it must be a whole number from 1")
        if shards < size:
            raise InvalidCall(f"{self._place}: {shards} shards are too few for {size} ranks; use at least one for each rank")
        torch.set_num_threads(threads)
        if threads > 1 and not torch.are_deterministic_algorithms_enabled():
            raise InvalidCall(f"{self._place}: more than one thread needs torch.use_deterministic_algorithms(True)")
        self._group, self._shards, self._size, self._rank = group, shards, size, rank
        self._seed, self._threads, self._overlap = seed, threads, overlap
        requests = _verification.Requests()
        bucket_cap_mb = requests.bucket_cap_mb or bucket_cap_mb
        device = self._device_of(module)
        mine = {"shards": shards, "seed": seed, "bucket_cap_mb": bucket_cap_mb, "overlap": overlap}
        agree(group, "DistributedDataParallel", {**mine, **settings(device), **tensors(module)})
        self.module = module
        self._same_everywhere()
        named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
        self._names, self._trained = [name for name, _ in named], [parameter for _, parameter in named]
        if not named:
            raise InvalidCall(f"{self._place}: the module has no parameter that is trained")
        self._count = sum(1 for _ in module.parameters())
        self._gradients = Gradients(self._trained, group, shards, size, rank, max(1, int(bucket_cap_mb * 2**20)))
        self._statistics = Buffers(list(module.buffers()), group, shards, size, rank)
        self._losses = ShardSum(group, 1, shards, size, rank, torch.float64)
        self._own, self._generators = share(shards, size, rank), Generators(device)
        self._trace = _verification.Trace(requests, module, group, shards) if requests.file else None
        self._results = [None] * len(named)
        self._shard, self._in_backward, self._is_last_pass, self._is_over = None, False, False, False
        # Number of samples of the current shard, which all of its passes share.
        self._shard_samples = None
        self._behind, self._problem, self._left = None, None, None
        self._completed = 0
        #: Mean loss of all samples of the last step, and their number; the same on all ranks.
        self.loss, self.samples = None, 0
        for index, parameter in enumerate(self._trained):
            parameter.register_post_accumulate_grad_hook(lambda parameter, index=index: self._on_gradient(index, parameter))

    def _device_of(self, module):
        """Returns the device of a module that this class can train."""
        device = None
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            device = device or tensor.device
            if tensor.device.type not in _DEVICES or tensor.device != device or tensor.layout is not torch.strided:
                raise InvalidCall(f"{self._place}: {name} is a tensor of {tensor.device}, {tensor.layout}; this class trains dense "
                                  "tensors, all on the CPU or all on one GPU")
        device = device or torch.device("cpu")
        if device.type == "cuda" and (torch.backends.cudnn.benchmark or not torch.are_deterministic_algorithms_enabled()):
            raise InvalidCall(f"{self._place}: a module on a GPU needs torch.use_deterministic_algorithms(True) and "
                              "torch.backends.cudnn.benchmark = False")
        return device

    @torch.no_grad()
    def _same_everywhere(self):
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            # Kernels' bits depend on the alignment.
            if tensor.data_ptr() % 64:
                tensor.data = tensor.data.clone()
            if self._size > 1:
                self._group.broadcast_from(tensor.detach(), 0)

    # ---- a module

    def forward(self, *inputs, **keywords):
        """Calls the module."""
        # In training a pass changes buffers, such as BatchNorm's running statistics, and each rank has other samples.
        changes = torch.is_grad_enabled() or next(self.module.buffers(), None) is not None
        if self._shard is None and self.training and changes:
            raise InvalidCall(f"{self._place}: call this model within `for ... in ddp.shards(...)` or `ddp.steps(...)` of its own; "
                              "to evaluate it, use eval(); within another model's step, call its `module`")
        return self.module(*inputs, **keywords)

    def state_dict(self, *positional, **named):
        """Returns the module's own state, which a plain module loads."""
        return self.module.state_dict(*positional, **named)

    def weights_sha256(self):
        """Returns the SHA-256 of all parameters and buffers, by which runs can be compared."""
        return _verification.weights_sha256(self.module)

    def load_state_dict(self, *positional, **named):
        """Loads a plain module's state."""
        return self.module.load_state_dict(*positional, **named)

    def __deepcopy__(self, memo):
        """Is refused: a copy would need a group of its own."""
        raise InvalidCall(f"{self._place}: this object belongs to its group of processes; copy `ddp.module`, and wrap the copy")

    def __reduce_ex__(self, protocol):
        """Is refused, as a copy is."""
        raise InvalidCall(f"{self._place}: this object belongs to its group of processes; save `ddp.state_dict()`")

    def no_sync(self):
        """Is refused: shards accumulate."""
        raise InvalidCall(f"{self._place}: no_sync has no order of additions; use more shards than ranks, which "
                          "accumulate in the same order for any number of ranks")

    # ---- a step

    def shards(self, *batch, epoch=0, step=None):
        """Returns this rank's shards of a batch, of one or several tensors or lists with one entry a sample: all ranks
        pass the whole batch. `epoch` and `step` choose the random numbers; without them steps are counted."""
        if not batch:
            raise InvalidCall(f"{self._place}: shards() needs the batch: ddp.shards(inputs, labels)")
        for part in batch:
            if _samples(part) is None:
                raise InvalidCall(f"{self._place}: shards() divides tensors or lists with one entry a sample, not a "
                                  f"{type(part).__name__}; a DataLoader goes to ddp.steps(loader)")
        rows = _samples(batch[0])
        for part in batch:
            if len(part) != rows:
                raise InvalidCall(f"{self._place}: the parts of the batch have {rows} and {len(part)} samples")
        if not rows:
            raise InvalidCall(f"{self._place}: the batch is empty")

        def part_of(shard):
            span = rows_of(shard, self._shards, rows)
            parts = tuple(part[span.start : span.stop] for part in batch)
            return parts if len(parts) > 1 else parts[0]

        counts = [len(rows_of(shard, self._shards, rows)) for shard in self._own]
        data = fingerprint(batch) if self._size > 1 else 0
        return self._run(part_of, counts, rows, epoch, self._completed if step is None else step, data)

    def steps(self, loader):
        """Goes through a DataLoader whose `batch_sampler` is a `ShardSampler`: each step is this rank's shards.

            for shards in ddp.steps(loader):
                for inputs, labels in shards:
                    ddp.backward(loss_of(ddp(inputs), labels), len(labels))
                optimizer.step()
                optimizer.zero_grad()
        """
        if not hasattr(loader, "batch_sampler"):
            raise InvalidCall(f"{self._place}: steps() takes a DataLoader with batch_sampler=kolo.torch.ShardSampler(...), not a "
                              f"{type(loader).__name__}; a batch goes to ddp.shards(inputs, labels)")
        sampler = loader.batch_sampler
        if not isinstance(sampler, ShardSampler):
            raise InvalidCall(f"{self._place}: the loader needs batch_sampler=kolo.torch.ShardSampler(...)")
        if (sampler.shards, sampler.size, sampler.rank) != (self._shards, self._size, self._rank):
            raise InvalidCall(f"{self._place}: the sampler has {sampler.shards} shards for rank {sampler.rank} of {sampler.size}; "
                              f"the model has {self._shards} shards for rank {self._rank} of {self._size}")
        names = ("samples", "batch_size", "shuffle", "seed", "drop_last", "epoch", "first_step")
        agree(self._group, "ShardSampler", {name: getattr(sampler, name) for name in names})
        warn_of_random_transforms(loader)
        batches, epoch = iter(loader), sampler.epoch

        def next_batch(shard):
            try:
                return next(batches)
            except StopIteration:
                raise InvalidCall(f"{self._place}: the loader has ended before shard {shard} of step {step}") from None

        for step in range(sampler.first_step, sampler.steps):
            before = self._completed
            yield self._run(next_batch, sampler.counts(step), sampler.rows(step), epoch, step)
            if self._completed == before:
                raise InvalidCall(f"{self._place}: step {step} was not trained; go through all of its shards")

    def backward(self, loss, samples, *, last=True, **options):
        """Runs the backward pass of the current shard, whose `loss` is a mean over `samples` (or tokens). A shard that
        has several passes gives `last=False` to all but the last one: their gradients and losses add up, as in torch.
        They are of the same samples, which count once. `options` are those of `Tensor.backward`."""
        if self._shard is None:
            raise InvalidCall(f"{self._place}: call backward within `for ... in ddp.shards(...)` or `ddp.steps(...)`")
        shard = f"{self._place}: shard {self._shard}"
        if self._is_over:
            raise InvalidCall(f"{shard} has had its backward pass; pass last=False to all but the last one")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise InvalidCall(f"{shard}: the loss must be one number, the mean over the samples")
        count = int(samples)
        if count != samples or count < 0:
            raise InvalidCall(f"{shard}: samples is {samples}; it must be a whole number")
        if self._shard_samples not in (None, count):
            raise InvalidCall(f"{shard}: this pass has {count} samples, and the one before {self._shard_samples}; the passes of a shard "
                              "are of the same samples, so pass one count, and divide other samples by more shards")
        is_first, self._shard_samples = self._shard_samples is None, count
        self._is_over = last
        if not count:
            return
        self._in_backward, self._is_last_pass = True, last
        try:
            loss.backward(torch.full_like(loss, count), **options)
        finally:
            self._in_backward = False
        self._own_samples += count if is_first else 0
        self._losses.current.add_(loss.detach().double().reshape(1).cpu() * count)

    def _run(self, fetch, counts, rows, epoch, step, data=0):
        """`data` is the fingerprint of a batch that every rank has."""
        self._begin()
        states = self._generators.states()
        present = [shard for shard, count in zip(self._own, counts) if count]
        end = present[-1] if present else self._own[0] - 1
        behind, done = range(max(end, self._own[0]), self._own[-1] + 1), False
        try:
            for shard, count in zip(self._own, counts):
                is_end = shard == end
                self._losses.current.zero_()
                if count:
                    self._generators.seed(stream(self._seed, epoch, step, shard))
                    self._statistics.begin_shard()
                    self._behind = behind if is_end and self._overlap else None
                    self._shard, self._is_over, self._shard_samples = shard, False, None
                    yield _aligned(fetch(shard))
                    self._end_pass(shard, behind if is_end else None)
                    self._shard = None
                with torch.no_grad():
                    self._losses.end_shard(shard)
                    if shard < behind.start:
                        self._gradients.end_shard(shard)
                    self._statistics.end_shard(shard, count)
            with torch.no_grad():
                self._gradients.launch(behind)
                self._finish(rows, data, stream(epoch, step, rows, data) % _COMPARED)
            done = True
            self._completed += 1
        finally:
            self._left = None if done else self._shard if self._shard is not None else self._own[0]
            self._shard = None
            self._generators.restore(states)

    def _begin(self):
        if self._left is not None:
            raise InvalidCall(f"{self._place}: the step before was left in shard {self._left}; a step needs all of its shards")
        if self._count != sum(1 for _ in self.module.parameters()):
            raise InvalidCall(f"{self._place}: the module has other parameters than when it was wrapped; wrap it again")
        if self._trace:
            self._trace.begin()
        self._kept = []
        for parameter, result in zip(self._trained, self._results):
            gradient, parameter.grad = parameter.grad, None
            # The memory of the last results is used again.
            self._kept.append(gradient.clone() if gradient is not None and gradient is result else gradient)
        self._results = [None] * len(self._trained)
        self._used = [0] * len(self._trained)
        self._own_samples, self._problem = 0, None
        self._gradients.begin()
        self._statistics.begin()
        self._losses.reset()

    def _on_gradient(self, index, parameter):
        """Takes a parameter's gradient, as soon as the backward pass has it."""
        if not self._in_backward:
            if self._shard is None:
                return
            raise InvalidCall(f"{self._place}: call ddp.backward(loss, samples), not loss.backward()")
        if self._is_last_pass and self._overlap:
            with torch.no_grad():
                self._take(index, parameter)

    def _take(self, index, parameter):
        gradient, name = parameter.grad, self._names[index]
        if gradient.layout is not torch.strided:
            raise InvalidCall(f"{self._place}: the gradient of parameter {name} is sparse; use sparse=False")
        if self._gradients.has(index):
            raise InvalidCall(f"{self._place}: parameter {name} has a second gradient in one backward pass; use "
                              "checkpoint(use_reentrant=False), or overlap=False")
        parameter.grad = None
        self._used[index] = 1
        self._gradients.put(index, gradient, self._behind)

    def _end_pass(self, shard, behind):
        """Ends a shard of this rank that has samples."""
        if not self._is_over:
            self._note(f"shard {shard} had no call of ddp.backward(loss, samples)")
        if torch.get_num_threads() != self._threads:
            self._note(f"torch.get_num_threads() is {torch.get_num_threads()} and was {self._threads} at the begin")
        self._behind = None
        with torch.no_grad():
            for index, parameter in enumerate(self._trained):
                if parameter.grad is not None:
                    self._take(index, parameter)

    def _note(self, problem):
        self._problem = self._problem or problem

    def _finish(self, rows, data, key):
        """Waits for the sums of all ranks, and sets gradients and buffers."""
        self._losses.start()
        numbers = [self._own_samples, int(self._problem is not None), key, key * key, *self._used, *self._statistics.changed()]
        totals = torch.tensor(numbers, dtype=torch.float64)
        if self._size > 1:
            self._group.allreduce(totals).wait()
        samples, problems, keys, squares, *flags = map(int, totals.tolist())
        if problems or squares * self._size != keys * keys:
            self._raise_problem(key, rows, data)
        if not samples:
            raise InvalidCall(f"{self._place}: the step has no samples")
        self._gradients.wait(samples)
        used, changed = flags[: len(self._trained)], flags[len(self._trained) :]
        for index, parameter in enumerate(self._trained):
            if used[index]:
                self._results[index] = self._gradients.result(index)
                kept = self._kept[index]
                parameter.grad = self._results[index] if kept is None else kept.add_(self._results[index])
            else:
                parameter.grad = self._kept[index]
        self._kept = []
        self._statistics.merge([index for index, flag in enumerate(changed) if flag], rows)
        self.loss, self.samples = self._losses.wait().item() / samples, samples
        if self._trace:
            self._trace.end(self.loss, samples)

    def _raise_problem(self, key, rows, data):
        mine = (self._problem, key, (rows, data))
        everyone = [mine]
        if self._size > 1:
            everyone = [None] * self._size
            dist.all_gather_object(everyone, mine, group=self._group)
        others = [rank for rank, (_, other_key, _) in enumerate(everyone) if other_key != everyone[0][1]]
        for rank, (problem, _, (other_rows, other_data)) in enumerate(everyone):
            first_rows, first_data = everyone[0][2]
            if problem is None and rank in others:
                which = f"its step or batch is another than rank 0's, of {other_rows} and {first_rows} samples"
                if other_rows == first_rows and other_data != first_data:
                    ranks = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
                    which = f"its batch of {rows} samples has other data than rank 0's (these differ: {ranks})"
                problem = f"{which}; all ranks pass the same whole batch"
            if problem is not None:
                error = InvalidCall(f"DistributedDataParallel of rank {rank}: {problem}")
                error.operation, error.rank, error.culprit = "DistributedDataParallel", self._rank, rank
                raise error
