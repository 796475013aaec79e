"""The page of a suite: what Great Expectations renders of its results, in a frame of ours.

Its own pages load styles and scripts from eight public hosts, and without those their index is empty. So its templates
for a page, for what is folded and for what a script would draw are replaced by ours in `pages/`; all others are its
own.

Great Expectations escapes some of what it is given and puts the rest into its pages as it is. So what comes from the
data is no markup any more when it gets it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, FileSystemLoader

from customer_activity import shown
from customer_activity.quality.judging import NOT_JUDGED, Judged, fault_of, is_personal, quiet
from customer_activity.quality.rules import Rule, Severity
from customer_activity.quality.verdicts import Outcome

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

TEMPLATES = Path(__file__).parent / "pages"
SUITE = "suite.j2"
HARMLESS = (bool, int, float, Decimal, date, timedelta)  # values that are no texts


def page(suite: str, run_id: str, at: datetime, judged: Mapping[Rule, Judged]) -> str:
    """Return the page of a suite's results: of every rule that Great Expectations was asked about what it found."""
    results = [_harmless(rule, one.result) for rule, one in judged.items() if one.result is not None]
    with quiet():
        failing = [rule for rule, one in judged.items() if one.outcome is not Outcome.PASSED]
        rendered = _view().render(
            _document(suite, run_id, at, results),
            SUITE,
            suite=suite,
            run_id=run_id,
            at=at,
            rules=len(judged),
            passed=len(judged) - len(failing),
            holds=any(rule.severity is Severity.HOLD for rule in failing),
            not_asked=[rule.rule for rule, one in judged.items() if one.result is None],
        )
    return str(rendered)


@cache
def _view() -> Any:
    """Return what renders a page, once: it compiles the templates that it needs."""
    from great_expectations.render.view.view import DefaultJinjaPageView  # noqa: PLC0415 - slow to import

    view = DefaultJinjaPageView()
    theirs = [view.env.loader] if view.env.loader is not None else []
    view.env.loader = ChoiceLoader([FileSystemLoader(TEMPLATES), *theirs])
    return view


def _document(suite: str, run_id: str, at: datetime, results: list[ExpectationValidationResult]) -> Any:
    from great_expectations.core import ExpectationSuiteValidationResult  # noqa: PLC0415 - slow to import
    from great_expectations.core.run_identifier import RunIdentifier  # noqa: PLC0415
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer  # noqa: PLC0415

    passed = sum(bool(result.success) for result in results)
    # Its renderer reads a run's name as a time where it can: some ids end like a time zone that is none, and it fails.
    name = f"run {run_id}"
    whole = ExpectationSuiteValidationResult(
        success=passed == len(results),
        results=results,
        suite_name=suite,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(results) - passed,
            "success_percent": 100 * passed / max(1, len(results)),
        },
        meta={
            "run_id": RunIdentifier(run_name=name, run_time=at).to_json_dict(),
            "validation_time": at.isoformat(),
        },
    )
    return ValidationResultsPageRenderer().render(whole)


def _harmless(rule: Rule, result: ExpectationValidationResult) -> ExpectationValidationResult:
    """Return a result whose texts are no markup, without stack traces; nothing of what a personal column raised."""
    made = copy.deepcopy(result)
    made.result = _inert(made.result or {})
    fault = fault_of(result)
    words = shown.inert(NOT_JUDGED if is_personal(rule) else fault) if fault else None
    made.exception_info = {
        "raised_exception": bool(fault),
        "exception_message": words,
        "exception_traceback": words,
    }
    return made


def _inert(value: Any) -> Any:
    """Return a value of a result with its texts, those of unknown types included, made harmless."""
    if isinstance(value, Mapping):
        return {_inert(name): _inert(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_inert(one) for one in value]
    if isinstance(value, float):
        return float(value)  # numpy's are some as well, which Great Expectations cannot write as text
    return value if value is None or isinstance(value, HARMLESS) else shown.inert(value)
