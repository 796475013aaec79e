"""Who may ask the portal: files of tokens, roles, and the hosts that are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from customer_activity.errors import SettingsError
from customer_activity.portal.access import Access, Role, access
from customer_activity.settings import Settings

VIEWER, PERSONAL = "v" * 32, "p" * 32


def settings(folder: Path, tokens: str | None = None, host: str = "127.0.0.1") -> Settings:
    if tokens is not None:
        (folder / "tokens").write_text(tokens, encoding="utf-8")
    return Settings(portal_host=host, portal_tokens=None if tokens is None else folder / "tokens")


@pytest.fixture
def guarded(tmp_path: Path) -> Access:
    """Return two tokens' access."""
    return access(settings(tmp_path, f"# who may what\nviewer {VIEWER}\n\npersonal-data {PERSONAL} # support\n"))


@pytest.mark.parametrize(
    ("header", "role"),
    [
        pytest.param(f"Bearer {VIEWER}", Role.VIEWER, id="a viewer"),
        pytest.param(f"bearer  {PERSONAL} ", Role.PERSONAL_DATA, id="case of the scheme, and blanks"),
        pytest.param("", None, id="nothing"),
        pytest.param(f"Bearer {VIEWER[:-1]}", None, id="a part of a token"),
        pytest.param(f"Bearer {VIEWER}{PERSONAL}", None, id="more than a token"),
        pytest.param(f"Basic {VIEWER}", None, id="another scheme"),
        pytest.param(VIEWER, None, id="no scheme"),
        pytest.param("Bearer \udcff", None, id="no text"),
    ],
)
def test_a_token_has_its_role(guarded: Access, header: str, role: Role | None) -> None:
    assert guarded.role(header) is role


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "has no token", id="empty"),
        pytest.param("# none\n", "has no token", id="comments alone"),
        pytest.param(VIEWER, "line 1 .* is not a role and a token", id="no role"),
        pytest.param(f"admin {VIEWER}", "line 1 .* is not a role and a token", id="a role that is none"),
        pytest.param(f"viewer {VIEWER}\nviewer a b", "line 2 .* is not a role and a token", id="too many words"),
        pytest.param("viewer short", "fewer than 20 characters", id="a short token"),
        pytest.param(f"viewer {VIEWER}\npersonal-data {VIEWER}", "line 2 .* earlier line", id="one token, two roles"),
    ],
)
def test_a_file_that_is_not_as_it_must_be_is_refused_and_not_shown(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        access(settings(tmp_path, content))
    assert not [word for word in content.split() if len(word) >= 20 and word in str(raised.value)]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        access(Settings(portal_tokens=tmp_path / "none"))


ANYWHERE = "0.0.0.0"  # noqa: S104 - refused, not bound


@pytest.mark.parametrize("host", [ANYWHERE, "::", "192.0.2.1", "portal.example.org", "localhost.example.org"])
def test_outside_loopback_tokens_are_needed(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match="without a token"):
        access(settings(tmp_path, host=host))
    assert access(settings(tmp_path, f"viewer {VIEWER}", host)).asks_for_tokens


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_on_loopback_everybody_on_this_machine_sees_everything(tmp_path: Path, host: str) -> None:
    assert access(settings(tmp_path, host=host)).role("") is Role.PERSONAL_DATA


@pytest.mark.parametrize(
    ("host", "is_admitted"),
    [
        pytest.param("localhost:8090", True, id="by name"),
        pytest.param("LOCALHOST", True, id="without a port"),
        pytest.param("127.0.0.1:8090", True, id="by address"),
        pytest.param("[::1]:8090", True, id="by the other address"),
        pytest.param("evil.example.org:8090", False, id="a name that was made to lead here"),
        pytest.param("localhost.evil.example.org", False, id="one that begins so"),
        pytest.param("", False, id="none"),
        pytest.param("localhost@evil.example.org", False, id="a user"),
    ],
)
def test_on_loopback_another_name_is_not_answered(
    tmp_path: Path, guarded: Access, host: str, is_admitted: bool
) -> None:
    assert access(settings(tmp_path)).admits_host(host) is is_admitted
    assert guarded.admits_host(host)  # a token is needed, which a browser does not send by itself
