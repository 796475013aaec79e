"""Settings of optional streams: which ones run, and what their windows, payments, alerts and routes are."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated
from zoneinfo import available_timezones

from pydantic import Field, StringConstraints, field_validator

from customer_activity import catalog
from customer_activity.settings.pipeline import Pipeline, TopicName
from customer_activity.settings.project import PROJECT

NO_ZONES = frozenset({"Factory", "localtime"})  # names among IANA's that mean none, or this machine's


class OptionalStreams(Pipeline):
    """What optional streams go by."""

    streams: Annotated[str, StringConstraints(pattern=rf"^({catalog.STREAM_NAME}(, *{catalog.STREAM_NAME})*)?$")] = (
        Field(
            "",
            description="Optional streams that run with the others, comma separated; what they read comes with them. "
            "`activity describe` shows what is on.",
        )
    )
    time_zone: str = Field("UTC", description="Time zone of calendar days, as IANA names it: `Europe/Berlin`.")
    grace_hours: float = Field(
        24.0,
        ge=0,
        le=24 * 366,
        description="Hours that a purchase may be late, in event time, and count in windows all the same; "
        "`activity lateness` shows what it would exclude.",
    )
    session_gap_minutes: float = Field(
        30.0,
        gt=0,
        le=24 * 60,
        description="Minutes, at most, between two purchases of one session of a customer, in event time.",
    )
    idle_partition_minutes: float = Field(
        10.0,
        gt=0,
        description="Minutes without a record, by the clock of the topic, after which a Kafka partition holds no "
        "window open.",
    )
    window_topic_prefix: TopicName = Field(
        default_factory=lambda known: str(known["pipeline"]),
        description="What the names of the topics of windows begin with, before `-daily`, `-daily-final`, `-weekly` …; "
        "the streams that publish to them are optional.",
    )
    payment_topic: TopicName = Field(
        "payment-events", description="Topic of the payments; read where the streams of payments are on."
    )
    payment_minutes: float = Field(
        30.0,
        gt=0,
        le=24 * 60 * 366,
        description="Minutes within which a purchase is to be paid, in event time: a payment that is confirmed after "
        "them is late, and a purchase without one is unpaid once they and the grace have passed.",
    )
    alert_topic: TopicName = Field(
        default_factory=lambda known: f"{known['pipeline']}-fraud-alerts",
        description="Topic that alerts are published to, where `publish_alerts` is on.",
    )
    alert_window_minutes: int = Field(
        5, ge=1, le=24 * 60, description="Minutes of a window of the alert rule `velocity`, in event time."
    )
    alert_window_purchases: int = Field(
        10, ge=1, le=10_000, description="An alert is raised for more purchases of a customer than this in a window."
    )
    alert_window_amount: int = Field(
        5_000, ge=0, le=10**9, description="An alert is raised for more money of a customer than this in a window."
    )
    alert_gap_minutes: int = Field(
        5,
        ge=1,
        le=24 * 60,
        description="Minutes, at most, between two purchases of a session of the alert rule `risky_session`.",
    )
    alert_session_purchases: int = Field(
        3, ge=1, le=100, description="An alert is raised for so many risky purchases of a customer in a session."
    )
    alert_session_amount: int = Field(1_000, ge=0, le=10**9, description="A risky purchase has a greater amount.")
    alert_session_risk: int = Field(70, ge=0, le=100, description="A risky purchase has a greater risk score.")
    alert_grace_minutes: float = Field(
        60.0,
        ge=0,
        le=24 * 60,
        description="Minutes that a purchase may be late, in event time, and count for alerts all the same.",
    )
    alert_seconds: float = Field(
        2.0,
        gt=0,
        description="Seconds between two looks for alerts, and between two batches of the streams that they wait for.",
    )
    routing_rules: Path = Field(
        PROJECT / "infra" / "routing" / "rules.yaml",
        description="File with the rules by which purchases are routed; read when the streams start.",
    )
    route_topic_prefix: TopicName = Field(
        default_factory=lambda known: str(known["pipeline"]),
        description="What the names of the topics of routed purchases begin with, before `-high-value-purchases` and "
        "`-other-purchases`; the streams that route and publish them are optional.",
    )

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        if name not in _zones():
            raise ValueError("there is no such time zone: it is a name of IANA's such as Europe/Berlin")
        return name

    @property
    def optional_streams(self) -> list[str]:
        """Names of the optional streams that are on."""
        return [name.strip() for name in self.streams.split(",") if name]

    @property
    def optional_topics(self) -> dict[str, str]:
        """Topic name by role, of the topics that optional streams read and write."""
        return {
            catalog.PAYMENTS_ROLE: self.payment_topic,
            catalog.ALERTS_ROLE: self.alert_topic,
            **{role: f"{self.route_topic_prefix}-{role.replace('_', '-')}" for role in catalog.ROUTES},
            **{role: f"{self.window_topic_prefix}-{role.replace('_', '-')}" for role in catalog.WINDOW_ROLES},
        }


@cache
def _zones() -> frozenset[str]:
    """List the names of time zones, once: each look opens six hundred files."""
    return frozenset(available_timezones() - NO_ZONES)
