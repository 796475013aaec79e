"""What answers look like, for the description of the API; they are put together without these models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from customer_activity.contracts.schema import CUSTOMER_ACTIVITY, Kind
from customer_activity.portal.freshness import State

TYPES = {Kind.STRING: str, Kind.INTEGER: int, Kind.NUMBER: float}
MILLIS = "milliseconds since 1970-01-01 UTC"


class FreshnessModel(BaseModel):
    """How fresh an answer is."""

    state: State
    stale: bool = Field(description="Whether the answer is older than ACTIVITY_PORTAL_STALE_SECONDS.")
    completeUntilEpochMillis: int | None = Field(  # noqa: N815 - as the other fields are called
        description=f"Everything that was committed to the view topic by then is in the answer; {MILLIS}."
    )
    behindSeconds: float | None = Field(description="Seconds since then.")  # noqa: N815
    lagRecords: int | None = Field(description="Offsets of the topic that are not in the answer.")  # noqa: N815
    heardSecondsAgo: float | None = Field(description="Seconds since the broker last answered.")  # noqa: N815
    position: dict[str, int] = Field(description="Next offset of each partition of the view topic.")
    restored: float = Field(description="Share of the topic that has been read, from 0 to 1.")
    problem: str = Field(description="Why the portal does not go on; empty when it does.")


Row: Any = create_model(
    "Row",
    __doc__=CUSTOMER_ACTIVITY.description,
    **{  # type: ignore[call-overload]
        field.name: (
            TYPES[field.kind] | None if field.nullable else TYPES[field.kind],
            Field(description=field.description),
        )
        for field in CUSTOMER_ACTIVITY.fields
    },
)


class Answer(BaseModel):
    """What every answer has."""

    freshness: FreshnessModel


class Refusal(Answer):
    """An answer that has nothing else."""

    error: str


class CustomerAnswer(Answer):
    """One customer."""

    customer: Row


class FoundAnswer(Answer):
    """Some customers."""

    customers: list[Row]


class ChangeModel(BaseModel):
    """What a record of the view topic changed."""

    number: int = Field(description="Counts the changes of this store.")
    customerId: str  # noqa: N815
    atEpochMillis: int = Field(description=f"The record's Kafka timestamp, {MILLIS}.")  # noqa: N815
    kind: Literal["added", "changed", "removed", "restored"] = Field(
        description="`restored`: read when the store was restored; what changed by it is not known."
    )
    fields: list[str] = Field(description="The fields whose values are others now.")
    row: Row | None = Field(description="The row now; null when it was removed.")


class ChangesAnswer(Answer):
    """The newest changes."""

    changes: list[ChangeModel]


class NodeModel(BaseModel):
    """A topic or a table."""

    id: str
    kind: Literal["topic", "table"]
    label: str
    column: int = Field(description="How many streams it is away from the input.")
    count: int | None = Field(description="Records on the topic, or rows of the table.")
    perSecond: float | None = Field(description="By how many a second that has grown lately.")  # noqa: N815
    newestEpochMillis: int | None = Field(  # noqa: N815
        description=f"The newest Kafka timestamp of the input that it reflects, {MILLIS}."
    )


class StreamModel(BaseModel):
    """A stream, from what it reads to what it writes."""

    name: str
    state: str
    message: str
    reads: list[str]
    writes: list[str]
    isBehind: bool = Field(description="Whether it is behind the hot path.")  # noqa: N815
    promises: str
    lagRecords: int | None = Field(description="Records of Kafka that have not landed.")  # noqa: N815
    lagCommits: int | None = Field(description="Commits of tables that it has not read.")  # noqa: N815
    isCurrent: bool  # noqa: N815
    freshnessSeconds: float | None = Field(description="How long input that is not through has waited.")  # noqa: N815
    rowsPerSecond: float | None = Field(description="Of its last batch.")  # noqa: N815
    batchSeconds: float | None  # noqa: N815
    batchRows: int | None  # noqa: N815
    batchAt: str | None  # noqa: N815


class FlowModel(BaseModel):
    """The pipeline at one moment."""

    atEpochMillis: int  # noqa: N815
    caughtUp: bool  # noqa: N815
    nodes: list[NodeModel]
    streams: list[StreamModel]
    notes: list[str] = Field(description="What cannot be known, and why.")


class FlowAnswer(Answer):
    """The pipeline's flow."""

    flow: FlowModel


class RuleModel(BaseModel):
    """The newest verdict on a rule."""

    rule: str
    suite: str
    severity: Literal["hold", "warn"]
    outcome: Literal["passed", "failed", "error"]
    found: str
    observed: float | None
    judged_at: int = Field(description=f"{MILLIS}.")
    run_id: str


class VerdictsModel(BaseModel):
    """What is known of quality."""

    judgedAtEpochMillis: int | None  # noqa: N815
    rules: list[RuleModel]
    holding: dict[str, str] = Field(description="The rules that hold publishing, and what they found.")
    overridden: dict[str, str] = Field(description="The rules that failed and do not hold it, and why not.")


class QualityAnswer(Answer):
    """Quality's verdicts."""

    quality: VerdictsModel


class AlertsAnswer(Answer):
    """The newest alerts."""

    alerts: list[dict[str, Any]] | None = Field(description="As on the topic of alerts: docs/CONTRACTS.md.")


class WindowsAnswer(Answer):
    """A customer's windows."""

    windows: dict[str, list[dict[str, Any]]] | None = Field(description="Rows by table: docs/WINDOWS.md.")


NO_LAKE: Any = {503: {"model": Refusal, "description": "The lake cannot be read."}}
FLOW: Any = {200: {"model": FlowAnswer}}
QUALITY: Any = {200: {"model": QualityAnswer}}
ALERTS: Any = {200: {"model": AlertsAnswer}}
WINDOWS: Any = {200: {"model": WindowsAnswer}}
NOT_YET: Any = {503: {"model": Refusal, "description": "The store is being restored."}}
CUSTOMER: Any = {200: {"model": CustomerAnswer}, 404: {"model": Refusal, "description": "There is no such row."}}
FOUND: Any = {200: {"model": FoundAnswer}}
CHANGES: Any = {200: {"model": ChangesAnswer}}
EVENTS: Any = {
    200: {"content": {"text/event-stream": {}}, "description": "Events until who asked goes away."},
    429: {"model": Refusal, "description": "Too many event streams are open."},
}
