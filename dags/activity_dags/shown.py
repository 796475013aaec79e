r"""Make the program's output safe for Airflow's logs, errors and alerts: it may contain ids from outside.

What could command a terminal, forge a line or hide a text is shown escaped, as Python writes it (`\x1b`, `\u202e`).
The product has the same rule (`jobs/customer_activity/shown.py`), which DAGs cannot import; a test compares the two.
"""

from __future__ import annotations

import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escaped(value: object) -> str:
    """Return a value as text in one line."""
    return _replaced(str(value), "")


def in_a_line(words: str) -> str:
    """Return an error's words, what to do included, as text in one line."""
    return escaped(words.replace("\n  → ", " → "))


def lines(text: str) -> str:
    """Return a text of several lines: its line breaks and tabs stay."""
    return _replaced(text, "\n\t")


def _replaced(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if not character.isprintable() and character not in kept and unicodedata.category(character) in HIDDEN
        else character
        for character in text
    )
