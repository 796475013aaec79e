"""The limits that alerts go by: as the settings say, and as the table was computed.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from customer_activity.engine.derived import MICROS_A_MINUTE

if TYPE_CHECKING:
    from customer_activity.settings import Settings


class Limits(NamedTuple):
    """What the rules go by; amounts in the deployment's currency.

    Attributes:
        window_minutes: of a window of `velocity`; windows are aligned to 1970-01-01 UTC.
        window_purchases, window_amount: more of a customer in one window is an alert.
        gap_minutes: at most between two purchases of a session of `risky_session`.
        session_purchases: so many risky purchases in one session are an alert.
        session_amount, session_risk: a risky purchase has a greater amount and a greater risk score.
        grace_minutes: how late a purchase may be, in event time.
    """

    window_minutes: int = 5
    window_purchases: int = 10
    window_amount: int = 5_000
    gap_minutes: int = 5
    session_purchases: int = 3
    session_amount: int = 1_000
    session_risk: int = 70
    grace_minutes: float = 60.0

    @property
    def window(self) -> int:
        """The length of a window in microseconds."""
        return self.window_minutes * MICROS_A_MINUTE

    @property
    def gap(self) -> int:
        """The gap of sessions in microseconds."""
        return self.gap_minutes * MICROS_A_MINUTE

    @property
    def grace(self) -> int:
        """The grace in microseconds."""
        return round(self.grace_minutes * MICROS_A_MINUTE)

    @property
    def reach(self) -> int:
        """How far risky purchases are apart at most, in microseconds, of which one decides about the other.

        Only the nearest ones on either side count, as many as make an alert: each is at most a gap from the next one.
        """
        return self.session_purchases * self.gap

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return what the settings say."""
        return cls(**{name: getattr(settings, f"alert_{name}") for name in cls._fields})

    def __str__(self) -> str:
        """Say it as settings."""
        return ", ".join(f"ACTIVITY_ALERT_{name.upper()}={value:g}" for name, value in self._asdict().items())
