"""Ask Airflow's REST API whether a DAG is paused: Airflow does not tell triggers."""

from __future__ import annotations

import asyncio

import httpx
import structlog
from airflow.sdk import BaseHook, Connection

from activity_dags.pipelines import Pipeline

CONNECTION = "airflow"
ASK_SECONDS = 5.0
LIMIT_SECONDS = 10.0

log = structlog.get_logger(__name__)


class Pausing:
    """One DAG's pauses. A question without an answer counts as no: a driver is not stopped for want of an API.

    Attributes:
        is_seen: what the last question brought.
    """

    def __init__(self, pipeline: Pipeline, dag_id: str) -> None:
        """Take which DAG."""
        self.connection = pipeline.id(CONNECTION)
        self.dag_id = dag_id
        self.token = ""
        self.is_seen = False
        self.is_told = False

    async def is_paused(self) -> bool:
        """Whether the DAG is paused now; no when nobody can say, and the task's log tells why once."""
        self.is_seen = False
        try:
            self.is_seen = await self.ask(await BaseHook.aget_connection(self.connection))
        except Exception as error:  # noqa: BLE001 - whatever the connection says (a host that is none, for one)
            if not self.is_told:
                self.is_told = True
                await log.awarning("Pausing this DAG will not stop the driver", why=f"{type(error).__name__}: {error}")
        return self.is_seen

    async def ask(self, connection: Connection) -> bool:
        """Ask once, with a new token when there is none or it is not taken any longer."""
        root = f"{connection.schema or 'http'}://{connection.host}:{connection.port or 8080}"
        async with httpx.AsyncClient(base_url=root, timeout=LIMIT_SECONDS) as api:
            answer = await self.dag(api) if self.token else None
            if answer is None or answer.status_code == httpx.codes.UNAUTHORIZED:
                who = {"username": connection.login, "password": connection.password}
                given = (await api.post("/auth/token", json=who)).raise_for_status()
                self.token = given.json()["access_token"]
                answer = await self.dag(api)
            self.is_told = False
            return bool(answer.raise_for_status().json()["is_paused"])

    async def dag(self, api: httpx.AsyncClient) -> httpx.Response:
        """Ask for what Airflow knows of the DAG."""
        return await api.get(f"/api/v2/dags/{self.dag_id}", headers={"Authorization": f"Bearer {self.token}"})

    async def end(self) -> None:
        """Wait until the DAG is not paused any longer."""
        while await self.is_paused():  # noqa: ASYNC110 - Airflow tells nobody, so it is asked
            await asyncio.sleep(ASK_SECONDS)
