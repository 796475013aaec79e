"""Lives a life, and looks at the tables after every step."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.errors import TerminalError
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from support.dying import Died, dies
from support.expected import Expected, History, Kind, Landed, expected, meets
from support.lives import BEFORE, NEXT, PATH, TABLES, Crash, Event, Happening, Place, Send, Step, Take
from support.living import LivingPipeline, full_disk
from support.records import profile, purchase
from support.streams import Query
from support.visits import Visits
from support.without_jvm import NoSpark
from support.witness import Witness, without
from support.worlds import Sent

BESIDE = (Event.COMPACTED, Event.VACUUMED, Event.LOG_SHORTENED, Event.GATE_SHUT)  # may happen while a driver runs
STEPS_OFF = 4  # for which a query or the gate is off


class Life:
    """A pipeline that records come to, that dies and comes back, and whose lake things happen to."""

    def __init__(self, spark: SparkSession | NoSpark, empty_lake: Path, folder: Path, visits: Visits) -> None:
        """Begin with an empty lake."""
        shutil.copytree(empty_lake, folder / "lake")
        settings = Settings(lake=str(folder / "lake"), run_dir=folder / "run-0")
        self.folder = folder
        self.pipeline = LivingPipeline(spark, settings)  # type: ignore[arg-type]
        self.visits = visits
        self.witness = Witness(self.pipeline)
        self.landed = self.witness.landed
        self.history = History()
        self.kinds: dict[tuple[str, int, int], frozenset[Kind]] = {}
        self.waiting: dict[Query, list[frozenset[Kind]]] = defaultdict(list)
        self.at_work: dict[Query, list[frozenset[Kind]]] = {}
        self.unfinished: set[Query] = set()
        self.off: Counter[Query] = Counter()
        self.gate_shut = 0
        self.old_index = folder / "old-index"
        self.vacuumed: dict[Table, int] = {}

    @property
    def lake(self) -> str:
        return self.pipeline.settings.lake

    def live(self, steps: list[Step]) -> None:
        """Do the steps, and let everything through at the end."""
        for step in steps:
            self.do(step)
            self.witness.look(bronze_is_through=Query.BRONZE not in self.unfinished)
            self._time_goes_on()
        self.end()

    def do(self, step: Step) -> None:
        """Do one step."""
        if isinstance(step, Send):
            self.send(step.records)
        elif isinstance(step, Take):
            for before in BEFORE[step.query] if step.with_all_before else ():
                self.take(before)
            self.take(step.query)
        elif isinstance(step, Crash):
            self.crash(step)
        else:
            is_beside = step.event in BESIDE and step.number % 2
            if not is_beside:
                self.pipeline.stop()
            self.happen(step, None)
            if not is_beside:
                self.pipeline.restart()

    def send(self, records: tuple[Sent, ...]) -> None:
        """Put records on their topics."""
        for sent in records:
            entry = self.pipeline.log.append(sent.record, sent.partition)
            self.pipeline.sent.append(entry)
            self.witness.sent[entry[:3]] = sent
            self.kinds[entry[:3]] = self.history.kinds(sent, entry[1])

    def take(self, query: Query, failpoint: Callable[[str], None] | None = None) -> None:
        """Let a query take what is there, the batch that its last driver did not end first."""
        if self.off[query] or (query == Query.PUBLISH and self.gate_shut):
            return
        self.finish(query)
        if query == Query.BRONZE:
            number = len(self.pipeline.batches[query])
            self.landed += [Landed(number, *entry[:3], self.witness.sent[entry[:3]]) for entry in self.pipeline.sent]
            self.waiting[query] += [self.kinds[entry[:3]] for entry in self.pipeline.sent]
        self.at_work[query] = self.waiting.pop(query, [])
        self.unfinished.add(query)
        self.pipeline.hop(query, failpoint) if failpoint else self.pipeline.hop(query)
        self._through(query)

    def finish(self, query: Query) -> None:
        """Repeat a batch that was not ended."""
        if query in self.unfinished and not self.off[query] and not (query == Query.PUBLISH and self.gate_shut):
            self.pipeline.repeat(query)
            self._through(query)

    def _through(self, query: Query) -> None:
        self.unfinished.discard(query)
        kinds = self.at_work.pop(query)
        for after in NEXT[query]:
            self.waiting[after] += [of for of in kinds if all(after in meets(kind) for kind in of)]

    def crash(self, step: Crash) -> None:
        """Bring a query news, let it die on the way, let something happen, and start the next driver."""
        place = step.place
        self.send(step.news)
        for before in BEFORE[place.query] if step.news else ():
            self.take(before)
        if place.query == Query.PUBLISH:
            self.gate_shut = 0
            gate.update(self.lake, ["rule"], {})
        self.off[place.query] = 0
        self.finish(place.query)
        try:
            self.take(place.query, dies(place.point, times=place.times))
        except Died:
            kinds = frozenset[Kind]().union(*self.at_work[place.query])
        self.pipeline.stop()
        for happening in step.then or (Happening(Event.RESTARTED),):
            if place.query in self.unfinished:
                self.visits.add(place, happening.event, kinds)
            self.happen(happening, place)
        self.pipeline.restart()

    def happen(self, happening: Happening, place: Place | None) -> None:
        """Let something happen while no driver runs."""
        self.witness.keep_books()
        event, number = happening
        table = TABLES[number % len(TABLES)]
        acts: dict[Event, Callable[[], object]] = {
            Event.RESTARTED: lambda: self.restart(keep=True),
            Event.INDEX_LOST: lambda: self.restart(lost=True),
            Event.INDEX_OLD: lambda: self.restart(old=True),
            Event.MACHINE_CHANGED: lambda: self.pipeline.on_machine(number % 3),
            Event.LAYER_BACK: lambda: self.put_back(table, 1 + number % 2),
            Event.COMPACTED: lambda: maintenance.compact(self.lake, table),
            Event.VACUUMED: lambda: self.vacuum(table),
            Event.LOG_SHORTENED: lambda: self.shorten(table),
            Event.FOREIGN_COMMIT: lambda: self.meddle(PATH[number % len(PATH)], number % 3),
            Event.GATE_SHUT: self.shut_gate,
            Event.OFF_FOR_LONG: lambda: self.switch_off(place.query if place else tuple(Query)[number % len(Query)]),
            Event.DISK_FULL: lambda: self.fill_disk(place.query if place else tuple(Query)[number % len(Query)]),
        }
        acts[event]()

    def restart(self, *, lost: bool = False, old: bool = False, keep: bool = False) -> None:
        """Keep local state and sorted runs as they are, lose them, or put those of an earlier restart back."""
        for folder in (self.pipeline.settings.index_dir, Path(self.lake, "_state")):
            kept = self.old_index / folder.name
            if (lost or old) and folder.exists():  # what happened before may have taken it
                shutil.rmtree(folder)
            if old and kept.exists():
                shutil.copytree(kept, folder)
            if keep and folder.exists():
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept)

    def vacuum(self, table: Table) -> None:
        """Remove at once what was replaced, as far as the readers let it."""
        maintenance.compact(self.lake, table)
        if maintenance.vacuum(self.lake, table, timedelta(0)).files:
            self.vacuumed[table] = DeltaTable(table_path(self.lake, table)).version()

    def shorten(self, table: Table) -> None:
        """Remove the log's entries before its newest checkpoint, as far as the readers let it."""
        DeltaTable(table_path(self.lake, table)).create_checkpoint()
        maintenance.shorten(self.lake, table, 1)

    def shut_gate(self) -> None:
        """Hold publishing for some steps."""
        failure = Failure("gold/customer_activity", "a test's", "now", "run-1")
        gate.update(self.lake, [], {"rule": failure})
        self.gate_shut = STEPS_OFF

    def switch_off(self, query: Query) -> None:
        """Have a query do nothing for some steps, and the others much."""
        self.pipeline.restart()
        self.off[query] = STEPS_OFF
        for number in range(STEPS_OFF):
            made = purchase(f"off-{len(self.witness.sent)}", "C-1"), profile("C-2", 1 + number, address=f"No {number}")
            self.send(tuple(map(Sent, made)))
            for other in (Query.BRONZE, Query.SILVER, Query.GOLD):
                self.take(other)
        self.pipeline.stop()

    def fill_disk(self, query: Query) -> None:
        """Let a query meet a full disk, which ends its driver; the next one finds room."""
        self.pipeline.restart()
        with full_disk(), suppress(Exception):  # Arrow, SQLite and Delta each have their own
            self.take(query)
        self.pipeline.stop()

    def put_back(self, table: Table, commits: int) -> None:
        """Put a table back to what it was: that is refused, or all goes on right."""
        with self._saved() as undo:
            is_other = self.vacuumed.get(table, -1) < 0 and self.pipeline.put_back(table, commits)
            if not is_other:
                return
            if refused := self._refused():
                assert table.label in refused, f"{refused} does not name {table.label}"
                undo()
                return
        self.pipeline.stop()
        self.witness.read_anew(table)

    def meddle(self, table: Table, how: int) -> None:
        """Have somebody else change a table of the path: its readers refuse that, and count nothing."""
        with self._saved() as undo:
            if not _changed_by_somebody(DeltaTable(table_path(self.lake, table)), how):
                return
            refused = self._refused()
            what = f"somebody's {('DELETE', 'UPDATE', 'INSERT')[how]} of {table.label}"
            assert table.label in refused, f"{what} passed, or was refused by another name: {refused}"
            undo()

    def _refused(self) -> str:
        """Start, and let everything through; return why that is refused, nothing where it is not."""
        try:
            self.pipeline.restart()
            self.everything()
        except TerminalError as refusal:
            return str(refusal)
        return ""

    @contextmanager
    def _saved(self) -> Iterator[Callable[[], None]]:
        """Keep everything as it is, and hand out what puts it back."""
        unfinished, off, gate_shut, landed = set(self.unfinished), Counter(self.off), self.gate_shut, len(self.landed)
        waiting = {query: list(kinds) for query, kinds in self.waiting.items()}
        at_work = dict(self.at_work)

        def put_back() -> None:
            self.unfinished, self.off, self.gate_shut = unfinished, off, gate_shut
            self.waiting, self.at_work = defaultdict(list, waiting), at_work
            del self.landed[landed:]
            undo()

        with self.pipeline.saved() as undo:
            yield put_back

    def everything(self) -> None:
        """Let everything through."""
        self.off.clear()
        self._open_gate()
        for query in Query:
            self.take(query)

    def _open_gate(self) -> None:
        if self.gate_shut:
            gate.update(self.lake, ["rule"], {})
        self.gate_shut = 0

    def _time_goes_on(self) -> None:
        self.off -= Counter(dict.fromkeys(self.off, 1))
        if self.gate_shut == 1:
            self._open_gate()
        self.gate_shut = max(0, self.gate_shut - 1)

    def end(self) -> None:
        """Let everything through: all tables and the topic say what follows from the records."""
        self.everything()
        self.witness.look(bronze_is_through=True)
        self._either_side_changes_the_view(self.witness.prove())
        self.pipeline.stop()
        self.pipeline.forget_logs()
        shutil.rmtree(self.folder)

    def _either_side_changes_the_view(self, wanted: Expected) -> None:
        """A profile alone changes a customer's row and sends one record, and so does a purchase alone."""
        concerned = sorted(wanted.view.keys() - self.witness.too_large())[:2]
        alone = [profile(customer, 10_000, address="Elsewhere") for customer in concerned[:1]]
        self.send(tuple(map(Sent, alone + [purchase("P-new", customer, "0") for customer in concerned[1:]])))
        before = len(self.pipeline.view.records)
        for query in (Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH):
            self.take(query)
        self.witness.keep_books()
        after = expected(self.landed)
        assert without(self.witness.changes_of_gold(), wanted.frozen) == after.view
        assert sorted(customer for customer, _ in self.pipeline.view.records[before:]) == concerned
        assert all(after.view[customer] != wanted.view[customer] for customer in concerned)


def _changed_by_somebody(table: DeltaTable, how: int) -> bool:
    """Delete, update or insert a row; say whether there was one to begin with."""
    rows = table.to_pyarrow_table()
    if not rows.num_rows:
        return False
    column = "view_version" if "view_version" in rows.column_names else "offset"
    one = rows.column(column)[0].as_py()
    where = f'"{column}" = {one}'
    if how == 0:
        table.delete(where)
    elif how == 1:
        table.update({"customer_id": "'C-3'"}, predicate=where)
    else:
        write_deltalake(table, pa.Table.from_batches(rows.slice(0, 1).to_batches()), mode="append")
    return True
