#!/usr/bin/env python3
"""Writes trajectories.json: the weights that PyTorch's optimizers reach from trajectories.rs's weights and gradients.

    python3 crates/kolo-optim/tests/pytorch/trajectories.py   # needs torch 2.9 or newer; 2.11 wrote the file

Everything runs in double precision. torch.optim.Muon orthogonalizes in bfloat16 for parameters of any type; here
PyTorch's own function runs in double precision, with that one conversion taken out.
"""

import inspect
import json
import math
from pathlib import Path

import torch
from torch.optim import _muon

STEPS, WRITTEN = 50, (1, 10, 50)
SHAPES = [[5], [4, 6], [3, 2, 2, 2], [9, 3]]
RATE = 0.02

CASES = [
    ("sgd", torch.optim.SGD, {}),
    ("sgd", torch.optim.SGD, {"momentum": 0.9}),
    ("sgd", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.05}),
    ("sgd", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.05, "nesterov": True}),
    ("adam", torch.optim.Adam, {}),
    ("adam", torch.optim.Adam, {"weight_decay": 0.05, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
    ("adamw", torch.optim.AdamW, {"weight_decay": 0.0}),
    ("adamw", torch.optim.AdamW, {"weight_decay": 0.5, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
    ("muon", torch.optim.Muon, {"weight_decay": 0.0}),
    ("muon", torch.optim.Muon, {"weight_decay": 0.5, "momentum": 0.9, "nesterov": False}),
    ("muon", torch.optim.Muon, {"weight_decay": 0.1, "match_rms_adamw": False}),
]
"""Name in Kolo's table, PyTorch's class, settings by their names in Kolo."""


def noise(index: int) -> float:
    """Returns a number in [-1, 1) with 11 bits, exact in single and double precision."""
    x = (index + 1) * 2654435761 & 0xFFFFFFFF
    x = (x ^ x >> 15) * 2246822519 & 0xFFFFFFFF
    return ((x ^ x >> 13) % 2048 - 1024) / 1024


def tensor(start: int, shape: list[int]) -> torch.Tensor:
    values = [noise(start + i) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def in_double_precision() -> None:
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count(".bfloat16()") == 1
    exec(source.replace(".bfloat16()", ".clone()"), vars(_muon))


def keywords(settings: dict) -> dict:
    """Returns the settings by PyTorch's names."""
    named = dict(settings)
    if "beta1" in named:
        named["betas"] = (named.pop("beta1"), named.pop("beta2"))
        named["eps"] = named.pop("epsilon")
    return named


def optimizers(cls: type, settings: dict, parameters: list) -> list[torch.optim.Optimizer]:
    named = keywords(settings)
    if cls is not torch.optim.Muon:
        return [cls(parameters, lr=RATE, **named)]
    named["adjust_lr_fn"] = "match_rms_adamw" if named.pop("match_rms_adamw", True) else "original"
    # AdamW steps all other tensors, with the same weight decay.
    small = [p for p in parameters if p.dim() < 2]
    rest = torch.optim.AdamW(small, lr=RATE, weight_decay=named["weight_decay"])
    return [torch.optim.Muon([p for p in parameters if p.dim() == 2], lr=RATE, **named), rest]


def trajectory(cls: type, settings: dict) -> list[list[float]]:
    # Muon takes matrices only: kernels of a convolution as outputs × rest.
    shapes = [shape if len(shape) < 3 else [shape[0], math.prod(shape[1:])] for shape in SHAPES]
    starts = [sum(math.prod(s) for s in shapes[:n]) for n in range(len(shapes))]
    parameters = [torch.nn.Parameter(tensor(start, shape)) for start, shape in zip(starts, shapes)]
    running = optimizers(cls, settings, parameters)
    written = []
    for step in range(1, STEPS + 1):
        for start, parameter in zip(starts, parameters):
            parameter.grad = tensor(1000 * step + start, list(parameter.shape))
        for optimizer in running:
            optimizer.step()
        if step in WRITTEN:
            written.append([float(f"{x:.10g}") for p in parameters for x in p.detach().flatten().tolist()])
    return written


def main() -> None:
    in_double_precision()
    cases = [
        {"optimizer": name, "settings": settings, "weights": trajectory(cls, settings)} for name, cls, settings in CASES
    ]
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = json.dumps({"torch": torch.__version__.split("+")[0], "rate": RATE, "steps": WRITTEN, "shapes": SHAPES})
    Path(__file__).with_suffix(".json").write_text(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n')


main()
