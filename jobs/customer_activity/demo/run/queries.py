"""How to query gold: one-liners that work as printed from the folder the run was started in."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from customer_activity.catalog import Table, table_path
from customer_activity.settings import Settings

BY_LOYALTY = (
    "SELECT loyalty_status, count(*) AS customers, sum(total_amount) AS total "
    "FROM gold GROUP BY loyalty_status ORDER BY total DESC"
)


class OneLiner(NamedTuple):
    """A shell command that queries gold with one engine."""

    engine: str
    command: str


def one_liners(settings: Settings, folder: Path) -> list[OneLiner]:
    """Return a command for each engine; paths below `folder` are printed relative to it."""
    gold = near(table_path(settings.lake, Table.ACTIVITY), folder)
    columns = "['customer_id', 'loyalty_status', 'purchase_count', 'total_amount']"
    programs = {
        "DuckDB": (
            f"import duckdb; from deltalake import DeltaTable; gold = DeltaTable('{gold}').to_pyarrow_dataset(); "
            f"print(duckdb.sql('{BY_LOYALTY}'))"
        ),
        "Polars": (
            "import polars as pl; "
            f"print(pl.scan_delta('{gold}').select({columns}).top_k(5, by='total_amount').collect())"
        ),
        "pandas": (
            f"from deltalake import DeltaTable; gold = DeltaTable('{gold}').to_pandas(columns={columns}); "
            "print(gold.sort_values('total_amount', ascending=False).head())"
        ),
        "Spark": (
            "from customer_activity import settings; from customer_activity.engine import session; "
            "spark = session.start(settings.load()); "
            f"gold = spark.read.format('delta').load('{gold}').select({columns}); "
            "gold.orderBy('total_amount', ascending=False).show(5)"
        ),
    }
    python = near(sys.executable, folder)
    # Spark reads our settings; the others know nothing of them, and find S3 as delta-rs does.
    elsewhere = settings.s3_environment() if settings.s3_endpoint or settings.s3_region else {}
    told = "".join(f"{name}={shlex.quote(value)} " for name, value in elsewhere.items())
    return [
        OneLiner(engine, f'{"" if engine == "Spark" else told}{python} -c "{program}"')
        for engine, program in programs.items()
    ]


def near(path: str, folder: Path) -> str:
    """Return a path relative to a folder when it is below it, else as it is."""
    return str(Path(path).relative_to(folder)) if "://" not in path and Path(path).is_relative_to(folder) else path
