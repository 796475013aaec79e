"""What has to be sent for the topic to say what gold says."""

from __future__ import annotations

import json

import pytest

from customer_activity.errors import TerminalError
from customer_activity.publish.resync import differences


def row(version: int, address: str = "1 Old Street") -> bytes:
    return json.dumps({"address": address, "viewVersion": version}).encode()


@pytest.mark.parametrize(
    ("wanted", "on_topic", "held", "sent"),
    [
        pytest.param({b"C-1": row(1)}, {b"C-1": row(1)}, set(), {}, id="equal"),
        pytest.param({b"C-1": row(1)}, {}, set(), {b"C-1": row(1)}, id="a row is missing"),
        pytest.param({b"C-1": row(1)}, {b"C-1": None}, set(), {b"C-1": row(1)}, id="a row was deleted"),
        pytest.param({b"C-1": row(2, "2")}, {b"C-1": row(1)}, set(), {b"C-1": row(2, "2")}, id="a row is stale"),
        pytest.param({b"C-1": row(1)}, {b"C-1": b"{}"}, set(), {b"C-1": row(1)}, id="a value is none of ours"),
        pytest.param({b"C-1": row(1)}, {b"C-1": b"{"}, set(), {b"C-1": row(1)}, id="a value is no JSON"),
        pytest.param({}, {b"C-1": row(1)}, set(), {b"C-1": None}, id="a row is too many"),
        pytest.param({}, {b"C-1": None}, set(), {}, id="deleted on both sides"),
        pytest.param({}, {b"C-1": row(1)}, {b"C-1"}, {}, id="the row is too large by now: the last that fitted stays"),
    ],
)
def test_only_what_differs_is_sent(
    wanted: dict[bytes, bytes],
    on_topic: dict[bytes, bytes | None],
    held: set[bytes],
    sent: dict[bytes, bytes | None],
) -> None:
    assert dict(differences(wanted, on_topic, held)) == sent


@pytest.mark.parametrize("version", [1, 2], ids=["the same version, another row", "an older version"])
def test_a_lake_that_is_behind_its_topic_is_refused(version: int) -> None:
    with pytest.raises(TerminalError, match="newer rows than the lake"):
        list(differences({b"C-1": row(version, "2")}, {b"C-1": row(2)}, set()))
