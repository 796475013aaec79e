"""Topics and tables as OpenLineage names and describes them (openlineage.io/docs/spec/naming)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from openlineage.client.facet_v2 import (
    DatasetFacet,
    dataset_version_dataset,
    schema_dataset,
    storage_dataset,
)
from openlineage.client.facet_v2 import column_lineage_dataset as lineage
from openlineage.client.naming.dataset import S3, DatasetNaming, Kafka, LocalFileSystem

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lineage.origins import CONTRACTS, origins
from customer_activity.settings import Settings
from customer_activity.storage import s3
from customer_activity.topology import End, How, Spec, Topic, Writes

DEFAULT_PORT = "9092"
INTEGERS = {pa.int64(): "bigint", pa.int32(): "int", pa.bool_(): "boolean", pa.date32(): "date", pa.float64(): "double"}


class Name(NamedTuple):
    """A dataset's name."""

    namespace: str
    name: str


def named(settings: Settings, end: End) -> Name:
    """Name a topic or a table of a deployment."""
    found = _naming(settings, end)
    return Name(found.get_namespace(), found.get_name())


def _naming(settings: Settings, end: End) -> DatasetNaming:
    if isinstance(end, Topic):
        first = settings.kafka_bootstrap_servers.split(",")[0].strip().rpartition("://")[2]
        host, _, port = first.rpartition(":") if ":" in first else (first, "", DEFAULT_PORT)
        return Kafka(host, port, settings.topics[end.role])
    path = table_path(settings.lake, end)
    if settings.is_on_s3:
        bucket, key = s3.place(path)
        return S3(bucket, key)
    return LocalFileSystem(path)


def described(end: End) -> dict[str, DatasetFacet]:
    """Return what is always so of a dataset: its columns, and what it is stored as."""
    if isinstance(end, Table):
        fields = [(field.name, sql_type(field.type), "") for field in arrow_schema(end)]
        storage = storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet")
    else:
        contract = CONTRACTS.get(end.role)
        fields = [(field.name, field.kind.value, field.description) for field in contract.fields] if contract else []
        storage = storage_dataset.StorageDatasetFacet(storageLayer="kafka", fileFormat="json")
    found: dict[str, DatasetFacet] = {"storage": storage}
    if fields:
        found["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=name, type=kind, description=description or None)
                for name, kind, description in fields
            ]
        )
    return found


def column_lineage(settings: Settings, spec: Spec, write: Writes) -> dict[str, DatasetFacet]:
    """Return what the columns of what a stream writes are made of; nothing where it tells of none."""
    made = {
        column: lineage.Fields(
            inputFields=[
                lineage.InputField(
                    *named(settings, origin.end),
                    field=origin.column,
                    transformations=[_transformation(origin.how)],
                )
                for origin in made_of
            ]
        )
        for column, made_of in origins(spec, write).items()
    }
    return {"columnLineage": lineage.ColumnLineageDatasetFacet(fields=made)} if made else {}


def _transformation(how: How) -> lineage.Transformation:
    subtype = How.TRANSFORMATION if how is How.MASKED else how
    return lineage.Transformation(type="DIRECT", subtype=subtype.value, masking=how is How.MASKED)


def version(number: int) -> dict[str, DatasetFacet]:
    """Return a facet with a table's version."""
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(number))}


def sql_type(kind: Any) -> str:
    """Return a column's type as Spark's DDL calls it."""
    if kind in INTEGERS:
        return INTEGERS[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
    return "binary" if pa.types.is_binary(kind) else "string"
