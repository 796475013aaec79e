"""Two pipelines on one Airflow: a set of DAGs for each, with names, settings and pauses of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, AssetAll, AssetOrTimeSchedule, BaseHook, Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException
from structlog.testing import capture_logs

from activity_dags import pipelines
from activity_dags.command import ActivityOperator
from activity_dags.conventions import gold
from activity_dags.driver import DriverOperator
from activity_dags.pipelines import DEFAULT, FOLDER, PIPELINE, PROGRAM, Pipeline
from activity_dags.watching import DriverTrigger

DAGS = Path(__file__).resolve().parents[2] / "dags"
KINDS = ("batch", "maintenance", "quality", "rebuild", "stream")
SHOP, ORDERS = "customer-activity", "orders-eu"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Declare two pipelines, in a folder of files."""
    declared = tmp_path / "pipelines"
    declared.mkdir()
    for name in (SHOP, ORDERS):
        text = f"# what only {name} has\n\nACTIVITY_PIPELINE={name}\nACTIVITY_LAKE='/lakes/of {name}'  # quoted\n"
        (declared / f"{name}.env").write_text(text, encoding="utf-8")
    monkeypatch.setenv(FOLDER, str(declared))
    return declared


def add(folder: Path, line: str, name: str = ORDERS) -> None:
    with (folder / f"{name}.env").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def read() -> list[DagBag]:
    """Read all files as Airflow does."""
    return [DagBag(file, load_op_links=False) for file in sorted(DAGS.glob("*.py"))]


def loaded() -> dict[str, DAG]:
    """Return the DAGs of all files, none of which has an error."""
    bags = read()
    assert [bag.import_errors for bag in bags] == [{}] * len(bags)
    return {name: dag for bag in bags for name, dag in bag.dags.items()}


def errors() -> list[str]:
    """Return what is wrong with each of the files."""
    return [said for bag in read() for said in bag.import_errors.values()]


def quality(pipeline: Pipeline) -> ActivityOperator:
    return ActivityOperator(pipeline=pipeline, task_id="task", arguments=["quality"])


@pytest.mark.usefixtures("folder")
def test_each_has_a_set_of_dags_with_ids_of_their_own() -> None:
    dags = loaded()
    assert set(dags) == {f"{prefix}_{kind}" for prefix in ("customer_activity", "orders_eu") for kind in KINDS}
    for name in (SHOP, ORDERS):
        mine = [dag for dag in dags.values() if name in dag.tags]
        assert {dag.dag_id.removeprefix(f"{name.replace('-', '_')}_") for dag in mine} == set(KINDS)
        operators = [task for dag in mine for task in dag.tasks if hasattr(task, "pipeline")]
        assert {task.pipeline.name for task in operators} == {name}
        assert Counter(type(task).__name__ for task in operators) == {
            "ActivityOperator": 3,  # of batch, maintenance and quality
            "DriverOperator": 1,
            "JudgeOperator": 1,
            "RebuildOperator": 1,
            "ReportOperator": 1,
        }


@pytest.mark.usefixtures("folder")
def test_a_page_speaks_of_its_own_pipeline() -> None:
    for dag in loaded().values():
        other = "customer_activity" if ORDERS in dag.tags else "orders_eu"
        assert other not in f"{dag.doc_md} {dag.dag_id}"
    assert "`orders_eu_spark`" in (loaded()["orders_eu_stream"].doc_md or "")


@pytest.mark.usefixtures("folder")
def test_what_one_has_written_asks_for_its_own_quality() -> None:
    dags = loaded()
    assets = []
    for prefix in ("customer_activity", "orders_eu"):
        driver, drain = dags[f"{prefix}_stream"].get_task("driver"), dags[f"{prefix}_batch"].get_task("drain")
        assert driver.outlets == drain.outlets
        judged = dags[f"{prefix}_quality"].timetable
        assert isinstance(judged, AssetOrTimeSchedule)
        assert judged.asset_condition == AssetAll(*driver.outlets)
        assets += driver.outlets
    assert len({asset.name for asset in assets}) == len({asset.uri for asset in assets}) == 2


