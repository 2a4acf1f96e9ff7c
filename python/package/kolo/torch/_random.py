"""Random generators of a device."""

import torch


class Generators:
    """The default generators that a module on a device draws from: the CPU's, and that of its GPU."""

    def __init__(self, device):
        self._all = [torch.default_generator]
        if device.type == "cuda":
            self._all.append(torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index])

    def seed(self, seed):
        for generator in self._all:
            generator.manual_seed(seed)

    def states(self):
        return [generator.get_state() for generator in self._all]

    def restore(self, states):
        for generator, state in zip(self._all, states):
            generator.set_state(state)
