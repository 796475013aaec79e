"""What the routes answer from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fastapi import Request

from customer_activity.portal.access import Role
from customer_activity.portal.events import Broadcast
from customer_activity.portal.following import Follower
from customer_activity.portal.freshness import Watch
from customer_activity.portal.metrics import Metrics
from customer_activity.portal.pipeline import Pipeline
from customer_activity.settings import Settings


@dataclass(frozen=True)
class Portal:
    """A portal that runs.

    Attributes:
        settings: of the deployment.
        watch: how fresh it is.
        follower: what brings the store up to date, and reads it.
        broadcast: who listens to changes.
        metrics: what is counted.
        pipeline: what is shown of the pipeline.
    """

    settings: Settings
    watch: Watch
    follower: Follower
    broadcast: Broadcast
    metrics: Metrics
    pipeline: Pipeline


def role_of(request: Request) -> Role:
    """Return the role that the guard has found; a request without one comes to no route that shows data."""
    return cast("Role", request.state.role)
