"""`activity produce`: real or generated traffic into the purchase and the profile topic, and that of payments."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from threading import Event
from types import FrameType
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from customer_activity import catalog
from customer_activity.catalog import Reason
from customer_activity.demo.traffic import dataset, generator, mixing, payments, poison, sending, traces
from customer_activity.demo.traffic.dataset import DatasetOptions
from customer_activity.demo.traffic.generator import GeneratorOptions
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.payments import PaymentTraffic
from customer_activity.demo.traffic.profiles import Arrival, ProfileTraffic
from customer_activity.demo.traffic.record import BAD, CONFLICT
from customer_activity.demo.traffic.sending import Tally
from customer_activity.settings import Settings
from customer_activity.terminal import console

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
BAR_WIDTH = 40  # not as wide as the console: a file is as wide as anything


class DatasetName(StrEnum):
    """The real data sets there are."""

    COMPLETEJOURNEY = "completejourney"


def produce(
    ctx: typer.Context,
    *,
    name: Annotated[
        DatasetName | None, typer.Option("--dataset", help="Send real data; without it, data is generated.")
    ] = None,
    lines: Annotated[int | None, typer.Option(min=0, help="Data set: only its first lines.")] = None,
    customers: Annotated[
        int | None, typer.Option(min=1, help="Generated: customers, each with a profile.", show_default="1000")
    ] = None,
    purchases: Annotated[int | None, typer.Option(min=0, help="Generated: purchases.", show_default="10000")] = None,
    frauds: Annotated[
        int | None, typer.Option(min=0, help="Generated: frauds, of three purchases each.", show_default="0")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Records a second.", show_default="no limit")] = None,
    profiles: Annotated[
        Arrival, typer.Option(help="All profiles first, or a third first and the others among the purchases.")
    ] = Arrival.INTERLEAVED,
    profile_changes: Annotated[int, typer.Option(min=0, help="Address changes among the purchases.")] = 0,
    profile_updates_per_second: Annotated[
        float, typer.Option(min=0, help="Address changes a second, out of --rate; added to --profile-changes.")
    ] = 0.0,
    tombstones: Annotated[int, typer.Option(min=0, help="Profile deletions among the purchases.")] = 0,
    duplicate_share: Annotated[float, typer.Option(min=0, max=1, help="Exact repeats per good record.")] = 0.0,
    conflict_share: Annotated[
        float, typer.Option(min=0, max=1, help="Repeats of a purchase with another amount, per good record.")
    ] = 0.0,
    odd_share: Annotated[float, typer.Option(min=0, max=1, help="Valid but unusual purchases, per good record.")] = 0.0,
    bad_share: Annotated[
        float,
        typer.Option(min=0, max=0.9, help="Share of all records that violate their contract, all kinds equally often."),
    ] = 0.0,
    payment_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of the purchases that somebody pays; a few late, early, twice or otherwise wrong."
        ),
    ] = 0.0,
    traced: Annotated[bool, typer.Option("--traced", help="Each record with a trace: a header `traceparent`.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 0,
    as_json: console.JsonOption = False,
) -> None:
    """Send purchases, profiles and payments to Kafka. Ctrl-C stops it once everything sent is acknowledged."""
    settings = console.settings_of(ctx)
    if name and (customers or purchases is not None or frauds):
        raise typer.BadParameter(
            "--customers, --purchases and --frauds are for generated traffic; --lines shortens a data set"
        )
    if lines is not None and not name:
        raise typer.BadParameter("--lines shortens a data set: name one with --dataset")

    generated = GeneratorOptions(seed=seed, currency=settings.currency)
    generated = replace(
        generated,
        customers=customers or generated.customers,
        purchases=generated.purchases if purchases is None else purchases,
        frauds=frauds or 0,
    )
    purchase_count = dataset.count_lines(lines) if name else generated.purchases
    plan = ProfileTraffic(
        arrival=profiles,
        changes=profile_changes + _changes(profile_updates_per_second, rate, purchase_count),
        tombstones=tombstones,
        seed=seed,
    )
    if name:
        real = DatasetOptions(lines=lines, currency=settings.currency, profiles=plan)
        records, count = dataset.records(real), dataset.count(real)
    else:
        generated = replace(generated, profiles=plan)
        records, count = generator.records(generated), generator.count(generated)

    has_payments = payment_share > 0
    disturbance = Disturbance(
        duplicate_share, conflict_share, bad_share, settings.currency, seed, odd_share, has_payments=has_payments
    )
    expected = mixing.expected(count, disturbance)
    stream = mixing.disturbed(records, disturbance)
    roles = [catalog.PURCHASES_ROLE, catalog.PROFILES_ROLE]
    if has_payments:
        stream = payments.among(stream, PaymentTraffic(payment_share, seed))
        expected += round(purchase_count * payment_share * payments.RECORDS_A_PAYMENT)
        roles.append(catalog.PAYMENTS_ROLE)
    if traced:
        stream = traces.traced(stream, seed)
    with _stop_requested() as stopping, _progress_bar(expected, is_hidden=as_json) as show:
        tally = sending.send(stream, settings, rate=rate, is_stopping=stopping.is_set, progress=show, roles=roles)
    report = _report(tally, settings, source=name or "generated", seed=seed)
    if as_json:
        console.print_json(report)
    else:
        _print(report)


def _changes(per_second: float, rate: float | None, purchases: int) -> int:
    """Turn address changes a second into a number of them, so that the stream needs no clock."""
    if not per_second:
        return 0
    if rate is None or per_second >= rate:
        raise typer.BadParameter("--profile-updates-per-second is a part of --rate: give a --rate above it")
    return round(purchases * per_second / (rate - per_second))


@contextmanager
def _stop_requested() -> Iterator[Event]:
    """Turn the first stop signal into an event; a second one ends the process as usual."""
    stopping = Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, stop) for each in STOP_SIGNALS}
    try:
        yield stopping
    finally:
        restore()


class _RateColumn(ProgressColumn):
    """Records a second, over the last moments."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} records/s" if speed else "", style="progress.data.speed")


