#!/usr/bin/env python3
"""Where the time of one worker's training step goes, by operation, sampled with `perf`.

    cargo build --release && python3 bench/profile.py [--kolo PROGRAM] [--blocks N]

Needs Linux's `perf` (Debian: linux-perf) and binutils. What a function belongs to is told by its name, and by
the names of what is inlined in it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_MS = 4000
"""Left out: the model is made, buckets are laid, memory is touched for the first time."""
OPERATIONS = {
    "optimizer": r"kolo_optim::|Optimizer>::update",
    "convolutions": r"imp_fastcall|conv::panel|conv::implicit_gemm|conv::weight_gradient|burn_flex::ops::conv|gemm",
    "batch normalization, ReLU, shortcut, pooling": (
        r"vectorize::imp\b|burn_flex::ops::(pool|activation|binary|unary)"
    ),
    "copies: weights to tensors, gradients to buckets": r"memmove|memcpy|copy_nontemporal|burn_flex::tensor",
    "memory set to zero": r"memset|malloc_zero|calloc|clear_page",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--blocks", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kolo-profile-") as folder:
        data = f"{folder}/perf.data"
        step = ["bench", "step", "--nproc", "1", "--model", "resnet18", "--batch-size", "32", "--json"]
        step += ["--blocks", str(options.blocks)]
        record = ["perf", "record", "-q", "-D", str(START_MS), "-F", "1999", "-e", "cpu-clock", "-o", data]
        try:
            answer = json.loads(run([*record, "--", str(options.kolo), *step]))
            samples = run(["perf", "script", "-i", data, "-F", "ip,sym,symoff", "--no-demangle", "--no-inline"])
            names = functions(options.kolo, samples)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    milliseconds = 1e3 * answer["step_seconds"]
    print(f"a step of one worker: {milliseconds:.1f} ms")
    for operation, share in shares(names).items():
        print(f"| {operation} | {share * milliseconds:.1f} ms | {100 * share:.0f} % |")
    return 0


def run(argv: list[str], text: str = "") -> str:
    return subprocess.run(argv, input=text, check=True, capture_output=True, text=True).stdout


def functions(program: Path, samples: str) -> list[str]:
    """For each sample the name of its function. All loops that were compiled for wide vectors have one name:
    theirs is followed by the names of what is inlined there."""
    symbols = [line.split() for line in run(["nm", "--defined-only", str(program)]).splitlines()]
    starts = {name: int(address, 16) for address, _, name in symbols}
    found = [
        (name, starts.get(name, 0) + int(offset, 16))
        for name, offset in re.findall(r"^\s*[\da-f]+ (.+)\+0x([\da-f]+)$", samples, re.MULTILINE)
    ]
    mangled = sorted({name for name, _ in found})
    names = dict(zip(mangled, run(["c++filt"], "\n".join(mangled)).splitlines(), strict=True))
    places = sorted({place for name, place in found if "vectorize" in name and name in starts})
    chains = run(["addr2line", "-e", str(program), "-a", "-f", "-i", "-C"], "\n".join(map(hex, places)))
    addresses_and_chains = iter(re.split(r"^0x([\da-f]+)$", chains, flags=re.MULTILINE)[1:])
    inlined = {int(address, 16): chain for address, chain in zip(addresses_and_chains, addresses_and_chains)}
    return [names[name] + inlined.get(place, "") for name, place in found]


def shares(names: list[str]) -> dict[str, float]:
    """The part of all samples that each operation has, and the rest."""
    found = dict.fromkeys([*OPERATIONS, "the rest"], 0.0)
    for name in names:
        of_it = [operation for operation, pattern in OPERATIONS.items() if re.search(pattern, name)]
        found[of_it[0] if of_it else "the rest"] += 1 / len(names)
    return found


if __name__ == "__main__":
    sys.exit(main())
