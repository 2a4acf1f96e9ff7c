"""Processor time of a training step of GPT-2 (forward, backward, fused AdamW) in PyTorch, on one thread.

It reads lines `LAYERS WIDTH VOCABULARY BATCH TIME SECONDS` from standard input, and answers each with the median of
the steps that fit into the time, in milliseconds. With `--compile` the module and its loss are compiled.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch.nn import GELU, Embedding, LayerNorm, Linear, Module, Sequential
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

HEAD, POSITIONS = 64, 1024
"""Of GPT-2's published sizes: the width of a head, and the longest window."""


class Block(Module):
    """Normalizations come first; one linear layer computes queries, keys and values."""

    def __init__(self, width: int):
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(width), LayerNorm(width)
        self.c_attn, self.c_proj = Linear(width, 3 * width), Linear(width, width)
        self.mlp = Sequential(
            Linear(width, 4 * width), GELU(approximate="tanh"), Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, -1, HEAD).transpose(1, 2) for part in parts)
        heads = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(heads.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln_2(x))


class Gpt2(Module):
    """The embedding of tokens is also the last layer."""

    def __init__(self, layers: int, width: int, vocabulary: int):
        super().__init__()
        self.wte, self.wpe = Embedding(vocabulary, width), Embedding(POSITIONS, width)
        self.blocks = Sequential(*(Block(width) for _ in range(layers)))
        self.ln_f = LayerNorm(width)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss."""
        positions = torch.arange(tokens.shape[1])
        x = self.ln_f(self.blocks(self.wte(tokens) + self.wpe(positions)))
        scores = x @ self.wte.weight.T
        return cross_entropy(scores.view(-1, scores.shape[-1]), targets.reshape(-1))


def windows(vocabulary: int, batch: int, length: int) -> torch.Tensor:
    """The tokens of the other side."""
    number = torch.arange(batch * (length + 1))
    return ((number * 7_919 + number // 3 * 104_729) % vocabulary).reshape(batch, length + 1)


def step(
    layers: int, width: int, vocabulary: int, batch: int, length: int, compiled: bool
) -> Callable[[], float]:
    """A function that takes a step and returns its milliseconds, after two that warm up."""
    torch.manual_seed(0)
    model: Module = Gpt2(layers, width, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    loss_of = torch.compile(model) if compiled else model
    tokens = windows(vocabulary, batch, length)
    seen, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def take() -> float:
        begun = time.process_time()
        optimizer.zero_grad()
        loss_of(seen, targets).backward()
        optimizer.step()
        return 1e3 * (time.process_time() - begun)

    take()
    take()
    return take


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--compile", action="store_true")
    compiled = parser.parse_args().compile
    torch.set_num_threads(1)
    shape, take = "", None
    for line in sys.stdin:
        wanted, _, seconds = line.rpartition(" ")
        if take is None or wanted != shape:
            take = None
            shape, take = wanted, step(*map(int, wanted.split()), compiled)
        end = time.monotonic() + float(seconds)
        times = [take()]
        while time.monotonic() < end:
            times.append(take())
        print(statistics.median(times), flush=True)


if __name__ == "__main__":
    main()
