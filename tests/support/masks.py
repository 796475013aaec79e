"""Keys that tests mask with."""

from __future__ import annotations

from pathlib import Path

SECRETS = {"one": "0123456789abcdef0123456789abcdef", "another": "fedcba9876543210fedcba9876543210"}


def key_file(folder: Path, name: str = "one") -> Path:
    """Write a key to a file of its own, and return that."""
    file = folder / f"mask-key-{name}"
    file.write_text(f"{SECRETS[name]}\n", encoding="utf-8")
    return file
