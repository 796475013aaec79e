"""The jars of infra/jars/ivy.xml: none is older than what closed its known holes (docs/OPERATIONS.md lists them)."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from support.images import PROJECT

IVY = ET.parse(PROJECT / "infra" / "jars" / "ivy.xml").getroot()  # noqa: S314 - our own file


def revisions(organisation: str, name: str, folder: str) -> list[tuple[int, ...]]:
    """Return which revisions of a jar are in a folder."""
    wanted = {"org": organisation, "name": name, "conf": f"{folder}->default"}
    found = [entry for entry in IVY.iter("dependency") if wanted.items() <= entry.attrib.items()]
    return [tuple(int(part) for part in entry.attrib["rev"].split(".")) for entry in found]


@pytest.mark.parametrize(
    ("organisation", "name", "folder", "least"),
    [
        pytest.param("org.apache.kafka", "kafka-clients", "spark", (3, 9, 2), id="Kafka's client in Spark"),
        pytest.param("org.apache.kafka", "kafka_2.13", "broker", (4, 1, 2), id="the broker"),
        pytest.param("org.apache.kafka", "kafka-clients", "broker", (4, 1, 2), id="the broker's client"),
        pytest.param("at.yawk.lz4", "lz4-java", "spark", (1, 11, 2), id="LZ4 in Spark"),
        pytest.param("at.yawk.lz4", "lz4-java", "broker", (1, 11, 2), id="LZ4 in the broker"),
        pytest.param("org.apache.logging.log4j", "log4j-core", "broker", (2, 25, 3), id="the broker's Log4j"),
    ],
)
def test_it_is_not_older_than_what_closed_its_holes(
    organisation: str, name: str, folder: str, least: tuple[int, ...]
) -> None:
    (revision,) = revisions(organisation, name, folder)
    assert revision >= least


def test_the_lz4_that_reads_past_its_buffers_is_nowhere() -> None:
    assert not [entry for entry in IVY.iter("dependency") if entry.attrib["org"] == "org.lz4"]
    assert "'lz4-java-1.8.0*'" in (PROJECT / "infra" / "spark" / "home.sh").read_text(encoding="utf-8")
