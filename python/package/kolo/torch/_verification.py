"""The trace of a training, by which `kolo verify` compares its runs: `kolo_step::trace` has the format.

With KOLO_VERIFY_FILE, rank 0 writes fingerprints of all parameters and buffers after every step, and the ranks
compare theirs. With KOLO_VERIFY_RESUME=k all ranks forget values and optimizers after step k, and load a checkpoint.
"""

import ctypes
import hashlib
import json
import math
import os
import struct
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .._errors import InvalidCall
from ._agreement import agree

_PLACE = "DistributedDataParallel"


def _bytes(tensor):
    tensor = tensor.detach().contiguous().cpu()
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)


def _tensors(module):
    """Returns (name, tensor, is a buffer) of all parameters and buffers."""
    named = [(name, tensor, False) for name, tensor in module.named_parameters()]
    return named + [(name, tensor, True) for name, tensor in module.named_buffers()]


def weights_sha256(module):
    """Returns the SHA-256 of all parameters and buffers with their names."""
    digest = hashlib.sha256()
    for name, tensor, _ in _tensors(module):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode() + _bytes(tensor))
    return digest.hexdigest()


def _fingerprints(module):
    return [hashlib.blake2b(_bytes(tensor), digest_size=8).hexdigest() for _, tensor, _ in _tensors(module)]


class Requests:
    """Settings from the environment; `file` is None without a trace."""

    def __init__(self, environment=os.environ):
        def number(name, kind, least):
            text = environment.get(name)
            if not text:
                return None
            try:
                value = kind(text)
            except ValueError:
                value = math.nan
            if not least <= value < math.inf:
                raise InvalidCall(f"{_PLACE}: {name} is `{text}`; it must be a number from {least}")
            return value

        self.file = environment.get("KOLO_VERIFY_FILE") or None
        self.steps, self.resume = number("KOLO_VERIFY_STEPS", int, 1), number("KOLO_VERIFY_RESUME", int, 1)
        self.bucket_cap_mb = number("KOLO_VERIFY_BUCKET_CAP_MB", float, 1e-9)
        if self.file and not self.steps:
            raise InvalidCall(f"{_PLACE}: KOLO_VERIFY_FILE without KOLO_VERIFY_STEPS, as `kolo chaos` starts a program; this class does "
                              "not recover from deaths, so kolo chaos has nothing to test; use kolo verify")


class Trace:
    """The trace of one model."""

    def __init__(self, requests, module, group, shards):
        self._requests, self._module, self._group, self._shards = requests, module, group, shards
        self._rank = 0 if group is None else group.rank()
        self._file, self._seen, self._pending, self._optimizers = None, 0, None, []
        own = {id(parameter) for parameter in module.parameters()}
        self._within, self_of = [], weakref.ref(self)

        def is_ours(optimizer):
            return any(id(parameter) in own for each in optimizer.param_groups for parameter in each["params"])

        def before_step(optimizer, *_):
            trace = self_of()
            if trace is not None and is_ours(optimizer):
                trace._within.append(optimizer)

        def after_step(optimizer, *_):
            trace = self_of()
            if trace is None or optimizer not in trace._within:
                return
            # One whose step runs another one, such as ZeroRedundancyOptimizer, is over when both are.
            del trace._within[trace._within.index(optimizer):]
            if not trace._within:
                if optimizer not in trace._optimizers:
                    trace._optimizers.append(optimizer)
                trace.flush()

        self._hooks = register_optimizer_step_pre_hook(before_step), register_optimizer_step_post_hook(after_step)

    def begin(self):
        """Begins a step; before the first one it writes the model's values."""
        self._within.clear()
        self.flush()
        if self._seen or self._file or self._rank:
            return
        tensors = [{"name": name, "statistic": is_buffer, "print": value}
                   for (name, _, is_buffer), value in zip(_tensors(self._module), _fingerprints(self._module))]
        size, transport = (1, "solo") if self._group is None else (self._group.size(), self._group.transport)
        try:
            self._file = open(self._requests.file, "x")
        except FileExistsError:
            raise InvalidCall(f"{_PLACE}: {self._requests.file} exists; every run, and every model of it, needs a file of its own "
                              "(KOLO_VERIFY_FILE), so kolo verify takes programs with one model") from None
        # kolo verify leaves out runs with summation servers and tuned steps, which a job of torch has not.
        self._write({"world_size": size, "shards": self._shards, "foreign": True, "transport": transport, "tensors": tensors})

    def end(self, loss, samples):
        """Ends a step, whose values the optimizer will set."""
        self._pending = (loss, samples)

    def flush(self):
        """Writes the step that has ended, if its values are set."""
        if self._pending is None:
            return
        (loss, samples), self._pending = self._pending, None
        step, prints = self._seen, _fingerprints(self._module)
        self._seen += 1
        names = [f"{'buffer' if is_buffer else 'parameter'} {name} after step {step}" for name, _, is_buffer in _tensors(self._module)]
        agree(self._group, _PLACE, dict(zip(names, prints)))
        if self._file and step < self._requests.steps:
            bits = struct.pack(">d", loss).hex()
            self._write({"step": step, "loss": loss if math.isfinite(loss) else None, "loss_bits": bits, "count": float(samples),
                         "prints": prints})
        if self._requests.resume == self._seen:
            self._restart()

    def _restart(self):
        """Does what a process that resumes does: all values and optimizers come from a file."""
        path, optimizers = f"{self._requests.file}.checkpoint", self._optimizers
        for optimizer in optimizers:
            if hasattr(optimizer, "consolidate_state_dict"):
                # The ranks have parts of a ZeroRedundancyOptimizer's state.
                optimizer.consolidate_state_dict(to=0)
        state = self._module.state_dict()
        if self._rank == 0:
            torch.save({"model": state, "optimizers": [optimizer.state_dict() for optimizer in optimizers]}, path)
        agree(self._group, _PLACE, {"the number of optimizers": len(optimizers)})
        with torch.no_grad():
            for value in state.values():
                value.zero_()
        saved = torch.load(path, map_location="cpu", weights_only=True)
        self._module.load_state_dict(saved["model"])
        for optimizer, own in zip(optimizers, saved["optimizers"]):
            optimizer.state.clear()
            getattr(optimizer, "optim", optimizer).state.clear()
            optimizer.load_state_dict(own)

    def _write(self, line):
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
