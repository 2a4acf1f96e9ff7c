#!/usr/bin/env python3
"""Writes documents.jsonl.gz and SHA256SUMS from the documents as they are now.

    python3 crates/kolo-data/assets/kolo-documents/make.py
"""

import gzip
import hashlib
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
GENERATED = {"command-line.md", "SUMMARY.md"}


def main() -> None:
    pages = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED]
    lines = []
    for path in [ROOT / "README.md", *pages]:
        lines.append(json.dumps({"name": str(path.relative_to(ROOT)), "text": path.read_text()}, ensure_ascii=False))
    packed = gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)
    (HERE / "documents.jsonl.gz").write_bytes(packed)
    (HERE / "SHA256SUMS").write_text(f"{hashlib.sha256(packed).hexdigest()}  documents.jsonl.gz\n")


if __name__ == "__main__":
    main()
