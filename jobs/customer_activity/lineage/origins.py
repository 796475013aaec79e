"""Which columns a column is made of, from what streams declare: names that are alike, and what they say of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from customer_activity.catalog import ALERTS_ROLE, PAYMENTS_ROLE, PROFILES_ROLE, PURCHASES_ROLE, VIEW_ROLE, Table
from customer_activity.contracts.columns import LANDED
from customer_activity.contracts.schema import (
    CUSTOMER_ACTIVITY,
    CUSTOMER_PROFILE,
    FRAUD_ALERT,
    PAYMENT_CONFIRMED,
    PURCHASE_EVENT,
    Contract,
)
from customer_activity.contracts.tables import arrow_schema
from customer_activity.topology import End, How, Spec, Topic, Writes

CONTRACTS: dict[str, Contract] = {  # by role of a topic
    PURCHASES_ROLE: PURCHASE_EVENT,
    PROFILES_ROLE: CUSTOMER_PROFILE,
    PAYMENTS_ROLE: PAYMENT_CONFIRMED,
    VIEW_ROLE: CUSTOMER_ACTIVITY,
    ALERTS_ROLE: FRAUD_ALERT,
}


class Origin(NamedTuple):
    """A column that another one is made of, and how."""

    end: End
    column: str
    how: How


def columns(end: End) -> list[str]:
    """Return the columns of a table, or the fields of a topic's records; none where no contract has them."""
    if isinstance(end, Table):
        return list(arrow_schema(end).names)
    return [field.name for field in CONTRACTS[end.role].fields] if end.role in CONTRACTS else []


def origins(spec: Spec, write: Writes) -> dict[str, list[Origin]]:
    """Return what each column of what a stream writes is made of; those that are made of none are left out."""
    found = {column: list(_of(spec, write, column)) for column in columns(write.target)}
    return {column: made_of for column, made_of in found.items() if made_of}


def _of(spec: Spec, write: Writes, column: str) -> Iterator[Origin]:
    target = write.target
    if isinstance(target, Topic):
        name = {field.name: field.column for field in CONTRACTS[target.role].fields}[column]
        yield from (Origin(source, name, How.IDENTITY) for source in spec.sources if name in columns(source))
        return
    if spec.topics:
        yield from _landed(spec, target, column)
        return
    sources = spec.sources_of(target) or spec.sources
    told = next((made for made in write.made if made.column == column), None)
    if told is None:
        yield from (Origin(source, column, How.IDENTITY) for source in sources if column in columns(source))
        return
    for of in told.of:
        label, _, name = of.rpartition(":")
        those = [Table.labelled(label)] if label else [source for source in sources if name in columns(source)]
        yield from (Origin(table, name, told.how) for table in those)


def _landed(spec: Spec, table: Table, column: str) -> Iterator[Origin]:
    """A landed record's columns are the fields of its contract; coordinates and raw bytes are no fields."""
    contract = LANDED.get(table)
    if contract is None:
        return
    field = next((field for field in contract.fields if field.column == column), None)
    roles = [role for role in spec.topics if CONTRACTS[role] is contract]
    if field is not None:
        how = How.TRANSFORMATION if field.is_timestamp else How.IDENTITY
        yield from (Origin(Topic(role), field.name, how) for role in roles)


def sources(spec: Spec) -> list[End]:
    """Return everything that a stream reads: its sources, and tables that it looks things up in."""
    looked_up = (origin.end for write in spec.writes for made_of in origins(spec, write).values() for origin in made_of)
    written = {write.target for write in spec.writes}
    return list(
        dict.fromkeys([*(read.source for read in spec.reads), *(end for end in looked_up if end not in written)])
    )
