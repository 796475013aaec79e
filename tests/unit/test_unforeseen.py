"""Errors that nobody foresaw: their kind and where, and nothing that a record may have brought."""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal

import duckdb
import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from deltalake.exceptions import DeltaError
from pydantic import TypeAdapter

from customer_activity import unforeseen
from customer_activity.engine import logs
from customer_activity.errors import BadShareExceeded, Stopping, StorageUnavailable

JANE = "Jane Secretname"
PARTS = ("Jane", "Secretname", "1984")


def cast() -> None:
    pa.array([JANE]).cast(pa.int64())


def of_another_kind() -> None:
    pa.array([{"name": JANE, "born": date(1984, 1, 2)}], pa.int64())


def too_long() -> None:
    pa.array([Decimal("1984.99")]).cast(pa.decimal128(3, 2))


def number() -> None:
    int(JANE)


def missing() -> None:
    {"": 0}[JANE]


def undecodable() -> None:
    JANE.encode("utf-16").decode("utf-8")


def from_json() -> None:
    json.loads(f'{{"name": {JANE}}}')


def from_typed_json() -> None:
    msgspec.json.decode(json.dumps(JANE), type=int)


def validated() -> None:
    TypeAdapter(int).validate_python(JANE)


def in_sql() -> None:
    duckdb.execute("SELECT cast(?::text AS int)", [JANE]).fetchall()


def noted() -> None:
    error = ValueError("no")
    error.add_note(JANE)
    raise error


def from_another() -> None:
    try:
        number()
    except ValueError as error:
        raise RuntimeError(JANE) from error


def while_another() -> None:
    try:
        number()
    except ValueError:
        cast()


def in_lines() -> None:
    raise ValueError(f"no\n{JANE}\nCaused by: Jane.Secretname: no\n\tat Jane.Secretname(no)")


def raised(fails: Callable[[], None]) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011 - of any kind
        fails()
    return found.value


@pytest.mark.parametrize(
    ("fails", "kinds"),
    [
        pytest.param(cast, ["pyarrow.lib.ArrowInvalid"], id="Arrow's cast"),
        pytest.param(of_another_kind, ["pyarrow.lib.ArrowInvalid"], id="Arrow's conversion"),
        pytest.param(too_long, ["pyarrow.lib.ArrowInvalid"], id="Arrow's decimal"),
        pytest.param(number, ["ValueError"], id="a number"),
        pytest.param(missing, ["KeyError"], id="a key"),
        pytest.param(undecodable, ["UnicodeDecodeError"], id="bytes"),
        pytest.param(from_json, ["json.decoder.JSONDecodeError"], id="JSON"),
        pytest.param(from_typed_json, ["msgspec.ValidationError"], id="typed JSON"),
        pytest.param(validated, ["pydantic_core._pydantic_core.ValidationError"], id="a model"),
        pytest.param(in_sql, ["_duckdb.ConversionException"], id="SQL"),
        pytest.param(noted, ["ValueError"], id="a note"),
        pytest.param(from_another, ["ValueError", "RuntimeError"], id="its cause"),
        pytest.param(while_another, ["ValueError", "pyarrow.lib.ArrowInvalid"], id="its context"),
        pytest.param(in_lines, ["ValueError"], id="lines that look like a trace"),
    ],
)
def test_what_a_record_may_have_brought_is_left_out(fails: Callable[[], None], kinds: list[str]) -> None:
    error = raised(fails)
    stack = unforeseen.stack(error)
    without_code = [line for line in stack.splitlines() if not line.startswith("    ")]
    assert not [line for line in without_code if any(part in line for part in PARTS)]
    assert [line for line in without_code if line in kinds] == kinds
    assert f"in {fails.__name__}" in stack, "where"
    assert not any(part in unforeseen.brief(error) for part in PARTS)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(StorageUnavailable("S3 is away", remedy="wait"), "S3 is away\n  → wait", id="ours"),
        pytest.param(OSError(errno.ENOSPC, "No space left", "/lake"), "[Errno 28] No space left: '/lake'", id="system"),
        pytest.param(KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), "_ALL_BROKERS_DOWN", id="Kafka's"),
        pytest.param(AttributeError("'Table' has no attribute 'x'"), "'Table' has no attribute 'x'", id="of code"),
        pytest.param(duckdb.CatalogException("no table nope"), "CatalogException: no table nope", id="of a statement"),
        pytest.param(
            OSError("When reading 'Jane' in bucket 'b': AWS Error NO_SUCH_BUCKET during HeadObject operation: 'Jane'"),
            "OSError: AWS Error NO_SUCH_BUCKET during HeadObject operation",
            id="Arrow's of S3",
        ),
        pytest.param(
            DeltaError("Kernel: Generic S3 error: AccessDenied at 'Jane' (os error 13)"),
            "DeltaError: AccessDenied, os error 13",
            id="delta-rs's of storage",
        ),
        pytest.param(ModuleNotFoundError("No module named 'x'"), "No module named 'x'", id="a package that lacks"),
    ],
)
def test_what_cannot_come_from_a_record_is_told(error: Exception, words: str) -> None:
    assert all(line in unforeseen.stack(error) for line in words.split("\n"))
    assert words in unforeseen.brief(error)
    assert "Jane" not in unforeseen.brief(error) + unforeseen.stack(error)


def test_a_library_that_raises_the_systems_error_with_words_of_its_own_is_no_system() -> None:
    assert unforeseen.stack(OSError(f"cannot parse {JANE}")) == "OSError"


def test_the_kind_of_a_systems_error_has_its_name() -> None:
    assert unforeseen.kind(OSError(errno.ENOSPC, JANE)) == "OSError (ENOSPC)"
    assert unforeseen.kind(OSError(JANE)) == "OSError"


def test_a_trace_keeps_its_form() -> None:
    lines = unforeseen.stack(raised(from_another)).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines.index("ValueError") < lines.index(unforeseen.BECAUSE.strip()) < lines.index("RuntimeError")
    assert unforeseen.stack(StorageUnavailable("a\x1b[2J\nerror: forged")).splitlines()[1] == "    error: forged"


def test_errors_that_lead_to_each_other_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert unforeseen.stack(one).count("ValueError") == 2


@pytest.fixture
def logging_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    logs.configure_logging()


@pytest.mark.usefixtures("logging_as_text")
def test_a_thread_that_ends_says_where_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    thread = threading.Thread(target=number, name="carrier")
    thread.start()
    thread.join()
    printed = capsys.readouterr().err
    assert "thread carrier has ended" in printed
    assert printed.splitlines()[-1] == "ValueError"


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        pytest.param(Stopping(), False, id="a stream that stops"),
        pytest.param(BadShareExceeded("bronze: 9 of 10 are bad", remedy="look"), False, id="an error of ours"),
        pytest.param(ValueError("odd"), True, id="another one"),
    ],
)
@pytest.mark.usefixtures("logging_as_text")
def test_what_ends_a_batch_on_purpose_has_no_stack_trace(
    error: Exception, capsys: pytest.CaptureFixture[str], *, is_told: bool
) -> None:
    logging.getLogger(logs.OF_BATCHES).error("There was an exception", exc_info=error)
    assert ("There was an exception" in capsys.readouterr().err) is is_told
