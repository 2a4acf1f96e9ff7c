#!/usr/bin/env python3
"""Writes docs/command-line.md, the reference of the command line, from what `kolo … --help` prints.

    python3 bench/command_line.py                            # with target/release/kolo
    python3 bench/command_line.py --kolo PROGRAM --check     # writes nothing; fails where the page differs
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "command-line.md"
HEAD = """# Command line

`kolo COMMAND --help` prints the same. Options that begin with `--no-` turn something off; all others are off, or have
the default that stands at the end.
"""
COMMON = "-h, --help", "-V, --version"
FEW = 12
"""Options in common with `kolo train` that are listed by name."""


@dataclass
class Help:
    """The parts of a command's help."""

    about: str
    usage: str
    subcommands: list[str] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)
    """Arguments and options, each with its text."""
    tables: list[tuple[str, str]] = field(default_factory=list)
    """What stands behind the options: a title and lines."""


def parsed(text: str) -> Help:
    """The parts of what `--help` prints."""
    about, _, rest = text.partition("\nUsage: ")
    usage, _, rest = rest.partition("\n")
    found = Help(" ".join(about.split("\n\n")[0].split()), usage.strip())
    for section in re.split(r"\n(?=\S)", rest.strip("\n")):
        title, _, body = section.partition("\n")
        match title:
            case "Commands:":
                names = re.findall(r"^  (\S+)", body, re.MULTILINE)
                found.subcommands = [name for name in names if name != "help"]
            case "Options:" | "Arguments:":
                found.options += list(options(body))
            case _ if title.endswith(":") or body:
                found.tables.append((title.rstrip(":"), body.rstrip()))
            case _ if title:
                found.tables.append(("", title))
    return found


def options(body: str) -> Iterator[tuple[str, str]]:
    """The options of a section, each with its text as one line."""
    for block in re.split(r"\n(?= {2,6}[-<\[])", "\n" + body):
        if not block.strip():
            continue
        name, _, text = block.strip("\n").partition("\n")
        # Short helps have the text on the same line.
        name, _, beside = re.sub(r"^ +", "", name).partition("  ")
        if name in COMMON:
            continue
        text = " ".join(f"{beside} {text}".split())
        text, listed, values = text.partition("Possible values: - ")
        if listed:
            values = re.sub(r"\.? - (?=[a-z][a-z-]*:)", "; ", re.sub(r"(?<=\]) - ", "; ", values))
            text = f"{text.strip().rstrip('.')}. Values: {values}"
        yield name, text


def cell(text: str) -> str:
    """Text as a cell of a table: angle brackets and bars are no markup."""
    return re.sub(r"(?<!`)<([^>`]+)>(?!`)", r"&lt;\1&gt;", text).replace("|", "\\|")


def page(help_of: Callable[[list[str]], str]) -> str:
    """The whole page."""
    parts = [HEAD]
    train = parsed(help_of(["train"]))
    known = dict(train.options)

    listed: dict[str, list[tuple[str, str]]] = {}

    def add(command: list[str]) -> None:
        found = parsed(help_of(command))
        parts.append(f"{'#' * (len(command) + 1)} `kolo {' '.join(command)}`\n")
        parts.append(f"{found.about.rstrip('.')}.\n")
        if not found.subcommands:
            parts.append(f"```text\n{found.usage}\n```\n")
        own = [(name, text) for name, text in found.options if command == ["train"] or known.get(name) != text]
        alike = next((name for name, theirs in listed.items() if own and own == theirs), None)
        listed.setdefault(" ".join(command), own)
        if alike:
            parts.append(f"The options of [`kolo {alike}`](#kolo-{alike.replace(' ', '-')}).\n")
        elif own:
            rows = ["| `{}` | {} |".format(name.replace("|", "\\|"), cell(text)) for name, text in own]
            parts.append("| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
        shared = [re.split(r"[ \[]", name)[0] for name, text in found.options if (name, text) not in own]
        names = ", ".join(f"`{name}`" for name in shared)
        if alike:
            pass
        elif len(shared) > FEW:
            parts.append("The other options are those of [`kolo train`](#kolo-train).\n")
        elif shared:
            parts.append(f"Also {names}, as for [`kolo train`](#kolo-train).\n")
        for title, lines in found.tables:
            if (title, lines) not in train.tables or command == ["train"]:
                parts.append(f"**{title}**\n\n```text\n{lines}\n```\n" if title else f"{lines}\n")
        for name in found.subcommands:
            add([*command, name])

    for name in parsed(help_of([])).subcommands:
        add([name])
    return "\n".join(parts)


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "release" / "kolo")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.kolo.exists():
        print(f"error: there is no {arguments.kolo}: build it, or name it with --kolo", file=sys.stderr)
        return 2

    def help_of(command: list[str]) -> str:
        words = [arguments.kolo, *command, "--help"]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    text = page(help_of)
    if arguments.check:
        is_same = PAGE.exists() and PAGE.read_text() == text
        print("docs/command-line.md is that of --help" if is_same else "docs/command-line.md differs from --help")
        return 0 if is_same else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
