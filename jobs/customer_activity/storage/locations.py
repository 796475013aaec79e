"""Where a lake may be, and how that is written: a folder of this machine, or a bucket on S3."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from customer_activity import shown

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
BUCKETS = ("s3", "s3a")  # as others call S3, and as Hadoop does
SUPPORTED = "a folder, file:///… or s3a://bucket/prefix"


def normal(location: str) -> str:
    """Return a place in one normal form: an absolute path, or `s3a://bucket/prefix`.

    Raises:
        ValueError: it is none that is supported; says what it is, without credentials that stand in it.
    """
    if location != shown.escaped(location):
        raise ValueError("control characters are in it")
    scheme = SCHEME.match(location)
    if scheme is None and not location.startswith(tuple(f"{name}:" for name in BUCKETS)):
        return str(Path(location).expanduser().resolve())
    parts = urlsplit(location)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"file://{parts.netloc} is another machine: name {SUPPORTED}")
        return str(Path(unquote(parts.path)).resolve())
    if parts.scheme not in BUCKETS:
        raise ValueError(f"{parts.scheme}:// is not supported: name {SUPPORTED}")
    if "@" in parts.netloc:
        raise ValueError("credentials are in it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a role")
    if not parts.netloc:
        raise ValueError("no bucket is named: write s3a://bucket/prefix")
    if parts.query or parts.fragment:
        raise ValueError("only a bucket and a prefix can be named: s3a://bucket/prefix")
    return f"s3a://{parts.netloc}{parts.path}".rstrip("/")
