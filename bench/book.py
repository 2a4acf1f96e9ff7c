#!/usr/bin/env python3
"""Checks the book in docs/: its table of contents, links, lengths, sentences and words, and that the program
knows the commands that the pages show. Each `kolo train` is tried with `--print-config`.

    python3 bench/book.py                           # what is wrong, and how long each part is
    python3 bench/book.py --check --kolo PROGRAM    # only what is wrong; commands as well; exit code 1 if anything is

A page is a file docs/NAME.md. Each page has a place in docs/SUMMARY.md; notes in docs/notes/ have none. Code
blocks, and what scripts write between markers, count neither as words nor as sentences.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

PART_WORDS = {"Get started": 900, "Guides": 900, "Concepts": 900, "Methods": 900, "Reference": 1300}
"""Words that a page of a part may have; pages of other parts may have `OTHER_WORDS`."""
OTHER_WORDS = 2500
BOOK_WORDS, README_WORDS = 30_000, 700
SENTENCE_WORDS = 30
GENERATED_PAGES = {"command-line.md"}
"""Pages that a script writes as a whole: their words do not count."""
READERS_WORDS = {
    r"(?:is|are|was|were|be|been) told": "Who reports what to whom?",
    r"heard": "received",
    r"lent": "deferred",
    r"crew|roll|desk": "the field's standard term",
    r"somebody|nobody's": "who?",
    r"one's own": "your",
    r"gone on with|goes on|go on": "continue",
    r"whoever|whomever": "a named subject",
    r"amiss|wherefore|whilst|thereof|therein": "plain words",
    r"(?:colou|behaviou|favou|neighbou)r\w*": "American spelling",
    r"\w+(?:normali|optimi|initiali|synchroni|recogni)s(?:e|es|ed|ing|ation)": "American spelling",
}
"""Words that stop readers, and what to write instead."""

HIDDEN_OPTIONS = {"--slow"}
"""Options that the help does not show, and a page explains."""

FENCE = re.compile(r"^(```+|~~~+)(\S*)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
MARKED = re.compile(r"<!-- (?:\S+?:? ?begin|[\w/]+\.py(?:: \w+)?) -->.*?<!-- (?:\S*? ?end|/[^>]+) -->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+", re.MULTILINE)
END = re.compile(r"[.!?][)*\"”]*\s+(?=[\"“(*]*[A-Z0-9`\[])")
WORD = re.compile(r"\S*\w\S*")


def without_code(text: str) -> str:
    """A page without its code blocks, comments and what scripts have written."""
    text = MARKED.sub("\n", FENCE.sub("\n", text))
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def plain(text: str) -> str:
    """Text with links as their titles, and pieces of code as one word each."""
    text = LINK.sub(r"\1", text)
    return re.sub(r"`[^`]*`", "`code`", text)


def words(text: str) -> int:
    """Number of words of a page."""
    text = LINK.sub(r"\1", without_code(text))
    return len(WORD.findall(text.replace("|", " ")))


def without_tables(text: str) -> str:
    return re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page; a table's cell is a paragraph."""
    text = HEADING.sub("\n", plain(without_code(text)))
    text = re.sub(r"^\|(.*)\|$", lambda row: "\n\n" + row[1].replace("|", "\n\n"), text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", ITEM.sub("\n\n", text)):
        yield from (found for found in END.split(" ".join(paragraph.split()) + " ") if found.strip())


def long_sentences(text: str) -> list[str]:
    return [found.strip() for found in sentences(text) if len(WORD.findall(found)) > SENTENCE_WORDS]


def stopping_words(text: str) -> list[str]:
    """The words of a page that stop readers, with what to write instead."""
    text = plain(without_code(text))
    return [
        f"`{found[0]}`: {instead}"
        for pattern, instead in READERS_WORDS.items()
        for found in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and mdBook make them."""
    found: dict[str, int] = {}
    result = set()
    for heading in HEADING.findall(FENCE.sub("\n", text)):
        title = LINK.sub(r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        result.add(f"{anchor}-{count}" if count else anchor)
    return result


def broken_links(path: Path, read: Callable[[Path], str | None]) -> Iterator[str]:
    """The relative links of a file whose target does not exist; `read` returns a file's text if it exists."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("\n", read(path) or ""))
    for _, link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        content = read(file)
        if content is None:
            yield f"the link {link} leads nowhere"
        elif anchor and file.suffix == ".md" and anchor not in anchors(content):
            yield f"{link}: there is no such heading"


def read(path: Path) -> str | None:
    if path.is_dir():
        return ""
    return path.read_text(errors="replace") if path.exists() else None


def contents(summary: str) -> dict[str, str]:
    """The part of each page, from SUMMARY.md."""
    pages, part = {}, ""
    for line in summary.splitlines():
        if line.startswith("# "):
            part = line[2:].strip()
        for _, target in LINK.findall(line):
            pages[target] = part
    return pages


class Commands:
    """The subcommands and options that a program's help names."""

    def __init__(self, help_of: Callable[[list[str]], str], refusal: Callable[[list[str]], str] = lambda _: ""):
        self.help_of, self.refusal = help_of, refusal
        self.known: dict[tuple[str, ...], tuple[set[str], set[str]]] = {}

    def of(self, command: tuple[str, ...]) -> tuple[set[str], set[str]]:
        """The subcommands and the options of a command."""
        if command not in self.known:
            text = self.help_of([*command, "--help"])
            listed = text.partition("\nCommands:\n")[2].partition("\n\n")[0]
            # Names stand two spaces from the left; descriptions that continue stand further right.
            subcommands = set(re.findall(r"^  (\w[\w-]*)", listed, re.MULTILINE)) - {"help"}
            options = re.findall(r"^ +(-\w)?,? *(--[\w-]+)?", text, re.MULTILINE)
            self.known[command] = subcommands, {name for pair in options for name in pair if name}
        return self.known[command]

    def wrong(self, line: str) -> list[str]:
        """What the program does not know of a shell command that begins with `kolo`."""
        problems: list[str] = []
        command: tuple[str, ...] = ()
        words = line.split()[1:]
        for at, word in enumerate(words):
            subcommands, options = self.of(command)
            if word == "--":
                program = words[at + 1] if at + 1 < len(words) else "-"
                if program == "kolo":
                    return problems + self.wrong(" ".join(words[at + 1 :]))
                if not program.startswith("-"):
                    break
                # `kolo chaos -- --steps 9` has options of `kolo train`.
                command = ("train",)
            elif word in subcommands:
                command = (*command, word)
            elif subcommands and not word.startswith("-"):
                problems.append(f"there is no command `{' '.join(('kolo', *command, word))}`")
                break
            elif re.match(r"--?[a-zA-Z]", word):
                option = word.split("=")[0]
                if option not in options | HIDDEN_OPTIONS:
                    problems.append(f"`{' '.join(('kolo', *command))}` has no option `{option}`")
        return problems


def shell_commands(text: str) -> list[str]:
    """The commands of a page's `sh` blocks that begin with `kolo`, without comments, one a line."""
    found = []
    for _, language, code in FENCE.findall(text):
        if language not in ("sh", "console"):
            continue
        for line in code.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            line = re.sub(r"\s#.*", "", line.removeprefix("$ "))
            line = re.sub(r"'[^']*'|\"[^\"]*\"", "quoted", line)
            found += [part.strip() for part in re.split(r"[;|&]+|\bthen\b", line)]
    # Variables before a command.
    found = [re.sub(r"^(?:[A-Z_]+=\S* )+", "", command) for command in found]
    return [command for command in found if command.startswith("kolo ")]


def trainings(text: str) -> list[list[str]]:
    """The arguments of each `kolo train` in a page's `sh` blocks that needs neither an earlier run nor a variable."""
    found = []
    for _, language, code in FENCE.findall(text):
        lines = code.replace("\\\n", " ").splitlines() if language == "sh" else []
        for line in lines:
            line = re.sub(r"\s#.*", "", line)
            command = re.search(r"\bkolo (train\b[^;&|]*)", line)
            if command and not re.search(r"[…$]|--resume\b|--config\b|\bFILE\b|\bPATH\b", command[1]):
                found.append(shlex.split(command[1]))
    return found


def inline_commands(text: str) -> list[str]:
    """The commands with options that stand in a page's sentences."""
    found = re.findall(r"`(kolo [^`]+)`", FENCE.sub("\n", text))
    return [re.sub(r"'[^']*'", "quoted", " ".join(command.split())) for command in found]


def environment_names(sources: Iterator[Path]) -> set[str]:
    """The variables that the sources define as constants and that users may meet."""
    names = set()
    for path in sources:
        for line in path.read_text().splitlines():
            if "const " in line and ": &str" in line:
                # The rendezvous' names are variables, whatever they begin with.
                prefix = "" if path.name == "names.rs" else "KOLO_"
                names |= set(re.findall(rf'"({prefix}[A-Z_]+)"', line))
    return {name for name in names if "_TEST_" not in name}


def launcher_names(sources: Iterator[Path]) -> set[str]:
    """The variables of launchers that the rendezvous reads."""
    prefix = r'"((?:OMPI|PMI|PMIX|MPI|SLURM|TORCHELASTIC|MV2|JSM|FLUX|PALS|ALPS|HYDRA|HYDI)_[A-Za-z_0-9]+)"'
    names = set()
    for path in sources:
        # Examples of whole environments are for tests alone.
        code = path.read_text().split("#[cfg(test)]\n    fn example")[0]
        names |= set(re.findall(prefix, code))
    return names


class RustNames:
    """Which words stand in the files that define a type or implement something for it."""

    TYPE = re.compile(r"\b(?:struct|enum|trait|type)\s+(\w+)|\bimpl\b[^{;]*?\b(\w+)(?:<[^{;]*?>)?\s*(?:where[^{]*)?\{")

    def __init__(self, sources: Iterator[str]):
        self.words: dict[str, set[str]] = {}
        for code in sources:
            found = set(re.findall(r"\w+", code))
            for names in self.TYPE.findall(code):
                for name in filter(None, names):
                    self.words.setdefault(name, set()).update(found)

    def absent(self, text: str) -> list[str]:
        """The members that a page names and that their type lacks, such as `Config::nothing`."""
        cited = re.findall(r"`(?:\w+::)*([A-Z]\w+)::(\w+)", FENCE.sub("\n", text))
        return [
            f"`{name}::{member}`" for name, member in cited if name in self.words and member not in self.words[name]
        ]


def checked_files() -> list[Path]:
    """The files whose links are checked."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("crates/*/*.md"), *ROOT.glob("bench/**/*.md")])


def cited_anchors() -> Iterator[tuple[Path, str]]:
    """Citations of a page's heading in sources, such as docs/exact.md#the-sentinel."""
    for path in [*ROOT.glob("crates/**/*.rs"), *ROOT.glob("examples/*.rs"), *ROOT.glob("bench/**/*.py")]:
        for page, anchor in re.findall(r"docs/([\w/-]+\.md)#([\w-]+)", path.read_text(errors="replace")):
            if path != Path(__file__).resolve() and path.name != "test_book.py":
                yield path, f"{page}#{anchor}"


def page_problems(path: Path, part: str) -> Iterator[str]:
    text = path.read_text()
    count, limit = words(text), PART_WORDS.get(part, OTHER_WORDS)
    if count > limit and path.name not in GENERATED_PAGES:
        yield f"{count} words, of which a page of the part {part} may have {limit}"
    if path.name in GENERATED_PAGES:
        return
    for sentence in long_sentences(text):
        yield f"a sentence of {len(WORD.findall(sentence))} words: {sentence}"
    yield from stopping_words(text)


def problems(commands: Commands | None) -> Iterator[tuple[Path, str]]:
    summary = DOCS / "SUMMARY.md"
    parts = contents(summary.read_text())
    pages = {path.name for path in DOCS.glob("*.md")} - {summary.name}
    for name in sorted(pages - set(parts)):
        yield DOCS / name, "has no line in docs/SUMMARY.md"
    for name in sorted(set(parts) & pages):
        for problem in page_problems(DOCS / name, parts[name]):
            yield DOCS / name, problem
    total = sum(words((DOCS / name).read_text()) for name in pages - GENERATED_PAGES)
    if total > BOOK_WORDS:
        yield summary, f"the book has {total} words, of which it may have {BOOK_WORDS}"
    readme = (ROOT / "README.md").read_text()
    if (count := words(without_tables(readme))) > README_WORDS:
        yield ROOT / "README.md", f"{count} words, of which it may have {README_WORDS}"
    for problem in [*long_sentences(readme), *stopping_words(readme)]:
        yield ROOT / "README.md", problem
    for path in checked_files():
        for problem in broken_links(path, read):
            yield path, problem
    for path, cited in cited_anchors():
        page, _, anchor = cited.partition("#")
        if anchor not in anchors(read(DOCS / page) or ""):
            yield path, f"cites docs/{cited}, which is not there"
    text = (DOCS / "environment.md").read_text()
    listed = set(re.findall(r"`([A-Z][A-Z0-9_a-z]+)", text))
    launchers = ROOT.glob("crates/kolo-rendezvous/src/env/**/*.rs")
    names = environment_names(ROOT.glob("crates/*/src/**/*.rs")) | launcher_names(
        path for path in launchers if path.name != "tests.rs"
    )
    for name in sorted(names - listed):
        yield DOCS / "environment.md", f"does not list {name}, which the sources read"
    for name in sorted(found for found in listed - names if found.startswith("KOLO_")):
        yield DOCS / "environment.md", f"lists {name}, which no source reads"
    rust = RustNames(path.read_text() for path in ROOT.glob("crates/*/src/**/*.rs"))
    for name in sorted(pages):
        for absent in rust.absent((DOCS / name).read_text()):
            yield DOCS / name, f"no source has {absent}"
    if commands:
        for path in [ROOT / "README.md", *(DOCS / name for name in sorted(pages - GENERATED_PAGES))]:
            text = path.read_text()
            for command in [*shell_commands(text), *inline_commands(text)]:
                for problem in commands.wrong(command):
                    yield path, f"{problem}: {command}"
            for training in trainings(text):
                if refusal := commands.refusal(training):
                    yield path, f"`kolo {shlex.join(training)}` is refused: {refusal}"


def lengths() -> None:
    """Prints the words of each part and page."""
    parts = contents((DOCS / "SUMMARY.md").read_text())
    for part in dict.fromkeys(parts.values()):
        pages = [name for name in parts if parts[name] == part and (DOCS / name).exists()]
        counts = {name: words((DOCS / name).read_text()) for name in pages if name not in GENERATED_PAGES}
        print(f"{sum(counts.values()):6} {part or 'before the parts'}")
        for name, count in counts.items():
            print(f"       {count:6} {name}")


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="print only what is wrong")
    parser.add_argument("--kolo", type=Path, help="the program whose help knows the commands")
    arguments = parser.parse_args()
    commands = None
    if arguments.kolo:
        if not arguments.kolo.exists():
            print(f"error: there is no {arguments.kolo}: build it, or name another program", file=sys.stderr)
            return 2

        def help_of(command: list[str]) -> str:
            run = subprocess.run([arguments.kolo, *command], capture_output=True, text=True, timeout=60, check=True)
            return run.stdout

        def refusal(training: list[str]) -> str:
            # Checks the values of all options, and trains nothing.
            words = [arguments.kolo.resolve(), *training, "--print-config"]
            run = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=DOCS)
            return run.stderr.strip().partition("\n")[0] if run.returncode else ""

        commands = Commands(help_of, refusal)
    if not arguments.check:
        lengths()
    count = 0
    for path, problem in problems(commands):
        count += 1
        print(f"{path.relative_to(ROOT)}: {problem}")
    print(f"the book: {count or 'no'} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
