"""Settings of the portal: where it listens, who may see what, and when it calls what it has stale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from customer_activity.settings.pipeline import Pipeline

HERE = ("127.0.0.1", "0.0.0.0", "::", "::1")  # noqa: S104 - compared, not bound


class PortalSettings(Pipeline):
    """What `activity portal` goes by."""

    portal_host: Annotated[str, StringConstraints(pattern=r"^[\w.:-]+$")] = Field(
        "127.0.0.1",
        description="Address that the portal listens on. Outside loopback it needs `ACTIVITY_PORTAL_TOKENS`.",
    )
    portal_port: int = Field(8090, ge=1, le=65535, description="Port of the portal.")
    portal_tokens: Path | None = Field(
        None,
        description="File with the portal's tokens, a role and a token a line: `viewer` does not see names, "
        "e-mail and postal addresses, `personal-data` does. Without it everybody on this machine sees everything.",
    )
    portal_stale_seconds: float = Field(
        10.0,
        gt=0,
        description="Seconds that the portal may be behind the view topic, or not hear of it, until it says that its "
        "answers are stale and that it is not ready.",
    )
    portal_url: Annotated[str, StringConstraints(pattern=r"^https?://\S+[^/]$")] | None = Field(
        None, description="URL at which the portal is served; links use it."
    )

    @field_validator("portal_tokens")
    @classmethod
    def _absolute_tokens(cls, file: Path | None) -> Path | None:
        return None if file is None else file.expanduser().resolve()

    @property
    def portal_page(self) -> str:
        """Where the portal's page is, as a browser is to ask for it."""
        if self.portal_url is not None:
            return self.portal_url
        is_here = self.portal_host in HERE
        host = f"[{self.portal_host}]" if ":" in self.portal_host else self.portal_host
        return f"http://{'localhost' if is_here else host}:{self.portal_port}"

    @property
    def portal_data_docs(self) -> str:
        """Where the portal serves Data Docs and the report."""
        return f"{self.portal_page}/data-docs"
