"""The table of docs/SETTINGS.md: every setting with its default, its possible values and its meaning.

`python -m customer_activity.inspection.settings_page docs/SETTINGS.md` writes it between the page's markers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from customer_activity import topology
from customer_activity.settings import PREFIX, PROJECT, SECRETS, Settings
from customer_activity.settings.optional import OptionalStreams
from customer_activity.settings.pipeline import Pipeline

BEGIN, END = "<!-- settings:begin -->\n", "<!-- settings:end -->"
HEAD = ("variable", "default", "values", "meaning")
STREAMS = "streams"  # the setting that takes names of optional streams, which no schema has
TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}


def markdown_table() -> str:
    """Tabulate the settings in Markdown, one row a setting, those of optional streams after the others."""
    properties = Settings.model_json_schema()["properties"]
    rows = [
        (f"`{PREFIX}{name.upper()}`", _default(name), _values(name, properties[name]), _meaning(name))
        for name in sorted(Settings.model_fields, key=_is_of_optional_streams)
    ]
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _is_of_optional_streams(name: str) -> bool:
    return name in OptionalStreams.model_fields and name not in Pipeline.model_fields


def rewritten(page: str) -> str:
    """Return a page with the table as the settings are now, between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{markdown_table()}{END}{after}"


def _default(name: str) -> str:
    # Those that are called after the pipeline are shown as the default one has them.
    known = {"pipeline": Settings.model_fields["pipeline"].default}
    default = Settings.model_fields[name].get_default(call_default_factory=True, validated_data=known)
    if default is None:
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, Path):
        inside = default.is_relative_to(PROJECT)
        return f"`{default.relative_to(PROJECT)}` in the project" if inside else f"`./{default}`"
    return f"`{default}`" if default != "" else "empty"


def _values(name: str, described: dict[str, Any]) -> str:
    """Say what a setting may be, from its JSON Schema; optional streams by their names, from the topology."""
    if name == STREAMS:
        return f"any of {', '.join(f'`{spec.name}`' for spec in topology.optional())}"
    schema = next((one for one in described.get("anyOf", ()) if one["type"] != "null"), described)
    if "enum" in schema:
        *others, last = (f"`{value}`" for value in schema["enum"])
        return f"{', '.join(others)} or {last}"
    kind = "path" if schema.get("format") == "path" else TYPES[schema["type"]]
    limits = [f"{sign} {schema[limit]}" for limit, sign in LIMITS.items() if limit in schema]
    pattern = [f"matches `{schema['pattern']}`"] if "pattern" in schema else []
    return ", ".join([kind, *limits, *pattern])


def _meaning(name: str) -> str:
    meaning = Settings.model_fields[name].description or ""
    return f"**Names a file of secrets.** {meaning}" if name in SECRETS else meaning


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(rewritten(place.read_text(encoding="utf-8")), encoding="utf-8")