@pytest.mark.parametrize(
    ("name", "ids", "asset"),
    [
        pytest.param(
            DEFAULT,
            ("customer_activity_stream", "customer_activity_alerts"),
            ("customer_activity", "x-customer-activity://gold/customer_activity"),
            id="the default one: as ever",
        ),
        pytest.param(
            "orders-eu",
            ("orders_eu_stream", "orders_eu_alerts"),
            ("orders_eu", "x-orders-eu://gold/customer_activity"),
            id="another",
        ),
    ],
)
def test_what_is_called_after_a_pipeline(name: str, ids: tuple[str, str], asset: tuple[str, str]) -> None:
    pipeline = Pipeline(name)
    assert (pipeline.id("stream"), pipeline.id("alerts")) == ids
    assert (gold(pipeline).name, gold(pipeline).uri) == asset


def test_without_a_folder_there_is_one_by_the_name_in_airflows_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setenv(PIPELINE, ORDERS)
    assert set(loaded()) == {f"orders_eu_{kind}" for kind in KINDS}
    monkeypatch.setenv(PIPELINE, "Orders EU")
    assert ["Orders EU is not a valid name of a pipeline" in said for said in errors()] == [True] * len(KINDS)


def test_a_folder_that_is_not_there_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(folder / "mistyped"))
    assert ["mistyped" in said for said in errors()] == [True] * len(KINDS)


@pytest.mark.parametrize("name", ["Orders.env", "orders_eu.env", ".env", "-.env", f"{'a' * 64}.env"])
def test_a_file_that_no_pipeline_can_be_called_after_is_left_out(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / name).touch()
    (folder / "orders-eu.env~").touch()  # an editor's
    with caplog.at_level(logging.WARNING):
        assert [pipeline.name for pipeline in pipelines.declared()] == [SHOP, ORDERS]
    assert name in caplog.text or name == ".env"  # which is a name without an ending


@pytest.mark.usefixtures("folder")
def test_a_command_sees_its_own_settings_and_nobody_elses(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVITY_VIEW_TOPIC", "of-airflow's-own")
    program.answers(quality=[{}])
    for pipeline in pipelines.declared():
        quality(pipeline).execute({})
    assert [call[-1] for call in program.asked] == [
        {PIPELINE: name, "ACTIVITY_LAKE": f"/lakes/of {name}"} for name in (SHOP, ORDERS)
    ]


def test_a_pipeline_may_have_a_command_of_its_own(program: Any, folder: Path, tmp_path: Path) -> None:
    add(folder, f"{PROGRAM}={tmp_path / 'another-release'}")
    program.answers(quality=[{}])
    shop, orders = pipelines.declared()
    quality(shop).execute({})
    with pytest.raises(AirflowException, match="another-release"):
        quality(orders).execute({})
    assert [call[-1][PIPELINE] for call in program.asked] == [SHOP]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("AWS_SECRET_ACCESS_KEY=hidden", "line 5: not a setting", id="no setting of the product's"),
        pytest.param("ACTIVITY_CURRENCY", "line 5: not a setting", id="without a value"),
        pytest.param("ACTIVITY_LAKE=/hidden lakes/x", "line 5: not a setting", id="a space without quotes"),
        pytest.param("ACTIVITY_LAKE='/hidden", "line 5: not a setting", id="a quote that is not closed"),
        pytest.param(f"{PIPELINE}=hidden", "does not say ACTIVITY_PIPELINE=orders-eu", id="another pipeline's name"),
    ],
)
def test_what_is_wrong_with_one_file_fails_the_tasks_of_that_one_alone(
    program: Any, folder: Path, line: str, words: str
) -> None:
    add(folder, line)
    program.answers(quality=[{}])
    assert len(loaded()) == 2 * len(KINDS)
    shop, orders = pipelines.declared()
    with pytest.raises(AirflowFailException, match=words) as raised:
        quality(orders).execute({})
    assert "hidden" not in str(raised.value)
    quality(shop).execute({})
    assert len(program.asked) == 1


