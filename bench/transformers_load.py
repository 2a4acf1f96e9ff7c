#!/usr/bin/env python3
"""Compares Kolo's GPT-2 with that of transformers, in both directions.

    PYTHON -P bench/transformers_load.py --kolo target/release/kolo --scores target/release/examples/gpt2_scores

PYTHON has torch and transformers; -P keeps profile.py beside this file out of its way. The scores are those of a run
that Kolo exports (`--run`, or one of a few steps), and of a model that transformers has made at random, from which Kolo
also begins a run. Ends with 1 if a score is further from Kolo's than 1e-4 of the largest, or if the loss of the text is.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LIMIT = 1e-4
TEXT = "Two workers add their gradients in the order of a tree, so that the sum has the same bits. äöü"


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


def kolos(options: argparse.Namespace, folder: Path, scratch: Path) -> torch.Tensor:
    """Kolo's scores of the text with the model in `folder`."""
    out = scratch / "scores"
    run(options.scores, folder, TEXT, out)
    return torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32).reshape(len(TEXT.encode()), -1)


def loss(scores: torch.Tensor, tokens: torch.Tensor) -> float:
    """Mean cross entropy of each next token."""
    return torch.nn.functional.cross_entropy(scores[:-1].double(), tokens[0, 1:]).item()


def compare(options: argparse.Namespace, name: str, folder: Path, scratch: Path) -> bool:
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    tokens = torch.tensor([list(TEXT.encode())])
    with torch.no_grad():
        theirs = model(tokens).logits[0]
    ours = kolos(options, folder, scratch)
    apart = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    losses = [loss(scores, tokens) for scores in (ours, theirs)]
    print(f"{name}: {apart:.1e} of the largest score apart (limit {LIMIT:.0e}); losses {losses[0]:.6f}, {losses[1]:.6f}", flush=True)
    return apart <= LIMIT and abs(losses[0] - losses[1]) <= LIMIT * losses[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kolo", type=Path, required=True, help="the program")
    parser.add_argument("--scores", type=Path, required=True, help="the example gpt2_scores of kolo-models")
    parser.add_argument("--run", type=Path, help="a run of a model gpt2, in place of one that is trained now")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        trained = options.run or scratch / "run"
        few = ["--model", "gpt2:tiny", "--nproc", 1, "--steps", 20, "--warmup-steps", 5]
        if not options.run:
            run(options.kolo, "train", *few, "--out", trained)
        run(options.kolo, "export", trained, "--format", "transformers", "--out", scratch / "exported")
        passed = compare(options, "Kolo's run", scratch / "exported", scratch)
        torch.manual_seed(0)
        shape = {"n_layer": 4, "n_embd": 128, "n_head": 2, "n_positions": 256, "vocab_size": 257}
        config = GPT2Config(**shape, bos_token_id=256, eos_token_id=256, initializer_range=0.2)
        GPT2LMHeadModel(config).save_pretrained(scratch / "random")
        passed &= compare(options, "a random model of transformers", scratch / "random", scratch)
        run(options.kolo, "train", *few, "--init", scratch / "random", "--out", scratch / "tuned")
        run(options.kolo, "generate", scratch / "random", "Two", "--tokens", 5)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