@contextmanager
def _progress_bar(expected: int, *, is_hidden: bool) -> Iterator[sending.Progress]:
    """Show a bar on the error stream, so that the summary alone is on standard output."""
    columns = (
        TextColumn("producing"),
        BarColumn(bar_width=BAR_WIDTH),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console.err, disable=is_hidden) as bar:
        task = bar.add_task("producing", total=expected)
        yield lambda sent: bar.update(task, completed=sent)


def _report(tally: Tally, settings: Settings, *, source: str, seed: int) -> dict[str, Any]:
    """Sum up what was sent, and what of it belongs into quarantine, by reason."""
    topics: dict[str, Counter[str]] = {}
    bad_kinds: Counter[str] = Counter()
    quarantine: Counter[str] = Counter()
    for (role, kind), number in sorted(tally.counts.items()):
        sent = topics.setdefault(settings.topics[role], Counter())
        if kind.startswith(BAD):
            sent["bad"] += number
            bad_kinds[kind.removeprefix(BAD)] += number
            quarantine[poison.REASONS[kind.removeprefix(BAD)]] += number
        else:
            sent[kind] += number
        if kind == CONFLICT:
            quarantine[Reason.CONFLICTING_DUPLICATE] += number
    return {
        "source": source,
        "seed": seed,
        "is_interrupted": tally.is_interrupted,
        "records": tally.records,
        "seconds": round(tally.seconds, 3),
        "records_per_second": round(tally.records / tally.seconds) if tally.seconds else 0,
        "topics": topics,
        "expected_in_quarantine": quarantine,
        "bad_kinds": bad_kinds,
    }


def _print(report: dict[str, Any]) -> None:
    table = Table("topic", "records of kind", "number", title=f"Sent: {report['source']}, seed {report['seed']}")
    table.columns[2].justify = "right"
    for topic, kinds in report["topics"].items():
        for kind, number in kinds.items():
            table.add_row(topic, kind, f"{number:,}")
        table.add_section()
    console.out.print(table)
    if report["expected_in_quarantine"]:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in report["expected_in_quarantine"].items())
        console.out.print(f"to be quarantined: {reasons}")
    ending = "interrupted; confirmed" if report["is_interrupted"] else "sent and confirmed"
    speed = f"{report['seconds']:,.1f} s, {report['records_per_second']:,} records/s"
    console.out.print(f"{ending} {report['records']:,} records in {speed}")
