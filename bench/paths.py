#!/usr/bin/env python3
"""Names the files that documents and comments cite and that are not there.

    python3 bench/paths.py

A citation is a path in backticks that begins with a folder of the repository or with the name of a crate. Exit
code 1 if one is missing.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = {path.name for path in (ROOT / "crates").iterdir()}
FOLDERS = {"candle", "crates", "bench", "docs", "examples", "fuzz", "loom", ".ci"}
CITED = re.compile(r"`([\w.-]+/[\w./-]+)`")


def missing(text: str) -> list[str]:
    """The paths that a text cites and that do not exist."""
    absent = []
    for path in CITED.findall(text):
        first = path.split("/")[0]
        base = ROOT / "crates" if first in CRATES else ROOT
        if (first in CRATES or first in FOLDERS) and not (base / path).exists():
            absent.append(path)
    return absent


def main() -> int:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("crates/*/*.md"), *ROOT.glob("crates/**/*.rs")]
    count = 0
    for path in sorted(texts):
        for cited in missing(path.read_text()):
            print(f"{path.relative_to(ROOT)} cites `{cited}`, which is not there")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
