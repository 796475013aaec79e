"""Unexpected errors: which kind, and where, and none of their own words.

A library's words may hold what it could not take: Arrow names the value that it cannot convert, Spark the text that it
cannot cast, a parser the line that it read. So they are left out of whatever is logged, printed or sent. What is told
in full are errors whose words cannot come from a record: our own, the operating system's, those of clients, and what
DuckDB says of a statement; and of storage's answers what is of a closed form.
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from customer_activity import shown
from customer_activity.errors import ActivityError

Work = Callable[[Iterable[Any]], Iterator[Any]]  # of a task, on what it is given
PACKAGE = __name__.partition(".")[0]
CLIENTS = ("botocore.", "cimpl.")  # of S3 and of Kafka: hosts, objects, topics
OF_STATEMENTS = ("_duckdb.BinderException", "_duckdb.CatalogException", "_duckdb.ParserException")  # of rules' SQL
OF_CODE = (
    AttributeError,
    ImportError,
    MemoryError,
    ModuleNotFoundError,
    NameError,
    RecursionError,
    UnboundLocalError,
)
# What storage answers, where Arrow and delta-rs put it in words of their own: of a closed form, so no value fits in.
ANSWERS = re.compile(
    r"AWS Error [A-Z_]+ during [A-Za-z]+ operation|os error \d{1,3}|curlCode: \d{1,3}|HTTP (?:status )?\d{3}"
    r"|AccessDenied|ExpiredToken|InvalidAccessKeyId|NoSuchBucket|NoSuchKey|SignatureDoesNotMatch|SlowDown"
    r"|No such file or directory|Permission denied|error sending request"
)
# How Spark says that tasks failed, of closed forms too; the last one is what `without_words` leaves of an error.
TASKS_FAILED = re.compile(
    r"ExecutorLostFailure \(executor \w+ exited|Python worker exited unexpectedly|java\.lang\.OutOfMemoryError"
    r"|bigger than spark\.driver\.maxResultSize|(?<=RuntimeError: )\w+ in \w+\.py, line \d+(?: \([A-Z]+\))?"
)
JAVA_CLASS = re.compile(r"(?:Caused by: |: |^)((?:[a-z]\w*\.)+[\w$]+)(?=:|$)")
JAVA_FRAME = re.compile(r"\s+at [\w.$/<>@]+\([\w.$: ]+\)$")
JAVA_FRAMES = 5  # of each exception
BECAUSE = "\nThe above exception was the direct cause of the following exception:\n"
MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n"


def brief(error: BaseException) -> str:
    """Say what an error says where that cannot come from a record, else which kind it is, and where it came up."""
    words = _words(error)
    return (
        kind(error) if not words else words if isinstance(error, ActivityError) else f"{type(error).__name__}: {words}"
    )


def kind(error: BaseException) -> str:
    """Say which kind of error it is, and where in our code it came up."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if PACKAGE in frame.filename]
    where = f" in {Path(places[-1].filename).name}, line {places[-1].lineno}" if places else ""
    failed = TASKS_FAILED.search(_of_java(error))
    why = failed[0] if failed else _errno(error)
    return f"{_condition(error) or type(error).__name__}{where}{f' ({why})' if why else ''}"


def _errno(error: BaseException) -> str:
    """Return the operating system's name of what went wrong, such as ENOSPC; empty where there is none."""
    return errno.errorcode.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def without_words(work: Work) -> Work:
    """Wrap what Spark's executors run: their logs, and the driver, get the kind of an unexpected error alone."""

    def told(given: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from work(given)
        except ActivityError:
            raise
        except Exception as error:  # noqa: BLE001 - whichever it is: Spark would log its words
            raise RuntimeError(kind(error)) from None

    return told


def stack(error: BaseException) -> str:
    """Return an error's stack trace with those before it, as text whose further lines are indented."""
    return "\n".join(_lines(error, set()))


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen:
        yield from _lines(before, seen)
        yield from (BECAUSE if error.__cause__ is not None else MEANWHILE).split("\n")
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):"
        yield from shown.lines("".join(traceback.format_tb(error.__traceback__))).rstrip("\n").split("\n")
    of = type(error)
    name = of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"
    first, *more = shown.lines(": ".join(filter(None, (name, _words(error))))).split("\n")
    yield first
    yield from (f"    {line}" for line in (*more, *_java(error)))


def _words(error: BaseException) -> str:
    """Return what an error says where that cannot come from a record."""
    is_of_system = isinstance(error, OSError) and error.errno is not None
    if is_of_system or isinstance(error, ActivityError) or _is_told(error):
        return str(error)
    return _condition(error) or _answers(error)


def _answers(error: BaseException) -> str:
    """Return what storage answered, as far as an error of Arrow's or delta-rs's tells of it."""
    if not isinstance(error, OSError) and not type(error).__module__.startswith(("_internal", "deltalake")):
        return ""
    return ", ".join(dict.fromkeys(ANSWERS.findall(str(error))))


def _is_told(error: BaseException) -> bool:
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return type(error) in OF_CODE or name in OF_STATEMENTS or name.startswith(CLIENTS)


def _condition(error: BaseException) -> str:
    """Return how Spark names what went wrong, such as CAST_INVALID_INPUT; empty where it does not."""
    condition: Any = getattr(error, "getCondition", None)
    with suppress(Exception):  # it asks a JVM that may be gone
        return str(condition() or "") if condition is not None else ""
    return ""


def _java(error: BaseException) -> Iterator[str]:
    """Yield which exceptions of Java an error stands for, and where they came up."""
    frames = JAVA_FRAMES
    for number, line in enumerate(_of_java(error).splitlines()):
        found = JAVA_CLASS.match(line) if number <= 1 or line.startswith("Caused by: ") else None
        if found is not None:
            frames = 0
            yield found[0].removeprefix(": ")
        elif frames < JAVA_FRAMES and JAVA_FRAME.match(line):
            frames += 1
            yield f"    {line.strip()}"


def _of_java(error: BaseException) -> str:
    """Return Java's stack trace of an error; empty where it is none of Java's."""
    with suppress(Exception):  # likewise
        if type(error).__module__.startswith(("py4j.", "pyspark.")):
            return str(getattr(error, "_stackTrace", "") or error)
    return ""
