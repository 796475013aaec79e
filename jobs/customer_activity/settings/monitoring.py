"""Settings of the driver's metrics and of when it is ready."""

from __future__ import annotations

from ipaddress import ip_address

from pydantic import Field, field_validator

from customer_activity.settings.pipeline import Pipeline


class Monitoring(Pipeline):
    """Where the driver serves metrics and health, and what its health is judged by."""

    metrics: bool = Field(
        True,  # noqa: FBT003
        description="Serve metrics and health over HTTP while the streams run: `/metrics`, `/livez`, `/readyz`.",
    )
    metrics_address: str = Field(
        "127.0.0.1",
        description="Address that they are served at: loopback, unless a Prometheus on another machine scrapes them. "
        "There is no authentication; there is no personal data either.",
    )
    metrics_port: int = Field(
        9464,
        ge=0,
        le=65535,
        description="Port that they are served at; 0 picks a free port. If the port is taken, a free one is used and "
        "logged. `metrics.json` in `ACTIVITY_RUN_DIR` names it, in the form in which Prometheus discovers targets.",
    )
    ready_lag_records: int = Field(
        100_000, ge=0, description="A stream is ready while at most this many records of its topics are unread."
    )
    ready_lag_seconds: float = Field(
        300.0,
        gt=0,
        description="A stream is ready while no commit has been waiting for it for more seconds than this; for a "
        "stream behind the hot path its pace is added.",
    )
    ready_batch_seconds: float = Field(
        120.0,
        gt=0,
        description="A stream that has something to read is ready while it has finished a batch, or shown progress in "
        "one, within this many seconds; for a stream behind the hot path its pace is added.",
    )

    @field_validator("metrics_address")
    @classmethod
    def _an_address(cls, address: str) -> str:
        try:
            return str(ip_address(address))
        except ValueError:
            raise ValueError("it is an IP address: 127.0.0.1, ::1, or 0.0.0.0 for all of this machine") from None
