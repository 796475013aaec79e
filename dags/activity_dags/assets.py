"""What DAGs of other teams can wait for."""

from __future__ import annotations

from airflow.sdk import Asset

GOLD = Asset("customer_activity", uri="x-customer-activity://gold/customer_activity")
