"""Great Expectations judges frames: one rule is one expectation, one frame is one batch of data.

Whatever goes wrong inside is a verdict of its own, `error`, and never a pass. Where a rule is about a column that may
tell about a person, Great Expectations is asked for a yes or no alone, so no value of it is in any result.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.errors import SettingsError
from customer_activity.quality.rules import Rule, Severity, filled
from customer_activity.quality.snapshot import PERSONAL
from customer_activity.quality.verdicts import Outcome

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import great_expectations as gx
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.metadata_types import FailureSeverity
    from great_expectations.expectations.registry import get_expectation_impl

for chatty in ("", ".validator.validator", ".data_context.types.base"):
    logging.getLogger(f"great_expectations{chatty}").setLevel(logging.ERROR)  # its progress and its own deprecations

EXAMPLES = 5
NOT_JUDGED = "it could not be judged"  # what is said instead of a library's words about a column of a person
SEVERITIES = {Severity.HOLD: FailureSeverity.CRITICAL, Severity.WARN: FailureSeverity.WARNING}


class Judged(NamedTuple):
    """What Great Expectations says of a rule."""

    outcome: Outcome
    # The figure that was compared: a share, a sum, how many values or rows are not as they should be.
    observed: float | None
    found: str  # the same in words
    examples: tuple[str, ...]  # some of what is not as it should be; never of a person
    result: ExpectationValidationResult | None  # for Data Docs; None where Great Expectations was not asked


def expectation_of(rule: Rule, values: Mapping[str, Any]) -> Expectation:
    """Make a rule's expectation.

    Raises:
        SettingsError: there is no such expectation, or its arguments do not fit.
    """
    try:
        return get_expectation_impl(rule.expectation)(
            **filled(rule.arguments, values),
            meta={"rule": rule.rule},
            description=f"{rule.rule}: {rule.why}",
            severity=SEVERITIES[rule.severity],
        )
    except (ExpectationNotFoundError, ValueError, TypeError) as error:
        raise SettingsError(
            f"rule {rule.rule} of {rule.suite}.yaml: {rule.expectation}: {str(error).splitlines()[0]}",
            remedy="the gallery of Great Expectations lists expectations and their arguments",
        ) from None


class Judge:
    """Great Expectations' context, in memory, with one source of frames."""

    def __init__(self) -> None:
        """Make the context."""
        with quiet():
            self.context = gx.get_context(mode="ephemeral")
            self.context.variables.progress_bars = {"globally": False}  # type: ignore[assignment] # as its own docs do
            # One asset for all frames: with each one Great Expectations writes its whole configuration as YAML.
            asset = self.context.data_sources.add_pandas("lake").add_dataframe_asset("pinned")
            self.frames = asset.add_batch_definition_whole_dataframe("pinned")

    def judge(self, label: str, frame: pa.Table, expectations: Mapping[Rule, Expectation]) -> dict[Rule, Judged]:
        """Judge the rules that look at one frame."""
        with quiet():
            batch = self.frames.get_batch({"dataframe": _pandas(frame)})
            judged: dict[Rule, Judged] = {}
            for of_people in (False, True):
                asked = {rule: one for rule, one in expectations.items() if is_personal(rule) is of_people}
                if not asked:
                    continue
                suite = gx.ExpectationSuite(name=label, expectations=list(asked.values()))
                form: dict[str, Any] = {"result_format": "BOOLEAN_ONLY"}
                if not of_people:
                    form = {"result_format": "BASIC", "partial_unexpected_count": EXAMPLES}
                found = batch.validate(suite, result_format=form)
                by_rule = {_rule_of(result): result for result in found.results}
                judged |= {rule: _judged(rule, by_rule[rule.rule], frame) for rule in asked}
        return judged


def is_personal(rule: Rule) -> bool:
    """Whether a rule is about a column that may tell about a person."""
    return not PERSONAL.isdisjoint(rule.columns)


def _rule_of(result: ExpectationValidationResult) -> str:
    if result.expectation_config is None:
        raise RuntimeError("a result without its expectation")
    return str(result.expectation_config.meta["rule"])


def _judged(rule: Rule, result: ExpectationValidationResult, frame: pa.Table) -> Judged:
    if fault := fault_of(result):
        what = NOT_JUDGED if is_personal(rule) else fault
        return Judged(Outcome.ERROR, None, f"Great Expectations: {what}", (), result)
    figures = result.result or {}
    observed, found = figures.get("observed_value"), ""
    if isinstance(observed, int | float):
        found = f"{observed:,} rows" if "row_count" in rule.expectation else f"{observed:.4f}"
    elif "unexpected_count" in figures:
        observed = figures["unexpected_count"]
        found = f"{observed:,} of {figures['element_count']:,} values"
    outcome = Outcome.PASSED if result.success else Outcome.FAILED
    examples = () if result.success else _examples(rule, figures, frame)
    return Judged(outcome, None if observed is None else float(observed), found, examples, result)


def _examples(rule: Rule, figures: Mapping[str, Any], frame: pa.Table) -> tuple[str, ...]:
    """Show some of what a rule met: rows of its query, or values of its columns."""
    if rule.query or rule.frame:
        return described(frame)
    return tuple(
        f"{', '.join(rule.columns)}: {value}" for value in figures.get("partial_unexpected_list", ())[:EXAMPLES]
    )


def described(frame: pa.Table) -> tuple[str, ...]:
    """Return the first rows of a query as text."""
    rows: Sequence[Mapping[str, Any]] = frame.slice(0, EXAMPLES).to_pylist()
    return tuple(", ".join(f"{name} {value}" for name, value in row.items()) for row in rows)


def fault_of(result: ExpectationValidationResult) -> str:
    """Return the first thing that was raised inside; empty where nothing was."""
    info = result.exception_info or {}
    faults: Iterable[Any] = [info] if "raised_exception" in info else info.values()
    for fault in faults:
        if fault.get("raised_exception"):
            return str(fault.get("exception_message") or "an exception").strip().splitlines()[0][:200]
    return ""


def _pandas(frame: pa.Table) -> Any:
    """Return a frame for pandas: amounts as floats, which it computes with; they are compared exactly in SQL."""
    for number, field in enumerate(frame.schema):
        if pa.types.is_decimal(field.type):
            frame = frame.set_column(number, field.name, pc.cast(frame.column(number), pa.float64()))
    return frame.to_pandas()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of libraries about each other from whoever reads a report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
