"""The tables of docs/TABLES.md: every Delta table with its grain, who writes it, and what its columns mean.

`python -m customer_activity.inspection.tables_page docs/TABLES.md` writes them between the page's markers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.meanings import meaning
from customer_activity.contracts.tables import TABLES
from customer_activity.lineage.datasets import sql_type
from customer_activity.topology import Spec

BEGIN, END = "<!-- tables:begin -->\n", "<!-- tables:end -->"
HEAD = ("column", "type", "meaning")
COMMANDS = {Table.PRODUCTS: "`activity catalogue load`", Table.REPROCESSED: "`activity reprocess`"}
MOST_NAMED = 3


def markdown() -> str:
    """Tabulate all tables in Markdown, layer by layer."""
    of_layer: dict[str, list[Table]] = {}
    for table in TABLES:
        of_layer.setdefault(table.label.partition(".")[0], []).append(table)
    return "\n".join(f"## {layer}\n\n" + "\n".join(map(_section, tables)) for layer, tables in of_layer.items())


def _section(table: Table) -> str:
    declared = TABLES[table]
    rows = [(f"`{field.name}`", f"`{sql_type(field.type)}`", meaning(table, field.name)) for field in declared.columns]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in (HEAD, ("---",) * len(HEAD), *rows))
    return f"### {table.label}\n{_upper(declared.grain or _by_key(table))}. {_written(table)}\n\n{lines}"


def _by_key(table: Table) -> str:
    keys = next((write.key for spec in _streams() for write in spec.writes if write.target is table), ())
    return f"one row per {' and '.join(keys)}" if keys else "rows are appended"


def _streams() -> list[Spec]:
    """Return all streams, whether they are on or not."""
    return list({spec.name: spec for spec in (*topology.specs(), *topology.optional())}.values())


def _written(table: Table) -> str:
    """Say who writes it, and how."""
    writers = [spec for spec in _streams() if table in spec.tables]
    always = [f"`{spec.name}`" for spec in writers if not spec.is_optional]
    optional = [f"`{spec.name}`" for spec in writers if spec.is_optional]
    if len(optional) > MOST_NAMED:
        optional = ["streams"]
    by = ", ".join([*always, *(f"the optional {name}" for name in optional)])
    how = "Current rows: merged" if TABLES[table].is_current else "Append-only: written"
    return f"{how} by {COMMANDS.get(table, by)}."


def _upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def rewritten(page: str) -> str:
    """Return a page with the tables as they are declared now, between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{markdown()}{END}{after}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(rewritten(place.read_text(encoding="utf-8")), encoding="utf-8")
