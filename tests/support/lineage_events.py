"""Holds OpenLineage's events against its published schemas, and ours of our own facets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from customer_activity.lineage import facets

FOLDER = Path(__file__).parents[1] / "fixtures" / "openlineage"
OURS = Path(facets.__file__).with_name("facets.schema.json")
FILES = [*FOLDER.glob("*.json"), OURS]
SCHEMAS = {schema["$id"]: schema for schema in (json.loads(file.read_text(encoding="utf-8")) for file in FILES)}
REGISTRY: Registry[Any] = Registry().with_resources(
    (name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)
RUN_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"


def validator(schema: str) -> Draft202012Validator:
    """Return what holds something against a schema, by its address; one that is not at hand is an error."""
    assert schema.partition("#")[0] in SCHEMAS, f"{schema} is not in {FOLDER}"
    return Draft202012Validator({"$ref": schema}, registry=REGISTRY, format_checker=FormatChecker())


def faults(event: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with an event: of the event itself, and of each facet by the schema that it names."""
    assert event["schemaURL"] == RUN_EVENT
    yield from (error.message for error in validator(RUN_EVENT).iter_errors(event))
    for facet in facets_of(event):
        yield from (error.message for error in validator(facet["_schemaURL"]).iter_errors(facet))


def facets_of(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every facet of an event."""
    ends = [*event["inputs"], *event["outputs"]]
    holders = [event["run"], event["job"], *ends]
    for holder in holders:
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from holder.get(kind, {}).values()


def read(file: Path) -> list[dict[str, Any]]:
    """Return the events in a file, and see that each is valid."""
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for event in events:
        assert list(faults(event)) == []
    return events


def dataset(event: dict[str, Any], end: str) -> dict[str, Any]:
    """Return one of an event's datasets by the end of its name."""
    (found,) = (each for each in (*event["inputs"], *event["outputs"]) if each["name"].endswith(end))
    return dict(found)
