"""Who may ask the portal, and what they may see: tokens with roles, and what keeps other pages of a browser out.

A token comes in the header `Authorization`, never in a cookie: a browser sends none by itself for another page, so
there is nothing to forge. Only for Data Docs, which are opened by links, it may be the password that a browser asks for
and then sends by itself: it opens those pages and nothing else. Requests only read. On loopback without tokens, who is
let in is who asks for this very host: a page of somebody else's whose name was made to lead here (DNS rebinding) names
another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from customer_activity.errors import SettingsError
from customer_activity.settings import Settings

VARIABLE = "ACTIVITY_PORTAL_TOKENS"
LEAST_CHARACTERS = 20
TO_MAKE_ONE = "`openssl rand -hex 32` makes one; docs/PORTAL.md describes the file"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
PORT = re.compile(r":\d+$")
# What shows no data: pages, whether it lives, and the description of the API.
OPEN_PATHS = frozenset({"/", "/docs", "/livez", "/readyz", "/openapi.json", "/favicon.ico"})
ASSETS = "/assets/"
DATA_DOCS = "/data-docs/"
METRICS = "/metrics"


class Role(StrEnum):
    """What somebody may see."""

    VIEWER = "viewer"
    PERSONAL_DATA = "personal-data"
    METRICS = "metrics"

    @property
    def sees_personal_data(self) -> bool:
        """Whether names, e-mail and postal addresses are shown."""
        return self is Role.PERSONAL_DATA

    def may_ask(self, path: str) -> bool:
        """Whether it may ask for what shows data: who scrapes metrics sees no customer."""
        return self is not Role.METRICS or path == METRICS


class Access:
    """The tokens, as digests; without any, everybody on this machine sees everything."""

    def __init__(self, tokens: Mapping[bytes, Role] | None) -> None:
        """Take roles by the digest of a token; None: no tokens are asked for."""
        self._tokens = tokens

    @property
    def asks_for_tokens(self) -> bool:
        """Whether who asks has to show a token."""
        return self._tokens is not None

    def role(self, authorization: str, path: str = "") -> Role | None:
        """Return the role of who shows this header to ask for a path; None of nobody who is known."""
        if self._tokens is None:
            return Role.PERSONAL_DATA
        scheme, _, credentials = authorization.partition(" ")
        is_password = scheme.lower() == "basic" and of_data_docs(path)
        shown = _digest(_password(credentials) if is_password else credentials.strip())
        found = None
        for known, role in self._tokens.items():  # all of them: how long it takes says nothing
            if hmac.compare_digest(shown, known):
                found = role
        return found if is_password or scheme.lower() == "bearer" else None

    def admits_host(self, host: str) -> bool:
        """Whether a request for this host is for the portal; with tokens any is."""
        return self.asks_for_tokens or PORT.sub("", host.lower()) in LOOPBACK_NAMES


def access(settings: Settings) -> Access:
    """Read who may ask.

    Raises:
        SettingsError: the portal would be open to other machines without tokens, or the file is not as it must be.
    """
    if settings.portal_tokens is not None:
        return Access(_read(settings.portal_tokens))
    if not is_loopback(settings.portal_host):
        raise SettingsError(
            f"ACTIVITY_PORTAL_HOST is {settings.portal_host}: other machines could read without a token",
            remedy=f"name a file of tokens in {VARIABLE}, or listen on 127.0.0.1",
        )
    return Access(None)


def of_data_docs(path: str) -> bool:
    """Whether a path is one of Data Docs'."""
    return path.startswith(DATA_DOCS) or path == DATA_DOCS.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> dict[bytes, Role]:
    """Read the file of tokens; errors name the line, never what is in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"{VARIABLE}: {path} cannot be read ({reason})", remedy=TO_MAKE_ONE) from None
    tokens: dict[bytes, Role] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        where = f"{VARIABLE}: line {number} of {path}"
        if len(words) != 2 or words[0] not in list(Role):  # noqa: PLR2004 - a role and a token
            raise SettingsError(
                f"{where} is not a role and a token", remedy=f"a role is one of {', '.join(Role)}; {TO_MAKE_ONE}"
            )
        if len(words[1]) < LEAST_CHARACTERS:
            raise SettingsError(f"{where} has a token of fewer than {LEAST_CHARACTERS} characters", remedy=TO_MAKE_ONE)
        if _digest(words[1]) in tokens:
            raise SettingsError(f"{where} has a token that an earlier line has, too", remedy="each role has its own")
        tokens[_digest(words[1])] = Role(words[0])
    if not tokens:
        raise SettingsError(f"{VARIABLE}: {path} has no token", remedy=TO_MAKE_ONE)
    return tokens


def _password(credentials: str) -> str:
    """Return the password of what a browser sends, whatever the user's name is; empty where there is none."""
    try:
        decoded = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return decoded.partition(":")[2].strip()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
