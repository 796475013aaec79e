"""A session whose Java does not start: a mistake in a setting, told without pyspark's stack."""

from __future__ import annotations

import os
import subprocess
import sys

START = """
from customer_activity import settings
from customer_activity.engine import session
from customer_activity.errors import EnvironmentFault
try:
    session.start(settings.load())
except EnvironmentFault as fault:
    print(fault)
"""
MORE_THAN_THERE_IS = "9000000g"


def test_a_java_that_does_not_start_is_a_setting_to_correct() -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    variables = {**os.environ, "PYTHONPATH": path, "ACTIVITY_DRIVER_MEMORY": MORE_THAN_THERE_IS}
    ended = subprocess.run(
        [sys.executable, "-c", START], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert "heap" in ended.stdout + ended.stderr, "Java's own words are not lost"
    what, remedy = ended.stdout.strip().splitlines()[-2:]
    assert MORE_THAN_THERE_IS in what
    assert "ACTIVITY_DRIVER_MEMORY" in remedy
