"""One run of quality: pin the tables, look at Kafka, judge every rule, update the gate, keep the results."""

from __future__ import annotations

import fcntl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from customer_activity import topology, unforeseen
from customer_activity.engine import gate
from customer_activity.errors import ActivityError, JudgingBusy, SettingsError
from customer_activity.lake import corrections
from customer_activity.quality import accounting, documents, outside, results, snapshot
from customer_activity.quality.judging import Judge, Judged, described, expectation_of
from customer_activity.quality.pins import Pins, pin
from customer_activity.quality.rules import Rule, Severity, Suite, chosen, load
from customer_activity.quality.snapshot import PERSONAL
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings

MOST_ROWS = 10_000  # of a query's result: whoever has more of them has seen enough

OnStep = Callable[[str], None]


class Verdict(NamedTuple):
    """A rule, what came of it, how long it took, and what a further look showed where it failed."""

    rule: Rule
    judged: Judged
    seconds: float
    looked: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether it holds publishing."""
        return self.rule.severity is Severity.HOLD and self.judged.outcome is not Outcome.PASSED


@dataclass(frozen=True)
class Report:
    """What a run found."""

    run_id: str  # its name; begins with its time
    verdicts: Sequence[Verdict]
    versions: Mapping[str, int]  # of the tables
    held: Mapping[str, gate.Failure]  # rules that hold publishing after it, with what was found
    overridden: Sequence[str]  # rules that fail and are overridden
    documents: str  # where the Data Docs are
    seconds: float

    @property
    def failing(self) -> list[Verdict]:
        """Rules that did not pass."""
        return [verdict for verdict in self.verdicts if verdict.judged.outcome is not Outcome.PASSED]


def run(settings: Settings, wanted: Sequence[str] = (), *, on_step: OnStep = lambda _: None) -> Report:
    """Judge the rules of some layers or tables, all when none is named.

    Raises:
        SettingsError: there are no such rules, a rule is not as it should be, or there is no lake.
        CorrectionUnfinished: a correction was interrupted.
        JudgingBusy: another run is at work on the lake.
        BrokerUnavailable: rules ask Kafka, and it does not answer.
        TransientError: a reader's position is not known just now.
    """
    corrections.refuse_unfinished(settings.lake)
    started, at = time.monotonic(), datetime.now(UTC)
    suites = _on(chosen(load(), wanted))
    values = snapshot.variables(settings)
    expectations = {rule: expectation_of(rule, values) for suite in suites for rule in suite.rules}
    run_id = f"{at:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
    with alone(settings):
        on_step("reading the view topic")
        view = outside.read_view(settings) if _asks(suites, "topic.view", "topic.published") else None
        on_step("pinning the tables")
        pins = pin(settings)
        with snapshot.opened(pins.relations(), values) as database:
            _complete(database, suites, settings, pins, view, on_step)
            judge = Judge()
            verdicts = [
                verdict
                for suite in suites
                for verdict in _judged(suite, expectations, judge, database, on_step=on_step)
            ]
        passed = [v.rule.rule for v in verdicts if v.judged.outcome is Outcome.PASSED]
        failed = {
            v.rule.rule: gate.Failure(v.rule.suite, v.judged.found, at.isoformat(timespec="seconds"), run_id)
            for v in verdicts
            if v.holds
        }
        held = gate.update(settings.lake, passed, failed)  # first: results and pages may fail to be written
        on_step("keeping the results")
        kept = [(verdict.rule, verdict.judged, verdict.seconds) for verdict in verdicts]
        results.append(settings.lake, run_id, at, kept, pins.versions)
        on_step("writing the pages")
        by_suite = {suite: {v.rule: v.judged for v in verdicts if v.rule.suite == suite.name} for suite in suites}
        index = documents.write(settings.quality_docs, run_id, at, by_suite)
        index = f"{settings.quality_url}/index.html" if settings.quality_url else index
    overridden = sorted(failed.keys() - held.keys())
    return Report(run_id, verdicts, pins.versions, held, overridden, index, time.monotonic() - started)


def _on(suites: Sequence[Suite]) -> list[Suite]:
    """Leave out suites about streams that are off.

    Raises:
        SettingsError: none is left.
    """
    found = [suite for suite in suites if not suite.stream or suite.stream in topology.names()]
    if not found:
        raise SettingsError(
            f"{', '.join(sorted({suite.stream for suite in suites}))} is off, which these rules are about",
            remedy="switch it on by ACTIVITY_STREAMS",
        )
    return found


def _complete(
    database: duckdb.DuckDBPyConnection,
    suites: Sequence[Suite],
    settings: Settings,
    pins: Pins,
    view: outside.View | None,
    on_step: OnStep,
) -> None:
    """Put beside the tables what the rules ask for, and no more: a rule about a table needs no Kafka."""
    if view is not None:
        snapshot.add(database, outside.view_relations(view, settings.lake))
    if _asks(suites, "topic.offsets", "topic.unlanded"):
        on_step("comparing offsets")
        snapshot.add(database, outside.offsets(settings, pins.landed))
        snapshot.add(database, outside.unlanded(settings, database))
    if _asks(suites, "accounting."):
        on_step("adding up what the commits tell")
        snapshot.add(database, accounting.relations(settings, pins))
    if _asks(suites, "history."):
        snapshot.add(database, results.history(settings.lake))


def _asks(suites: Sequence[Suite], *names: str) -> bool:
    """Whether a rule looks at one of these relations."""
    texts = [text for suite in suites for text in suite.frames.values()]
    texts += [text for suite in suites for rule in suite.rules for text in (rule.query, rule.look) if text]
    return any(name in text for name in names for text in texts)


def _judged(
    suite: Suite,
    expectations: Mapping[Rule, Any],
    judge: Judge,
    database: duckdb.DuckDBPyConnection,
    *,
    on_step: OnStep,
) -> Iterator[Verdict]:
    """Judge a suite: rules that look at one frame together, so that it is read once."""
    on_step(f"judging {suite.name.replace('/', '.')}")
    waiting = dict(suite.frames)  # made with the first rule: one that cannot be made fails the rules, not the run
    for rules, query in _frames(suite):
        started = time.monotonic()
        label = rules[0].rule if rules[0].query else f"{suite.name}:{rules[0].frame or 'table'}"
        try:
            for name in list(waiting):
                database.execute(f'CREATE OR REPLACE TABLE frames."{name}" AS {waiting[name]}')
                del waiting[name]
            frame = _fetched(database, query, rules)
            judged = judge.judge(label, frame, {rule: expectations[rule] for rule in rules})
        except ActivityError:  # a rule is not as it should be: that is no finding about the data
            raise
        except duckdb.Error as error:
            judged = {rule: _error(f"DuckDB: {_first_line(error)}") for rule in rules}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and it is no pass
            judged = {rule: _error(f"Great Expectations: {type(error).__name__}") for rule in rules}
        seconds = (time.monotonic() - started) / len(rules)
        for rule in rules:
            yield Verdict(rule, judged[rule], seconds, _looked(rule, judged[rule], database))


def _frames(suite: Suite) -> Iterator[tuple[list[Rule], str]]:
    """Yield the rules that look at one thing with the query that brings it."""
    of_table = [rule for rule in suite.rules if not rule.query and not rule.frame]
    if of_table:
        yield of_table, snapshot.columns_of(of_table[0].table, _named(of_table))
    for name in suite.frames:
        if rules := [rule for rule in suite.rules if rule.frame == name]:
            yield rules, snapshot.columns_of(f"frames.{name}", _named(rules))
    for rule in suite.rules:
        if rule.query:
            yield [rule], rule.query


def _named(rules: Sequence[Rule]) -> list[str]:
    """Return the columns that the expectations of some rules name."""
    return list(dict.fromkeys(column for rule in rules for column in rule.columns))


def _fetched(database: duckdb.DuckDBPyConnection, query: str, rules: Sequence[Rule]) -> pa.Table:
    """Run a frame's query; one of a rule's own gives rows that are few, or wrong."""
    is_own = bool(rules[0].query or rules[0].frame)
    frame = database.sql(f"SELECT * FROM ({query}) LIMIT {MOST_ROWS}" if is_own else query).to_arrow_table()
    if is_own:
        refuse_personal(frame, rules[0])
    return frame


def refuse_personal(frame: pa.Table, rule: Rule) -> None:
    """Make sure that a query brings nothing that tells about a person: its rows are examples.

    Raises:
        SettingsError: it does.
    """
    if personal := sorted(PERSONAL & set(frame.column_names)):
        raise SettingsError(
            f"rule {rule.rule} of {rule.suite}.yaml selects what identifies a person: {', '.join(personal)}",
            remedy="compare such columns within the query, and select the customer's id",
        )


def _looked(rule: Rule, judged: Judged, database: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """Take the further look that a rule asks for when it has failed."""
    if judged.outcome is not Outcome.FAILED or not rule.look:
        return ()
    try:
        frame = database.sql(f"SELECT * FROM ({rule.look}) LIMIT {MOST_ROWS}").to_arrow_table()
        refuse_personal(frame, rule)
    except duckdb.Error as error:
        return (f"the look failed: {_first_line(error)}",)
    return described(frame)


def _error(found: str) -> Judged:
    return Judged(Outcome.ERROR, None, found, (), None)


def _first_line(error: Exception) -> str:
    return unforeseen.brief(error).splitlines()[0][:200]


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Be the only run on this lake, as far as a lock on this machine tells.

    Raises:
        JudgingBusy: another one is at work.
    """
    folder = Path(settings.lake) / "_locks" if settings.is_local_lake else settings.run_dir
    path = folder / "quality.lock"
    if settings.is_local_lake and not Path(settings.lake).exists():
        raise SettingsError(f"no lake at {settings.lake}", remedy="run `activity stream`, or correct ACTIVITY_LAKE")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JudgingBusy(
                f"quality is being judged on {settings.lake} already", remedy="wait for that run to end"
            ) from None
        yield
