"""The DAGs as files: they load without the product, say what somebody on call needs, and hold wiring only."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, AssetAll, AssetOrTimeSchedule
from airflow.timetables.base import TimeRestriction
from airflow.timetables.simple import ContinuousTimetable

from activity_dags.command import ActivityOperator
from activity_dags.conventions import gold
from activity_dags.pipelines import DEFAULT, Pipeline

FOLDER = Path(__file__).resolve().parents[2] / "dags"
FILES = sorted(FOLDER.glob("*.py"))
SECTIONS = ("### Reads", "### Output", "### Impact of failure", "### Runbook")


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def file(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def loaded(file: Path) -> list[DAG]:
    """Read a file as Airflow does."""
    bag = DagBag(file, load_op_links=False)
    assert bag.import_errors == {}
    return list(bag.dags.values())


def test_a_file_is_one_dag_of_its_name(file: Path) -> None:
    assert [dag.dag_id for dag in loaded(file)] == [file.stem]


def test_it_loads_without_the_product_and_without_spark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("activity_dags", "pyspark", "customer_activity"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("pyspark", "customer_activity"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    assert loaded(file)


def test_it_says_what_it_reads_and_what_a_failure_means(file: Path) -> None:
    (dag,) = loaded(file)
    assert "customer-activity" in dag.tags
    assert dag.description
    assert dag.doc_md is not None
    places = [dag.doc_md.find(section) for section in SECTIONS]
    assert -1 not in places
    assert places == sorted(places)


def test_its_sections_are_headings_and_not_code(file: Path) -> None:
    """Markdown takes text that is indented by four spaces for code."""
    (dag,) = loaded(file)
    assert dag.doc_md is not None
    assert "\n    " not in dag.doc_md


def test_it_holds_wiring_only(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 60


def test_it_never_runs_beside_itself_nor_catches_up(file: Path) -> None:
    (dag,) = loaded(file)
    assert dag.max_active_runs == 1
    assert not dag.catchup


def test_a_run_that_somebody_starts_proves_a_sample_of_its_hour() -> None:
    """Such a run has no logical date."""
    (dag,) = loaded(FOLDER / "customer_activity_quality.py")
    prove = dag.get_task("prove")
    assert isinstance(prove, ActivityOperator)
    prove.render_template_fields({"dag_run": SimpleNamespace(run_after=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))})
    assert prove.arguments == ["verify", "--sample", "1000", "--seed", "2026010203"]


def test_every_run_of_the_stream_is_of_a_moment_of_its_own() -> None:
    """As Airflow's scheduler asks its timetable: two runs of one moment would be one run, and the stream would end."""
    (dag,) = loaded(FOLDER / "customer_activity_stream.py")
    assert dag.start_date is not None
    restriction = TimeRestriction(earliest=pendulum.instance(dag.start_date), latest=None, catchup=dag.catchup)
    last, moments = None, []
    for _ in range(3):
        run = ContinuousTimetable().next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        assert run is not None
        last = run.data_interval
        moments.append(run.logical_date)
    assert len(set(moments)) == 3


def test_a_stream_that_fails_again_and_again_is_paused_as_its_page_says() -> None:
    """Whoever waits for the streams looks for that pause; without it each failure would begin the next run for ever."""
    (dag,) = loaded(FOLDER / "customer_activity_stream.py")
    assert dag.max_consecutive_failed_dag_runs == 3
    assert "after three in a row the DAG is paused" in " ".join((dag.doc_md or "").split())


def test_golds_events_and_the_clock_ask_for_quality() -> None:
    (dag,) = loaded(FOLDER / "customer_activity_quality.py")
    assert isinstance(dag.timetable, AssetOrTimeSchedule)
    assert dag.timetable.asset_condition == AssetAll(gold(Pipeline(DEFAULT)))


@pytest.mark.parametrize(("run_type", "is_proved"), [("asset_triggered", False), ("scheduled", True), ("manual", True)])
def test_what_gold_asks_for_is_not_proved(run_type: str, *, is_proved: bool) -> None:
    (dag,) = loaded(FOLDER / "customer_activity_quality.py")
    decide: Any = dag.get_task("on_the_hour")
    assert decide.python_callable(dag_run=SimpleNamespace(run_type=run_type)) is is_proved
    assert dag.get_task("prove").upstream_task_ids == {"on_the_hour"}
