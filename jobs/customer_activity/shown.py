r"""Data made safe to look at: the one place that terminals, logs and Data Docs go through.

Ids, names and headers come from outside. A terminal obeys escape sequences, a carriage return overwrites a line, a line
break forges one, and bidi overrides make a text read otherwise than it is. So what could do that is shown escaped, as
Python writes it (`\x1b`, `\u202e`): Unicode's control (Cc), format (Cf) and surrogate (Cs) characters, and its line
and paragraph separators (Zl, Zp). Everything else stays as it is.

DAGs never import the product: `dags/activity_dags/shown.py` has the same rule, and a test compares the two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
REMEDY = "\n  → "  # how an error's words go on (errors.py)
MARKUP = re.compile("[&<>\"'`$]")


def escaped(value: object) -> str:
    """Return a value of the data as text in one line."""
    return _replaced(str(value), "", _as_python)


def in_a_line(words: str) -> str:
    """Return an error's words, what to do included, as text in one line."""
    return escaped(words.replace(REMEDY, " → "))


def lines(text: str) -> str:
    """Return a text of ours that may have data in it: its line breaks and tabs stay, all else is as in `escaped`."""
    return _replaced(text, "\n\t", _as_python)


def message(what: str, remedy: str) -> str:
    """Return an error's words: every line but the first is indented, so that data cannot forge a message."""
    said = "\n  ".join(lines(what).split("\n"))
    do = "\n    ".join(lines(remedy).split("\n"))
    return f"{said}{REMEDY}{do}" if remedy else said


def json_text(text: str) -> str:
    """Return JSON that reads as the same data, with what is hidden in JSON's own escapes."""
    return _replaced(text, "\n", _as_json)


def inert(value: object) -> str:
    """Return a value of the data as text that is no markup wherever a page puts it.

    Not as HTML's entities: a page that escapes them once more shows them, and a script that reads them from an
    attribute has markup again.
    """
    return MARKUP.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped(value))


def _replaced(text: str, kept: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(
        escape(character)
        if not character.isprintable() and character not in kept and unicodedata.category(character) in HIDDEN
        else character
        for character in text
    )


def _as_python(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))
