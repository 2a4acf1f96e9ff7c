#!/usr/bin/env python3
"""Names the files of a crate that import each other in a circle, parents and children counted.

    python3 bench/circles.py [CRATE...]

An item counts as its own file's wherever it is re-exported, and a line that re-exports it is no import; nor is
what only tests import. Exit code 1 if there is a circle.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ITEM = r"(?:struct|enum|union|trait|fn|const|static|type|mod|macro_rules!)\s+"
PATH = re.compile(r"\b((?:crate|super|self)(?:::\w+)+)")


def without_comments(text: str) -> str:
    text = re.sub(r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', '""', text, flags=re.S)
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"\bpub\(in [^)]*\)", "pub", text)


def without_tests(text: str) -> str:
    """Leaves out items that are compiled in tests only."""
    while found := re.search(r"#\[cfg\(test\)\]\s*", text):
        end, depth = found.end(), 0
        while end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
            if depth == 0 and text[end - 1] in ";}":
                break
        text = text[: found.start()] + text[end:]
    return text


def flat(tree: str, prefix: str = "") -> list[str]:
    """The paths of a use tree, such as `a::{b, c::{self, d}}`."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        return [prefix + re.sub(r"\s+as\s+\w+$", "", tree)]
    parts, depth, start, inner = [], 0, 0, rest[: rest.rindex("}")]
    for at, sign in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    return [path for part in parts if part.strip() for path in flat(part, prefix + head.strip())]


class Crate:
    def __init__(self, source: Path):
        self.files: dict[tuple[str, ...], Path] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[-1] in ("mod", "lib", "main"):
                parts = parts[:-1]
            self.files.setdefault(parts, path)
        self.code = {of: without_tests(without_comments(p.read_text())) for of, p in self.files.items()}
        self.imports = {of: self.uses(of, code) for of, code in self.code.items()}

    def uses(self, module: tuple[str, ...], code: str) -> list[tuple[bool, str, str]]:
        """For each use: whether it is a re-export, the path, and the name that it gives."""
        uses = []
        for found in re.finditer(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", code):
            tree = re.sub(r"\s+", " ", found[2])
            renamed = dict(re.findall(r"([\w:]+)\s+as\s+(\w+)", tree))
            for path in flat(tree):
                uses.append((bool(found[1]), path, renamed.get(path, path.split("::")[-1])))
        return uses

    def file_of(self, module: tuple[str, ...], path: str, seen: frozenset = frozenset()) -> tuple | None:
        """The file that defines what a path in a module names."""
        names = path.split("::")
        if names[0] == "crate":
            at, names = (), names[1:]
        elif names[0] == "self":
            at, names = module, names[1:]
        elif names[0] == "super":
            at = module
            while names and names[0] == "super":
                at, names = at[:-1], names[1:]
        elif module + (names[0],) in self.files:
            at = module
        else:
            return None
        while names and at + (names[0],) in self.files:
            at, names = at + (names[0],), names[1:]
        if at not in self.files or not names:
            return at if at in self.files else None
        if names[0] in ("self", "*") or re.search(ITEM + re.escape(names[0]) + r"\b", self.code[at]):
            return at
        for _, origin, name in self.imports[at]:
            if name in (names[0], "*") and (at, origin) not in seen:
                found = self.file_of(at, origin, seen | {(at, origin)})
                if found is not None and name != "*":
                    return found
        return at

    def edges(self) -> dict[tuple, set[tuple]]:
        edges = {}
        for module, code in self.code.items():
            inline = re.sub(r"(?:pub(?:\([^)]*\))?\s+)?\buse\s+[^;]+;", "", code)
            children = "|".join(m[-1] for m in self.files if len(m) == len(module) + 1 and m[:-1] == module)
            paths = [path for reexports, path, _ in self.imports[module] if not reexports]
            paths += PATH.findall(inline)
            paths += re.findall(rf"(?<![\w:])((?:{children})::\w+)", inline) if children else []
            targets = {self.file_of(module, path) for path in paths}
            edges[module] = {target for target in targets if target is not None} - {module}
        return edges


def circles(edges: dict[tuple, set[tuple]]) -> list[list[tuple]]:
    """The strongly connected components of more than one file (Tarjan 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(at):
        number[at] = low[at] = len(number)
        stack.append(at)
        for to in sorted(edges[at]):
            if to not in number:
                visit(to)
                low[at] = min(low[at], low[to])
            elif to in stack:
                low[at] = min(low[at], number[to])
        if low[at] == number[at]:
            component = []
            while not component or component[-1] != at:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for at in sorted(edges):
        if at not in number:
            visit(at)
    return found


def main() -> int:
    wanted, count = sys.argv[1:], 0
    sys.setrecursionlimit(10_000)
    for source in sorted((ROOT / "crates").glob("*/src")):
        if wanted and source.parent.name not in wanted:
            continue
        crate = Crate(source)
        edges = crate.edges()
        for circle in circles(edges):
            count += 1
            print(f"{source.parent.name}: a circle of {len(circle)} files")
            for module in circle:
                within = sorted("::".join(to) or "lib" for to in edges[module] if to in circle)
                print(f"    {'::'.join(module) or 'lib'} imports {', '.join(within)}")
    print(f"{count} circles of files that import each other")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
