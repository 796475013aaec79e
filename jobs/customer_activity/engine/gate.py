"""The gate of publishing: shut while a rule of quality that holds has failed, until it passes or somebody lets it be.

`<lake>/_gate/publish.json` names the rules. The publisher looks before each batch; landing, silver and gold go on, and
what they make goes out when the gate opens: once, because the publisher's progress is on the topic.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from customer_activity import topology
from customer_activity.errors import PublishingHeld, SettingsError
from customer_activity.lake import audit
from customer_activity.storage.filesystem import read_whole, write_whole


class Failure(NamedTuple):
    """A rule that failed or could not be judged.

    Attributes:
        suite: where the rule is written, `layer/table`.
        message: what was found, without personal values.
        since: when it failed first.
        run: the run of quality that found it last.
        override_reason: why publishing goes on all the same; None while the rule holds it.
    """

    suite: str
    message: str
    since: str
    run: str
    override_reason: str | None = None


def failures(lake: str) -> dict[str, Failure]:
    """Return the rules that have failed and not passed since, by name."""
    text = read_whole(_path(lake))
    return {} if text is None else {rule: _failure(found) for rule, found in json.loads(text).items()}


def _failure(found: dict[str, Any]) -> Failure:
    """Return a rule's failure as the gate's file has it."""
    if "let_be" in found:  # as the release before called it
        found["override_reason"] = found.pop("let_be")
    return Failure(**found)


def holding(lake: str) -> dict[str, Failure]:
    """Return the rules that hold the gate shut, by name; it is open when there are none."""
    return {rule: failure for rule, failure in failures(lake).items() if failure.override_reason is None}


def update(lake: str, passed: Iterable[str], failed: Mapping[str, Failure]) -> dict[str, Failure]:
    """Take a run's verdicts: what passed holds no more, what failed holds unless it is overridden; return what holds.

    Rules that the run did not judge stay as they were.
    """
    known = failures(lake)
    after = {rule: failure for rule, failure in known.items() if rule not in set(passed)}
    for rule, failure in failed.items():
        before = known.get(rule)
        after[rule] = (
            failure if before is None else failure._replace(since=before.since, override_reason=before.override_reason)
        )
    if after != known:
        _write(lake, after)
    return {rule: failure for rule, failure in after.items() if failure.override_reason is None}


def release(lake: str, reason: str, now: datetime) -> list[str]:
    """Open the gate: what holds it is overridden until it has passed once; noted in the lake's `_audit` folder.

    Raises:
        SettingsError: nothing holds it.
    """
    rules = holding(lake)
    if not rules:
        raise SettingsError(f"nothing holds publishing on {lake}", remedy="`activity quality` judges it again")
    # First: an override without an audit record could not be explained, and after a kill none would be written.
    audit.append(lake, now, "release", topology.publishing().name, reason, rules=sorted(rules))
    _write(lake, failures(lake) | {rule: failure._replace(override_reason=reason) for rule, failure in rules.items()})
    return sorted(rules)


def require_open(lake: str, *, but_for: Collection[str] = ()) -> None:
    """Make sure that nothing holds the gate.

    Args:
        lake: whose gate.
        but_for: suites whose rules do not matter.

    Raises:
        PublishingHeld: a rule does.
    """
    rules = {rule: failure for rule, failure in holding(lake).items() if failure.suite not in but_for}
    if rules:
        raise held(rules)


def held(rules: Mapping[str, Failure]) -> PublishingHeld:
    """Say what holds publishing."""
    return PublishingHeld(
        f"publishing is held: {describe(rules)}",
        remedy="fix it, then `activity quality`; or `activity quality release --reason …` overrides it",
    )


def describe(rules: Mapping[str, Failure]) -> str:
    """Name the rules with what was found."""
    return "; ".join(f"{rule} ({failure.message})" for rule, failure in sorted(rules.items()))


def _as_json(failure: Failure) -> dict[str, str]:
    """Leave out what is not there: so the release before reads it, too, unless somebody has overridden a rule."""
    return {name: value for name, value in failure._asdict().items() if value is not None}


def _write(lake: str, rules: Mapping[str, Failure]) -> None:
    content: dict[str, Any] = {rule: _as_json(failure) for rule, failure in rules.items()}
    write_whole(_path(lake), json.dumps(content, indent=2).encode())


def _path(lake: str) -> str:
    return f"{lake}/_gate/publish.json"
