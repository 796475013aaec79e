"""A command that a message or a page names is there, with the options that it is given.

Who reads an error types what it says: the option that is not there is found when it is needed most.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from customer_activity.cli import app
from customer_activity.settings import PROJECT

NAMED = re.compile(r"`activity ([^`\n]+)`")
TYPED = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?activity ([^#\n|]+)", re.MULTILINE)  # in a block of code
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOMETHING = "SOMETHING"
ANY = {SOMETHING, "…"}


def texts(source: str) -> Iterator[str]:
    """Yield a module's texts, each with something in the place of what is put in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else SOMETHING for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named() -> Iterator[tuple[str, str]]:
    """Yield where a command is named, and the words after `activity`."""
    for module in sorted((PROJECT / "jobs").rglob("*.py")):
        for text in texts(module.read_text(encoding="utf-8")):
            yield from ((module.name, words) for words in NAMED.findall(text))
    for page in sorted([PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]):
        text = page.read_text(encoding="utf-8")
        blocks = chain.from_iterable(map(TYPED.findall, BLOCK.findall(text)))
        yield from ((page.name, words) for words in chain(NAMED.findall(text), blocks))


def options(command: Any) -> set[str]:
    return {"--help", *chain.from_iterable((*each.opts, *each.secondary_opts) for each in command.params)}


def unknown(words: str) -> str | None:
    """Return the word that no command or option is called, if there is one."""
    command: Any = typer.main.get_command(app)
    known = options(command)
    for word in re.sub(r'"[^"]*"', SOMETHING, words).split():
        if word.startswith("-"):
            if word.partition("=")[0] not in known:
                return word
        elif isinstance(command, TyperGroup) and word not in ANY:
            if (found := command.get_command(typer.Context(command), word)) is None:
                return word
            command = found
            known |= options(command)
    return None


def test_each_command_that_is_named_is_there() -> None:
    found = set(named())
    assert len(found) > 100
    assert [place for place in found if unknown(place[1]) is not None] == []


@pytest.mark.parametrize(
    ("words", "word"),
    [
        pytest.param("rebuild --stream daily", None, id="right"),
        pytest.param("rebuild --stream daily --reason x", "--reason", id="an option that is not there"),
        pytest.param("quarantine mend", "mend", id="a command of a group that is not there"),
        pytest.param('quality release --reason "the till --was offline"', None, id="a text"),
    ],
)
def test_what_is_not_there_is_found(words: str, word: str | None) -> None:
    assert unknown(words) == word
