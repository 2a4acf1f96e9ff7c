#!/usr/bin/env python3
"""Runs the commands that stand in documents as ```console blocks, and puts in what they print. All of them
print the same on every machine.

    python3 bench/consoles.py                    # with target/release/kolo
    python3 bench/consoles.py --kolo PROGRAM --check      # writes nothing; fails where a document differs
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console\n\$ (kolo [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.kolo.exists():
        print(f"error: there is no {arguments.kolo}: build it, or name it with --kolo", file=sys.stderr)
        return 2

    def printed(block: re.Match[str]) -> str:
        words = shlex.split(block[1])[1:]
        run = subprocess.run([arguments.kolo, *words], capture_output=True, text=True, timeout=60, check=True)
        return f"```console\n$ {block[1]}\n{run.stdout}```"

    stale, count = [], 0
    for document in DOCUMENTS:
        text = document.read_text()
        new, blocks = BLOCK.subn(printed, text)
        count += blocks
        if new != text:
            stale.append(document.name)
            if not arguments.check:
                document.write_text(new)
    print(f"{count} commands; {'differs' if arguments.check else 'written'}: {', '.join(stale) or 'nothing'}")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
