#!/usr/bin/env python3
"""Names crates with too many lines of source, and structs of the step with too many fields.

    python3 bench/sizes.py

A reader keeps a crate of 8,000 lines apart in the mind, and a struct of 15 fields. Settings are lists, which may be
longer. Exit code 1 if something is too large.
"""

import re
import sys
from pathlib import Path

CRATES = Path(__file__).resolve().parent.parent / "crates"
MOST_LINES, MOST_FIELDS = 8_000, 15
STEP = ("kolo-comm", "kolo-ddp", "kolo-host", "kolo-step", "kolo-sync", "kolo-values")
SETTINGS = {"Config"}
STRUCT = re.compile(r"\bstruct (\w+)[^;{(]*\{\n(.*?)\n *\}", re.DOTALL)
FIELD = re.compile(r"^ +(?:pub(?:\([^)]*\))? )?[a-z_0-9]+: ", re.MULTILINE)


def main() -> int:
    findings = []
    for crate in sorted(CRATES.iterdir()):
        texts = {path: path.read_text() for path in sorted(crate.glob("src/**/*.rs"))}
        lines = sum(text.count("\n") for text in texts.values())
        if lines >= MOST_LINES:
            findings.append(f"{crate.name} has {lines:,} lines in src, {MOST_LINES:,} or more: give a part to another crate")
        if crate.name not in STEP:
            continue
        for path, text in texts.items():
            for name, body in STRUCT.findall(text):
                fields = len(FIELD.findall(body))
                if fields > MOST_FIELDS and name not in SETTINGS:
                    place = path.relative_to(CRATES.parent)
                    findings.append(f"{place}: {name} has {fields} fields, more than {MOST_FIELDS}: join what belongs together")
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