def test_a_pipeline_whose_file_is_gone_says_so(program: Any, folder: Path) -> None:
    _, orders = pipelines.declared()
    (folder / f"{ORDERS}.env").unlink()
    with pytest.raises(AirflowFailException, match=r"orders-eu\.env cannot be read"):
        quality(orders).execute({})


@pytest.mark.usefixtures("folder")
def test_its_driver_is_started_stopped_and_watched_with_its_settings(
    program: Any, well: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Connection:
        asked.append(name)
        raise AirflowNotFoundException

    asked: list[str] = []
    monkeypatch.setattr(BaseHook, "get_connection", missing)
    program.answers(
        driver_start=[{"lines": [well(is_new=True)]}],
        driver_status=[{"lines": [well()]}],
        driver_stop=[{"lines": [{"graceful": True}]}],
    )
    driver: Any = loaded()["orders_eu_stream"].get_task("driver")
    assert isinstance(driver, DriverOperator)
    driver.submit_job({})
    driver.get_job_status(4711, {})
    driver.on_kill()
    path, mine = DriverTrigger(pipeline=ORDERS, dag_id="orders_eu_stream", until=1.0).serialize()
    assert path == "activity_dags.watching.DriverTrigger"
    asyncio.run(DriverTrigger(**mine).on_kill())
    assert program.commands == ["driver start", "driver status", "driver stop", "driver stop"]
    assert {(call[-1][PIPELINE], call[-1]["ACTIVITY_LAKE"]) for call in program.asked} == {
        (ORDERS, f"/lakes/of {ORDERS}")
    }
    assert asked == ["orders_eu_spark"]


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., int]) -> list[str]:
    """Serve Airflow's API, where the one pipeline's stream is paused until it is asked for the third time."""
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, Any]]:
        if request.command == "POST":
            return 201, {"access_token": "token"}
        dag = request.path.rpartition("/")[2]
        asked.append(dag)
        return 200, {"is_paused": dag == "orders_eu_stream" and asked.count(dag) < 3}

    port = serve(answer)

    async def found(name: str) -> Connection:
        assert name in ("customer_activity_airflow", "orders_eu_airflow")
        return Connection(conn_id=name, conn_type="http", host="127.0.0.1", port=port)

    monkeypatch.setattr(BaseHook, "aget_connection", found)
    monkeypatch.setattr("activity_dags.pausing.ASK_SECONDS", 0.01)
    return asked


@pytest.mark.usefixtures("folder")
def test_pausing_one_stops_its_driver_and_leaves_the_others(
    program: Any, well: Callable[..., Any], airflow: list[str]
) -> None:
    program.answers(
        driver_watch=[{"lines": [well()], "stays": True}, {"lines": [well(), well(state="dead")], "code": 1}],
        driver_stop=[{"lines": ["stopped"]}],
    )

    async def event(name: str) -> dict[str, Any]:
        dag = f"{name.replace('-', '_')}_stream"
        trigger = DriverTrigger(pipeline=name, dag_id=dag, until=3e9)
        return dict((await asyncio.wait_for(anext(aiter(trigger.run())), 60)).payload)

    assert asyncio.run(event(ORDERS))["message"] == "the DAG was paused"
    assert asyncio.run(event(SHOP))["state"] == "dead"
    assert [(command, call[-1][PIPELINE]) for command, call in zip(program.commands, program.asked, strict=True)] == [
        ("driver watch", ORDERS),
        ("driver stop", ORDERS),
        ("driver watch", SHOP),
    ]
    assert set(airflow) == {"orders_eu_stream", "customer_activity_stream"}


@pytest.mark.usefixtures("folder")
def test_a_failure_is_told_by_the_pipelines_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Connection:
        raise AirflowNotFoundException

    monkeypatch.setattr(BaseHook, "get_connection", missing)
    context = {"ti": SimpleNamespace(dag_id="d", task_id="t", log_url="http://airflow/log")}
    callbacks = [dag.default_args["on_failure_callback"] for dag in loaded().values()]
    with capture_logs() as logged:
        for tell in callbacks:
            tell(context)
    names = Counter(entry["connection"] for entry in logged)
    assert names == {"customer_activity_alerts": len(KINDS), "orders_eu_alerts": len(KINDS)}
