"""Two of Java's text formats: a properties file, and the options of a JAAS login module.

What stands there may be a secret: errors name lines and properties, never what they say.
"""

from __future__ import annotations

import re
from pathlib import Path

from customer_activity.errors import SettingsError

# A line of a key or a certificate that was pasted without its backslashes is no name, and is not told as one.
LINE = re.compile(r"(?P<name>[a-z][a-z0-9._-]*)\s*[=:]\s*(?P<value>.*)", re.DOTALL)
ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A JAAS line, as java.io.StreamTokenizer takes it apart.
TOKEN = re.compile(
    r"""(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'|(?P<mark>[=;])|(?P<word>[A-Za-z_$.][\w$.-]*))\s*"""
)
JAAS_ESCAPED = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
JAAS_CONTROLS = {**CONTROLS, "a": "\a", "b": "\b", "v": "\v"}


def read(path: Path, variable: str, form: re.Pattern[str] = LINE) -> dict[str, str]:
    """Read a file in the form of java.util.Properties, which a setting names; a line may go on after a backslash.

    Args:
        path: of the file.
        variable: that named it.
        form: of a line, with its name and its value.

    Raises:
        SettingsError: it cannot be read, a line is not `name=value`, or a name stands there twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{variable}: {error.strerror}: {path}", remedy="name a readable properties file") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{variable}: {path} is not UTF-8", remedy="write it as UTF-8") from None
    properties: dict[str, str] = {}
    for number, line in _logical(text):
        found = form.fullmatch(line)
        # The line itself may hold a secret: only its number is named.
        if found is None:
            raise SettingsError(f"{variable}: line {number} is not name=value", remedy=f"correct {path}")
        name = found["name"]
        if name in properties:
            raise SettingsError(f"{variable}: line {number} gives {name} a second time", remedy=f"correct {path}")
        properties[name] = _unescaped(found["value"])
    return properties


def login(line: str, module: str) -> dict[str, str] | None:
    """Return the options of a JAAS line, `module flag name="value" …;`; None when it is not one of this module."""
    tokens: list[tuple[str, str]] = []
    rest = line.strip()
    while rest:
        found = TOKEN.match(rest)
        if found is None:
            return None
        kind = str(found.lastgroup)
        tokens.append((kind, _unquoted(found[kind]) if kind in ("double", "single") else found[kind]))
        rest = rest[found.end() :]
    if len(tokens) < 3 or tokens[0] != ("word", module) or tokens.pop() != ("mark", ";"):  # noqa: PLR2004
        return None
    options = tokens[2:]
    if len(options) % 3 or any(mark != ("mark", "=") for mark in options[1::3]):
        return None
    return {name: value for (_, name), (_, value) in zip(options[::3], options[2::3], strict=True)}


def _unquoted(text: str) -> str:
    return JAAS_ESCAPED.sub(
        lambda found: chr(int(found[1], 8)) if found[1].isdigit() else JAAS_CONTROLS.get(found[1], found[1]), text
    )


def quoted(value: str) -> str:
    """Return a value as a JAAS line has it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _logical(text: str) -> list[tuple[int, str]]:
    """Return the lines that say something, those that go on joined, with the number of the first."""
    lines: list[tuple[int, str]] = []
    joined = ""
    goes_on = False
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(" \t\f")
        if not goes_on and (not line or line[0] in "#!"):
            continue
        lines.append((lines.pop()[0], f"{joined}{line}") if goes_on else (number, line))
        slashes = len(line) - len(line.rstrip("\\"))
        goes_on = slashes % 2 == 1
        joined = lines[-1][1][:-1] if goes_on else ""
    if goes_on:
        lines[-1] = (lines[-1][0], joined)
    return [(number, line.rstrip()) for number, line in lines]


def _unescaped(text: str) -> str:
    return ESCAPED.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else CONTROLS.get(found[1], found[1]), text
    )
