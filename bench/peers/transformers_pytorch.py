"""Processor time of a forward and a backward pass of PyTorch's transformer, GPT-2's block, on one core.

It reads lines `BATCH TIME WIDTH HEADS LAYERS SECONDS` from standard input, and answers each with the median
of the passes that fit into the time, in milliseconds.
"""

import statistics
import sys
import time

import torch
from torch.nn import GELU, LayerNorm, Linear, Module, Sequential
from torch.nn.functional import scaled_dot_product_attention


class Block(Module):
    """Normalizations come first; one linear layer computes queries, keys and values."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = LayerNorm(width), LayerNorm(width)
        self.c_attn, self.c_proj = Linear(width, 3 * width), Linear(width, width)
        self.mlp = Sequential(Linear(width, 4 * width), GELU(), Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        heads = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(heads.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln_2(x))


def median(batch: int, length: int, width: int, heads: int, layers: int, seconds: float) -> float:
    """In milliseconds; after one pass that warms up."""
    transformer = Sequential(*(Block(width, heads) for _ in range(layers)), LayerNorm(width))
    x = torch.sin(torch.arange(batch * length * width) * 0.37).reshape(batch, length, width)

    def one_pass() -> float:
        transformer.zero_grad()
        begun = time.thread_time()
        transformer(x).sum().backward()
        return 1e3 * (time.thread_time() - begun)

    one_pass()
    end = time.monotonic() + seconds
    times = [one_pass()]
    while time.monotonic() < end:
        times.append(one_pass())
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        *sizes, seconds = line.split()
        print(median(*map(int, sizes), float(seconds)), flush=True)


if __name__ == "__main__":
    main()
