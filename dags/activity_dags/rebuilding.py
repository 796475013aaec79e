"""A rebuild as its form asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from activity_dags.command import ActivityOperator


class RebuildOperator(ActivityOperator):
    """Run `activity rebuild` for what a run's params choose: `customers`, `since`, `until`; all when they are empty."""

    def __init__(self, **kwargs: Any) -> None:
        """Know the command; what is chosen comes with the run."""
        super().__init__(arguments=["rebuild"], **kwargs)

    def execute(self, context: Any) -> None:
        """Run it; see ActivityOperator."""
        self.arguments = ["rebuild", *options(context["params"])]
        super().execute(context)


def options(params: Mapping[str, Any]) -> list[str]:
    """Return the command's options for a run's params. Each is one word: a value may begin with a dash."""
    customers = [f"--customer={customer}" for customer in params["customers"]]
    return [*customers, *(f"--{bound}={params[bound]}" for bound in ("since", "until") if params[bound])]
