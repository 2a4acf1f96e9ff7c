#!/usr/bin/env python3
"""A preprocessor of mdBook: links from the book to files outside of it lead to the repository.

    mdbook build        # book.toml names this script
"""

import json
import posixpath
import re
import sys

REPOSITORY = "https://github.com/kolo-rs/kolo/blob/main"
LINK = re.compile(r"(?<!!)\]\((?![a-z]+:|#)([^()\s]+)\)")


def outward(content: str, pages: set[str]) -> str:
    """A chapter whose links to other files than pages are those of the repository."""

    def target(link: re.Match[str]) -> str:
        path, sign, anchor = link[1].partition("#")
        if path in pages:
            return link[0]
        return f"]({REPOSITORY}/{posixpath.normpath(f'docs/{path}')}{sign}{anchor})"

    return LINK.sub(target, content)


def chapters(items: list) -> list[dict]:
    """The chapters of a book with those below them."""
    found = [item["Chapter"] for item in items if isinstance(item, dict) and "Chapter" in item]
    return found + [below for chapter in found for below in chapters(chapter["sub_items"])]


def main() -> int:
    if sys.argv[1:2] == ["supports"]:
        return 0
    _, book = json.load(sys.stdin)
    every = chapters(book.get("items") or book.get("sections") or [])
    pages = {chapter["path"] for chapter in every if chapter.get("path")}
    for chapter in every:
        chapter["content"] = outward(chapter["content"], pages)
    json.dump(book, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
