#!/usr/bin/env python3
"""Compares loss and gradients of Kolo's GPT-2 with those of transformers' GPT2LMHeadModel at the same weights.

    PYTHON -P bench/peers/gpt2_values.py --example PROGRAM [--layers N] [--vocabulary N] [--batch N] [--time N]

PYTHON has torch and transformers; -P keeps transformers.py beside this file out of its way. Exit code 1 if the
loss is further than 1e-4 from the other, or a gradient further than 1e-4 of that parameter's largest.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LIMIT = 1e-4


def windows(vocabulary: int, batch: int, length: int) -> torch.Tensor:
    """The tokens of the example."""
    number = torch.arange(batch * (length + 1))
    return ((number * 7_919 + number // 3 * 104_729) % vocabulary).reshape(batch, length + 1)


def theirs(model: GPT2LMHeadModel, tokens: torch.Tensor) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean loss, and the gradient of each parameter by Kolo's name for it."""
    scores = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].reshape(-1))
    loss.backward()
    found = {}
    for name, parameter in model.named_parameters():
        path = name.removeprefix("transformer.") if name.split(".")[1] in ("wte", "wpe") else name
        if ".ln_" in path:
            path = path.removesuffix("weight") + "gamma" if path.endswith("weight") else path[:-4] + "beta"
        found[path] = parameter.grad
    return loss.item(), found


def ours(example: Path, folder: Path, batch: int, length: int) -> tuple[list[str], torch.Tensor]:
    """The names of the parameters, and the loss with the gradients side by side."""
    out = folder / "gradients"
    argv = [example, folder, batch, length, out]
    names = subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout
    return names.split(), torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--example", type=Path, required=True, help="the example gpt2_step of kolo-models")
    for name, usual in (("layers", 12), ("vocabulary", 50_257), ("batch", 4), ("time", 256)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=options.layers, vocab_size=options.vocabulary, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0
    )
    model = GPT2LMHeadModel(config)
    for name, parameter in model.named_parameters():
        if "ln_" in name or name.endswith("bias"):
            parameter.data += 0.1 * torch.randn_like(parameter)
    loss, gradients = theirs(model, windows(options.vocabulary, options.batch, options.time))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        names, values = ours(options.example.resolve(), Path(folder), options.batch, options.time)
    assert sorted(names) == sorted(gradients), set(names) ^ set(gradients)
    sizes = [gradients[name].numel() for name in names]
    found, *parts = values.split([1, *sizes])
    apart = {
        name: ((part - gradients[name].flatten()).abs().max() / gradients[name].abs().max()).item()
        for name, part in zip(names, parts, strict=True)
    }
    worst = max(apart, key=lambda name: apart[name])
    print(f"loss {found.item():.6f}, transformers' {loss:.6f}; {len(names)} gradients, of which {worst} is the")
    print(f"furthest away: {apart[worst]:.1e} of its largest element (limit {LIMIT:.0e})")
    return int(abs(found.item() - loss) > LIMIT or apart[worst] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
