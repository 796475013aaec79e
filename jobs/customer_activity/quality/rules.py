"""The rules, read from `expectations/<layer>/<table>.yaml`.

    frames:                        # optional: queries that several rules look at
      shares: SELECT …
    rules:
      - rule: amounts_in_range     # its name, unique over all files
        severity: hold             # hold: publishing stops while it fails; warn: it is told
        why: …                     # what it would mean if it failed
        expect: {expect_column_values_to_be_between: {column: amount, min_value: 0}}

Rules about a table of an optional stream are there where the stream is on. What a rule looks at is its `query`, a
`frame` of its file, or else the table that its file is named after, of which the expectation's columns are read.
Queries are SQL as DuckDB has it, over the tables by `layer.table` and what `snapshot.py` puts beside them;
`$purchase(…)`, `$profile(…)` and `$activity(…)` list the columns of a contract, as a relation has them, and
`$masked(…)` those of the last without what is masked. The expectations are those of Great Expectations, by their
registered names. A value "$name" is the deployment's: its currency, topics, limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from customer_activity import topology
from customer_activity.contracts.columns import ACTIVITY_FIELDS, MASKED, PROFILE_FIELDS, PURCHASE_FIELDS, names
from customer_activity.errors import SettingsError
from customer_activity.settings import PROJECT

FOLDER = PROJECT / "expectations"
ACROSS = "across"  # the folder of rules about more than one table
LISTING = re.compile(r"\$(purchase|profile|activity|masked)\((\w+)\)")
LISTED = {
    "purchase": PURCHASE_FIELDS,
    "profile": PROFILE_FIELDS,
    "activity": ACTIVITY_FIELDS,
    "masked": [field for field in ACTIVITY_FIELDS if field.name not in MASKED],
}
# libyaml's, where it was built: the same, and ten times as fast.
LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list")


class Severity(StrEnum):
    """What it means when a rule fails."""

    HOLD = "hold"
    WARN = "warn"


class Rule(BaseModel):
    """One rule."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str = Field(pattern=r"^[a-z][a-z0-9_]+$")
    severity: Severity  # whether its failure holds publishing
    why: str = Field(min_length=20)  # what it would mean if it failed
    # The expectation by its name, with its arguments.
    expect: dict[str, dict[str, Any]] = Field(min_length=1, max_length=1)
    query: str | None = None  # what it looks at, when it is not the table itself
    frame: str | None = None  # the same, by its name in the file
    look: str | None = None  # a query that tells more when it has failed; `query` where there is none
    needs: tuple[str, ...] = ()  # tables of optional streams, `layer.table`, without which it is not judged
    suite: str  # its file, `layer/table`

    @model_validator(mode="after")
    def _looks_at_one_thing(self) -> Rule:
        if self.query and self.frame:
            raise ValueError("a rule has a query or a frame, not both")
        if not (self.query or self.frame) and (self.layer == ACROSS or not self.columns):
            raise ValueError("a rule without a query or a frame needs a table and an expectation of its columns")
        return self

    def __hash__(self) -> int:
        """Return its name's: names are unique over all files."""
        return hash(self.rule)

    @property
    def layer(self) -> str:
        """The folder that it is written in."""
        return self.suite.partition("/")[0]

    @property
    def table(self) -> str:
        """`layer.table` of its file."""
        return self.suite.replace("/", ".")

    @property
    def expectation(self) -> str:
        """The expectation's name."""
        return next(iter(self.expect))

    @property
    def arguments(self) -> dict[str, Any]:
        """The expectation's arguments."""
        return next(iter(self.expect.values()))

    @property
    def columns(self) -> list[str]:
        """The columns that the expectation names."""
        named = (self.arguments.get(name) for name in COLUMN_ARGUMENTS)
        return [column for one in named if one for column in ([one] if isinstance(one, str) else one)]


