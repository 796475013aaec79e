"""Every column that a record says is compared by the verifier, also one that a contract gets later."""

from __future__ import annotations

from typing import Any

import pytest

from customer_activity.catalog import Reason
from customer_activity.contracts import schema
from customer_activity.verification import oracle
from customer_activity.verification.records import (
    SAID_OF_PAYMENT,
    SAID_OF_PROFILE,
    SAID_OF_PURCHASE,
    Payment,
    Profile,
    Purchase,
)
from support.world_rows import NOW


@pytest.mark.parametrize(
    ("record", "said", "declared"),
    [
        (Purchase, SAID_OF_PURCHASE, schema.PURCHASE_EVENT),
        (Profile, SAID_OF_PROFILE, schema.CUSTOMER_PROFILE),
        (Payment, SAID_OF_PAYMENT, schema.PAYMENT_CONFIRMED),
    ],
    ids=["purchase", "profile", "payment"],
)
def test_all_that_a_record_says_is_compared(
    record: type[Purchase | Profile | Payment], said: int, declared: schema.Contract
) -> None:
    assert list(record._fields[:said]) == [field.column for field in declared.fields]


@pytest.mark.parametrize("column", Purchase._fields[1:SAID_OF_PURCHASE])
def test_a_repeat_that_differs_in_any_column_is_a_conflict(column: str) -> None:
    first = Purchase("P-1", "C-1", "sku", 100, "EUR", 1_000, 5, 0, 0, NOW, 0, 1)
    repeat = first._replace(offset=1)
    differing: dict[str, Any] = {column: "other" if isinstance(getattr(first, column), str) else 7}
    other = repeat._replace(offset=2, **differing)
    counted, refused, _ = oracle.fold_purchases({0: {0: first, 1: repeat, 2: other}})
    assert counted == {"P-1": first}
    assert [(record.reason, record.offset) for record in refused] == [(Reason.CONFLICTING_DUPLICATE, 2)]


@pytest.mark.parametrize("column", Profile._fields[1 : SAID_OF_PROFILE - 1])
def test_an_update_that_differs_in_any_column_is_no_repeat(column: str) -> None:
    first = Profile("C-1", "Ada", "ada@example.org", "1 Old Street", "gold", 1_000, 0, 0, NOW, 0, False, 1)
    repeat = first._replace(offset=1)
    differing: dict[str, Any] = {column: "other"}
    other = repeat._replace(offset=2, **differing)
    current, changes, _, _ = oracle.fold_profiles({0: {0: first, 1: repeat, 2: other}})
    assert current == {"C-1": other}
    assert changes == [first, other]
