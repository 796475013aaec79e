"""Unit tests are fast because they bring little: what is heavy must not come in by some module's import."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial

import pytest

from customer_activity.engine import merge_tasks
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.merge_tasks import Work
from customer_activity.settings import PROJECT
from customer_activity.streams.current import activity, masked, profiles, summaries

HEAVY = ("pyspark", "py4j", "delta", "moto", "great_expectations")
COLLECT = f"""
import sys, pytest
code = pytest.main(["--collect-only", "--quiet", "-p", "no:cacheprovider", "tests/unit"])
print("heavy:", *[name for name in {HEAVY} if name in sys.modules])
sys.exit(code)
"""


def test_unit_tests_import_no_spark() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].split() == ["heavy:"]


@pytest.mark.parametrize(
    "module",
    [
        "storage.marker",
        "engine.merge_tasks",
        "maintenance.tasks",
        "streams.bronze.landing",
        "streams.silver.tasks",
        "streams.silver.profile_tasks",
        "streams.gold.tasks",
    ],
)
def test_what_executors_import_is_light(module: str) -> None:
    """Each of Spark's Python workers imports it, and an executor needs no package that it does not use."""
    assert_light(f"import customer_activity.{module}")


@pytest.mark.parametrize(
    "stream", [each.STREAM for each in (activity, masked, profiles, summaries)], ids=lambda it: it.spec.name
)
def test_what_executors_are_given_to_merge_is_light(stream: CurrentRows) -> None:
    """It names the module of its stream, which they import."""
    task = pickle.dumps(partial(merge_tasks.fold, Work("lake", stream, [], 1, has_rows=True)))
    assert_light(f"import pickle; pickle.loads({task!r})")


def assert_light(statement: str) -> None:
    told = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert not {"deltalake", "pydantic", "confluent_kafka", "duckdb", "pyspark"}.intersection(done.stdout.split())
