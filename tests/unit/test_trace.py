"""Which trace a record's headers name: by the pipeline, and by the verifier, which share no code."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.contracts import trace
from customer_activity.contracts.columns import HEADERS
from customer_activity.verification import traces

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Headers = tuple[tuple[str, bytes | None], ...]


def parent(value: str) -> Headers:
    return (("traceparent", value.encode()),)


def with_state(*values: str) -> Headers:
    return (*parent(PARENT), *(("tracestate", value.encode()) for value in values))


CASES = [
    pytest.param((), None, id="no headers"),
    pytest.param((("trace", PARENT.encode()),), None, id="another header"),
    pytest.param(parent(PARENT), PARENT, id="valid"),
    pytest.param((("TraceParent", PARENT.encode()),), PARENT, id="a name in any case"),
    pytest.param(parent(PARENT) * 2, None, id="twice"),
    pytest.param((("traceparent", None),), None, id="null"),
    pytest.param((("traceparent", b""),), None, id="empty"),
    pytest.param((("traceparent", b"00-\xff"),), None, id="not UTF-8"),
    pytest.param(parent(PARENT.upper()), None, id="upper case"),
    pytest.param(parent(f"{PARENT}\n"), None, id="a line break at the end"),
    pytest.param(parent(f" {PARENT}"), None, id="a space before"),
    pytest.param(parent(PARENT[:-1]), None, id="too short"),
    pytest.param(parent(f"{PARENT}-1"), None, id="more than version 00 has"),
    pytest.param(parent(PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)), None, id="no trace"),
    pytest.param(parent(PARENT.replace("00f067aa0ba902b7", "0" * 16)), None, id="no span"),
    pytest.param(parent(f"ff{PARENT[2:]}"), None, id="version ff"),
    pytest.param(parent(f"01{PARENT[2:-2]}03"), PARENT, id="a later version as the known one"),
    pytest.param(parent(f"01{PARENT[2:]}-more"), PARENT, id="a later version with more"),
    pytest.param(parent(f"01{PARENT[2:]}more"), None, id="a later version that goes on without a dash"),
    pytest.param((("tracestate", b"a=1"),), None, id="a state without a parent"),
    pytest.param(
        with_state("rojo=00f067aa0ba902b7,t61@congo=t6"), f"{PARENT} rojo=00f067aa0ba902b7,t61@congo=t6", id="state"
    ),
    pytest.param(with_state("a=1 , ,b=2", "c=3"), f"{PARENT} a=1,b=2,c=3", id="spaces, nothing, several"),
    pytest.param(with_state("a=1,a=2"), PARENT, id="a key twice"),
    pytest.param(with_state("a=1,B=2"), PARENT, id="a key in upper case"),
    pytest.param(with_state("a=1,b"), PARENT, id="no value"),
    pytest.param(with_state("a=\x1b[0m"), PARENT, id="a control character"),
    pytest.param(with_state("a=\u00e9"), PARENT, id="not ASCII"),
    pytest.param(with_state(",".join(f"k{n}=1" for n in range(33))), PARENT, id="more members than there may be"),
    pytest.param(with_state("a=" + "x" * 257), PARENT, id="a value that is too long"),
    pytest.param(
        with_state("a=" + "x" * 200, "b=1", "c=" + "y" * 200, "d=" + "z" * 120),
        f"{PARENT} a={'x' * 200},b=1,d={'z' * 120}",
        id="long members go first, from the end",
    ),
    pytest.param(
        with_state(*(f"k{n}=" + "x" * 97 for n in range(6))),
        f"{PARENT} " + ",".join(f"k{n}=" + "x" * 97 for n in range(5)),
        id="then the last",
    ),
    pytest.param(with_state(""), PARENT, id="an empty state"),
]


@pytest.mark.parametrize(("headers", "context"), CASES)
def test_what_headers_name(headers: Headers, context: str | None) -> None:
    rows = pa.array([None, [{"key": name, "value": value} for name, value in headers], []], HEADERS)
    assert trace.trace_contexts(rows).to_pylist() == [None, context, None]
    assert (traces.of(headers) or None) == context


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["traceparent", "Tracestate", "other"]),
            st.one_of(
                st.none(),
                st.binary(max_size=60),
                st.from_regex(r"[0f][01f]-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-x)?", fullmatch=True).map(str.encode),
                st.text("ab@=, \t1\u00e9", max_size=20).map(str.encode),
            ),
        ),
        max_size=3,
    )
)
@example([("traceparent", PARENT.encode()), ("Tracestate", b"a= ,b=1")])
def test_both_read_any_headers_alike(headers: list[tuple[str, bytes | None]]) -> None:
    rows = pa.array([[{"key": name, "value": value} for name, value in headers]], HEADERS)
    (context,) = trace.trace_contexts(rows).to_pylist()
    assert (traces.of(tuple(headers)) or None) == context


@pytest.mark.parametrize(
    ("context", "headers"),
    [
        pytest.param(None, [], id="none"),
        pytest.param(PARENT, [("traceparent", PARENT.encode())], id="without a state"),
        pytest.param(f"{PARENT} a=b c", [("traceparent", PARENT.encode()), ("tracestate", b"a=b c")], id="with one"),
    ],
)
def test_it_goes_on_as_headers(context: str | None, headers: list[tuple[str, bytes]]) -> None:
    assert trace.as_headers(context) == headers


def test_rows_of_a_slice_keep_their_own() -> None:
    rows = pa.array([[{"key": "traceparent", "value": PARENT.encode()}], [], None] * 2, HEADERS)
    assert trace.trace_contexts(rows.slice(2)).to_pylist() == [None, PARENT, None, None]
