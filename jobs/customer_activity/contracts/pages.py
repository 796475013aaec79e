"""The contracts as Markdown tables for the documentation."""

from __future__ import annotations

from customer_activity.contracts.schema import NO_CONTROL_CHARACTERS, Contract, Field


def limits(field: Field) -> str:
    """Say in words what the field may hold beyond its type; empty when anything goes."""
    parts = (
        (field.min_length, f"at least {field.min_length} character"),
        (field.pattern, pattern_in_words(field.pattern)),
        (field.minimum, f"≥ {field.minimum}"),
        (field.maximum, f"≤ {field.maximum}"),
        (field.step, f"multiple of {field.step}"),
    )
    return ", ".join(words for limit, words in parts if limit is not None)


def pattern_in_words(pattern: str | None) -> str:
    """Say what a text that matches a pattern is like."""
    return "no control characters" if pattern == NO_CONTROL_CHARACTERS else f"matches `{pattern}`"


def markdown_table(contract: Contract) -> str:
    """Tabulate a contract's fields in Markdown, one row a field, in the schema's order."""
    head = ("field", "column", "JSON type", "column type", "required", "limits", "meaning")
    rows = [
        (
            f"`{field.name}`",
            f"`{field.column}`",
            f"{field.kind} or null" if field.nullable else str(field.kind),
            field.sql_type,
            "yes" if field.required else "no",
            limits(field),
            field.description,
        )
        for field in contract.fields
    ]
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
