"""A rebuild as a task, and the form on which a run chooses what is rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from activity_dags.command import ActivityOperator


def optional(description: str, **schema: Any) -> Param:
    """Return a field for a text that may be left empty."""
    return Param(None, type=["null", "string"], description=description, **schema)


def form() -> dict[str, Param]:
    """Return the fields of a run's form."""
    return {
        "customers": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            description="Customer ids, one per line; all customers when empty.",
        ),
        "since": optional("Only customers with a record at this time or later.", format="date-time"),
        "until": optional("Only customers with a record before this time.", format="date-time"),
        "apply": Param(
            default=False,
            type="boolean",
            description="Replace the rows that differ, of all customers; the stream DAG must be paused.",
        ),
        "undo": optional("Undo this correction instead (`activity rebuild --list`); the stream DAG must be paused."),
    }


class RebuildOperator(ActivityOperator):
    """Run `activity rebuild` for what a run's params, those of its form, choose."""

    def __init__(self, **kwargs: Any) -> None:
        """Know the command; what is chosen comes with the run."""
        super().__init__(arguments=["rebuild"], **kwargs)

    def execute(self, context: Any) -> None:
        """Run it; see ActivityOperator."""
        self.arguments = ["rebuild", *options(context["params"])]
        super().execute(context)


def options(params: Mapping[str, Any]) -> list[str]:
    """Return the command's options for a run's params. Each is one word: a value may begin with a dash."""
    customers = [f"--customer={customer}" for customer in params["customers"] or []]
    chosen = [*customers, *(f"--{name}={params[name]}" for name in ("since", "until", "undo") if params[name])]
    return [*chosen, "--apply"] if params["apply"] else chosen
