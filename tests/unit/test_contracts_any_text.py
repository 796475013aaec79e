"""The contracts and any text whatever: reader, schema and decoder agree, and no message shows what it holds."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from customer_activity import contracts
from customer_activity.catalog import Reason
from customer_activity.contracts import PURCHASE_EVENT, Contract, Refusal
from support.contracts import (
    BY_TITLE,
    GOOD,
    good_text,
    has_lone_surrogate,
    object_text,
    reason_by_the_schema,
    refuse_constant,
)

FRAGMENTS = st.one_of(
    st.sampled_from(["null", "true", "false", "[]", "{}"]),
    st.sampled_from(['""', '"12.3"', '"EUR"', '"eur"', '"EUR\\n"', '"ÄÖÜ"', '"\\u00e9"', '"\\ud83d\\ude00"']),
    st.sampled_from(["0", "-0", "-1", "1.0", "1e3", "1E+2", "12.345", "12.340", "1e-2", "1e-3", "1e16"]),
    st.sampled_from(["9999999999999999.99", "253402300799999", "253402300800000", "99999999999999999999999999"]),
    st.decimals(min_value=-10, max_value=10**17, places=3).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
)


@st.composite
def nearly_valid_texts(draw: st.DrawFn, contract: Contract) -> str:
    """Draw a good record with some fields changed, gone, repeated, unknown, in any order."""
    fields = list(GOOD[contract.title].items())
    names = st.sampled_from([name for name, _ in fields] + ["unknown", "purchase\\u0049d"])
    dropped = draw(st.sets(names, max_size=1))
    changed = draw(st.lists(st.tuples(names, FRAGMENTS), max_size=3))
    kept = [(name, value) for name, value in fields if name not in dropped]
    return object_text(draw(st.permutations(kept + changed)) if draw(st.booleans()) else kept + changed)


@pytest.mark.parametrize("contract", BY_TITLE[:2])
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_examine_agrees_with_json_schema_and_the_decoder_with_examine(contract: Contract, data: st.DataObject) -> None:
    text = data.draw(nearly_valid_texts(contract))

    judged = contracts.examine(contract, text.encode())
    assert (judged.reason if isinstance(judged, Refusal) else None) == reason_by_the_schema(contract, text)

    try:
        contracts.decoder(contract).decode(text.encode())
    except msgspec.DecodeError:
        return
    # What the decoder leaves to its caller: patterns, and the texts of numbers.
    left_to_the_caller = {f"$.{field.name}" for field in contract.fields if field.pattern} | {"$.amount"}
    if isinstance(judged, Refusal):
        assert judged.detail.split(":")[0] in left_to_the_caller


JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
).flatmap(lambda content: st.sampled_from([json.dumps(content), json.dumps(content, ensure_ascii=False, indent=1)]))
SIGNIFICANT = st.sampled_from(
    [*"{}[]\",:\\/-+.eE0123456789untrfals \t\n\r\x00\x0c\x1f\x7f\xa0\ufeff\u2028'", "\\u", "\\ud83d", "\\udc00", "NaN"]
)


@st.composite
def broken_json(draw: st.DrawFn) -> str:
    """Draw a JSON text and put, replace or drop a few characters that mean something in JSON."""
    text = draw(JSON_TEXTS)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(SIGNIFICANT | st.just("")) + text[at + draw(st.integers(0, 1)) :]
    return text


@settings(deadline=None, max_examples=200)
@given(text=broken_json())
@example(text='{"x": nul}')
@example(text='{"x": NaN}')
@example(text='{"x": [1, -Infinity]}')
@example(text='{"x": "\\x"}')
@example(text='{"x": "\x01"}')
@example(text='{"x": "\\ud800"}')
@example(text='{"x": "\\udc00\\ud800"}')
@example(text='{"x": "\\ud800", "y": NaN}')
@example(text='{"x": "\\ud800", "y": 1')
@example(text='{"x": 01}')
@example(text='{"x": 1.}')
@example(text="{}{}")
@example(text="{},")
@example(text="\ufeff{}")
def test_both_ways_take_exactly_what_the_standard_parser_takes(text: str) -> None:
    """As the whole value for `examine`, as the content of an unknown field for the fast decoder."""
    try:
        content = json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse_constant)
        expected = Reason.NOT_UTF8 if has_lone_surrogate(content) else None
    except ValueError:
        expected = Reason.NOT_JSON

    judged = contracts.examine(PURCHASE_EVENT, text.encode())
    reason = judged.reason if isinstance(judged, Refusal) else None
    assert (reason if reason in (Reason.NOT_JSON, Reason.NOT_UTF8) else None) == expected

    inside = good_text(PURCHASE_EVENT, unknown=text)
    try:
        json.loads(inside, parse_int=str, parse_float=str, parse_constant=refuse_constant)
    except ValueError:
        with pytest.raises(msgspec.DecodeError):
            contracts.decoder(PURCHASE_EVENT).decode(inside.encode())
    else:
        if expected is None:
            contracts.decoder(PURCHASE_EVENT).decode(inside.encode())


@pytest.mark.parametrize("contract", BY_TITLE[:2])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_detail_never_shows_what_the_record_holds(contract: Contract, data: st.DataObject) -> None:
    told = "Zq7X"
    names = st.sampled_from([*GOOD[contract.title], told])
    texts = [f'"{told}"', f'["{told}"]', f'{{"{told}": 1}}', f'"{told}', told]
    shapes = [*texts, "-73310073", "73310073.7331", "7331007300000000000"]
    text = good_text(contract, **data.draw(st.dictionaries(names, st.sampled_from(shapes), min_size=1, max_size=3)))

    judged = contracts.examine(contract, text.encode())

    if isinstance(judged, Refusal):
        assert told not in judged.detail
        assert "7331" not in judged.detail
        assert len(judged.detail) <= 200