class Suite(BaseModel):
    """The rules of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # `layer/table`
    stream: str = ""  # the optional stream that it is about: it is left out while that is off
    frames: dict[str, str] = {}  # queries by name, that its rules look at
    rules: tuple[Rule, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _frames_are_there(self) -> Suite:
        for rule in self.rules:
            if rule.frame and rule.frame not in self.frames:
                raise ValueError(f"{rule.rule} looks at frame {rule.frame}, and there is none of that name")
        return self

    def __hash__(self) -> int:
        """Return its name's."""
        return hash(self.name)


def load(folder: Path = FOLDER) -> tuple[Suite, ...]:
    """Read every file; what is about a table of an optional stream that is off is left out.

    Raises:
        SettingsError: a file is not as it should be, or two rules have one name.
    """
    off = {table.label for spec in topology.optional() for table in spec.tables}
    off -= {table.label for table in topology.tables()}
    read = (_read(folder, path, off) for path in sorted(folder.glob("*/*.yaml")))
    suites = tuple(suite for suite in read if suite is not None)
    if not suites:
        raise SettingsError(f"no rules in {folder}", remedy="restore the folder `expectations` of the project")
    files: dict[str, str] = {}
    for suite in suites:
        for rule in suite.rules:
            if rule.rule in files:
                raise SettingsError(
                    f"rule {rule.rule} is in {files[rule.rule]}.yaml and in {suite.name}.yaml",
                    remedy="give one of them another name: results and the gate know rules by it",
                )
            files[rule.rule] = suite.name
    return suites


def _read(folder: Path, path: Path, off: Collection[str]) -> Suite | None:
    """Read a file; None where all of its rules are about tables that are off."""
    name = path.relative_to(folder).with_suffix("").as_posix()
    try:
        content = yaml.load(LISTING.sub(_columns, path.read_text(encoding="utf-8")), LOADER)  # noqa: S506 - a safe one
        rules = [{**rule, "suite": name} for rule in content.pop("rules")]
        rules = [rule for rule in rules if not {name.replace("/", "."), *rule.get("needs", ())} & set(off)]
        if off and not rules:
            return None
        return Suite(name=name, rules=rules, **content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(
            f"{path}: {where}: {first['msg']}", remedy="docs/QUALITY.md says how a rule is written"
        ) from None
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        what = str(error).splitlines()[0] if isinstance(error, yaml.YAMLError) else "it has no list of `rules`"
        raise SettingsError(f"{path}: {what}", remedy="docs/QUALITY.md says how a rule is written") from None


def _columns(listing: re.Match[str]) -> str:
    """Write out which columns of a relation are meant."""
    return ", ".join(f"{listing[2]}.{name}" for name in names(LISTED[listing[1]]))


def chosen(suites: Iterable[Suite], wanted: Iterable[str]) -> tuple[Suite, ...]:
    """Return the suites of some layers or tables; all when none is named.

    Raises:
        SettingsError: there are no rules of that name.
    """
    suites, names = tuple(suites), [name.replace(".", "/") for name in wanted]
    for name in names:
        if not any(_is_of(suite, name) for suite in suites):
            layers = sorted({suite.name.partition("/")[0] for suite in suites})
            raise SettingsError(
                f"there are no rules about {name.replace('/', '.')}",
                remedy=f"name a layer ({', '.join(layers)}) or a table such as {suites[0].name.replace('/', '.')}",
            )
    return tuple(suite for suite in suites if not names or any(_is_of(suite, name) for name in names))


def _is_of(suite: Suite, name: str) -> bool:
    return name in (suite.name, suite.name.partition("/")[0])


def filled(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Put the deployment's values in the place of "$name".

    Raises:
        SettingsError: there is no value of that name.
    """

    def fill(value: Any) -> Any:
        if isinstance(value, list):
            return [filling for item in value for filling in _listed(fill(item))]
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        if value[1:] not in values:
            raise SettingsError(f"no value for {value} in a rule", remedy=f"there are {', '.join(sorted(values))}")
        return values[value[1:]]

    return {name: fill(value) for name, value in arguments.items()}


def _listed(value: Any) -> list[Any]:
    """A value that is a list itself stands for its items."""
    return list(value) if isinstance(value, list | tuple) else [value]
