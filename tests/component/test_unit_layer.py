"""Unit tests are fast because they bring little: what is heavy must not come in by some module's import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from customer_activity.settings import PROJECT

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
        "streams.current.activity",
        "streams.current.profiles",
        "streams.current.summaries",
        "streams.bronze.landing",
        "streams.silver.tasks",
        "streams.silver.profile_tasks",
        "streams.gold.tasks",
    ],
)
def test_what_executors_import_is_light(module: str) -> None:
    """Each of Spark's Python workers imports it, and an executor needs no package that it does not use."""
    told = f"import sys; import customer_activity.{module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert not {"deltalake", "pydantic", "confluent_kafka", "duckdb", "pyspark"}.intersection(done.stdout.split())
