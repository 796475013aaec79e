"""`make guards`: take each guard out of a copy of the code, and see the drill or test that is about it fail.

    .venv/bin/python tests/drills/guards.py [--only WORDS ...]

A guard whose test stays green without it is not tested. Exit 1 when there is one, when a guard is no longer in the code
as it is written here, or when its tests fail with the code as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

if not __package__:  # run as a file: only its own folder is searched, and packages lie in the two above
    sys.path[:1] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.trial import say

PROJECT = Path(__file__).resolve().parents[2]
COPIED = (
    "jobs",
    "tests",
    "benchmarks",
    "infra",
    "docs",
    "expectations",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
SHARED = (".venv", ".jars")
GREEN, FAILED = 0, 1  # pytest's exit codes; others say that it could not run
DRILL = ("tests/drills/test_drills.py", "--nightly", "-k", "six")
MODEL = ("tests/spark/test_model.py", "-x", "-k", "every_life or each_kind", "--hypothesis-profile=as-found")
PARTS = ("tests/spark/test_batches_in_parts.py",)
STATE = ("tests/component/test_gold_state.py",)
FEEDS = ("tests/component/test_feeds.py",)


class Guard(NamedTuple):
    """A guard and what is about it.

    Attributes:
        name: what it does.
        file: below jobs/customer_activity.
        code: its text there.
        without: the text without it.
        tests: arguments of pytest.
    """

    name: str
    file: str
    code: str
    without: str
    tests: tuple[str, ...]


class Verdict(StrEnum):
    """How it went without the guard."""

    RED = "red, as it must be"
    STAYED_GREEN = "STAYED GREEN"
    NOT_FOUND = "NOT IN THE CODE"
    BROKEN = "TESTS DID NOT RUN"


ONCE = "    if jvm.last_version(transaction, application) >= number:\n        return None\n"
LEFT = "self.written.left(batch.versions, self.made)"
LOOKS = "looks = self.refuses and not self.is_sure"
WHOLE = '    draft = place.with_name(f"{place.name}.draft")\n'
MARKER = "begin = known if known is not None and known.table_id == table_id else Marker(table_id, BEFORE_THE_FIRST)"
AS_READ = "    transaction.readTxn().addOne(application)\n"
HELD = "        if newest.get(query) != epoch:\n            raise lost(query, epoch)\n"
READERS = "    if behind := readers_behind(lake, table, retention):\n        return Vacuumed(0, 0, behind)\n"
EARLIER_DAY = ("tests/integration/test_streams.py", "-k", "lost_checkpoint and bronze or earlier_day and summaries")

GUARDS = (
    Guard("an append is made once (drill)", "lake/commits.py", ONCE, "", DRILL),
    Guard("an append is made once (model)", "lake/commits.py", ONCE, "", MODEL),
    Guard(
        "what a merge has added is told by the table's newest note",
        "engine/changes.py",
        LEFT,
        "batch.versions",
        ("tests/component/test_merges.py", "-k", "made_anew"),
    ),
    Guard(
        "a merge of a part says how far it has read",
        "engine/changes.py",
        "self._note(part, of_part)",
        "self._note(feed, of_part)",
        ("tests/component/test_merges.py", "-k", "part_by_part and summaries"),
    ),
    Guard(
        "profiles are in the order of records",
        "streams/current/profiles.py",
        'ORDER = ["landing", "partition", "offset"]',
        'ORDER = ["offset"]',
        ("tests/component/test_newest_changes.py",),
    ),
    Guard(
        "a total that the table cannot hold is null",
        "streams/current/summaries.py",
        'f"try_cast({BOTH} as decimal(18,2))"',
        '"t.total_amount + s.total_amount"',
        ("tests/component/test_merges.py", "-k", "cannot_hold"),
    ),
    Guard(
        "what a batch adds is null where the table cannot hold it",
        "streams/current/summaries.py",
        "held = pc.if_else(pc.less_equal(totals, pa.scalar(MOST, WIDE)), totals, pa.scalar(None, WIDE))",
        "held = totals",
        ("tests/component/test_merges.py", "-k", "cannot_hold"),
    ),
    Guard(
        "what was merged can be compared in Arrow",
        "lake/merging.py",
        "    footers.repair_commit(lake, table, target.version())\n",
        "",
        ("tests/component/test_merged_tables.py", "-k", "found_by_id"),
    ),
    Guard(
        "a text called as the footer's note stays as it is",
        "lake/footers.py",
        "footer.rindex(NOTE)",
        "footer.index(NOTE)",
        ("tests/component/test_merged_tables.py",),
    ),
    Guard(
        "publish goes on from its marker (drill)",
        "streams/publish/stream.py",
        MARKER,
        "begin = Marker(table_id, BEFORE_THE_FIRST)",
        DRILL,
    ),
    Guard(
        "publish goes on from its marker (model)",
        "streams/publish/stream.py",
        MARKER,
        "begin = Marker(table_id, BEFORE_THE_FIRST)",
        MODEL,
    ),
    Guard(
        "a transaction has so many records at most",
        "streams/publish/parts.py",
        "min(records, int(",
        "min(2**40, int(",
        ("tests/unit/test_publish_parts.py",),
    ),
    Guard(
        "a transaction has so many bytes at most",
        "streams/publish/parts.py",
        "np.searchsorted(np.cumsum(weights), size,",
        "np.searchsorted(np.cumsum(weights), 2**40,",
        ("tests/unit/test_publish_parts.py",),
    ),
    Guard(
        "publish goes on behind the rows of a version that was cut",
        "streams/publish/parts.py",
        "pc.greater_equal(number, marker.rows)",
        "pc.greater_equal(number, 0)",
        ("tests/unit/test_publish_parts.py",),
    ),
    Guard(
        "rows too large for the topic are in quarantine once",
        "streams/publish/stream.py",
        "position(version, row + 1) > (kept or 0)",
        "position(version, row + 1) > 0",
        ("tests/spark/test_publish.py", "-k", "too_large"),
    ),
    Guard(
        "another deployment's view topic is refused",
        "streams/publish/marker.py",
        "    if own is not None:",
        "    if False:",
        ("tests/integration/test_publisher.py", "-k", "both_topics or topics_of_another"),
    ),
    Guard(
        "another deployment is refused before it is fenced",
        "streams/publish/transaction.py",
        "            markers.refuse_others(settings, markers.readable(settings), ours)\n",
        "            pass\n",
        ("tests/integration/test_publisher.py", "-k", "topics_of_another"),
    ),
    Guard(
        "a view topic without a marker is refused",
        "streams/publish/marker.py",
        "    if has_records(settings, settings.view_topic):",
        "    if False:",
        ("tests/integration/test_publisher.py", "-k", "another_progress_topic"),
    ),
    Guard(
        "no marker is taken for the last while somebody's transaction hides others",
        "streams/publish/marker.py",
        "    settle(settings, settings.progress_topic)\n    return",
        "    return",
        ("tests/integration/test_publisher.py", "-k", "hides"),
    ),
    Guard(
        "a transaction that took too long is told from a second publisher",
        "streams/publish/transaction.py",
        "if seconds >= TRANSACTION_TIMEOUT_SECONDS and fault.code() in ENDED:",
        "if False:",
        ("tests/integration/test_publisher.py", "-k", "too_long"),
    ),
    Guard(
        "resync keeps the marker until all is out",
        "streams/publish/resync.py",
        "publisher.publish(going[begin:number], former)",
        "publisher.publish(going[begin:number], marker)",
        ("tests/component/test_resync.py",),
    ),
    Guard(
        "what silver has written of a batch is left out",
        "engine/changes.py",
        LEFT,
        "batch.versions",
        (*PARTS, "-k", "crash and silver"),
    ),
    Guard(
        "what gold has written of a batch is left out",
        "engine/changes.py",
        LEFT,
        "batch.versions",
        (*PARTS, "-k", "crash and gold"),
    ),
    Guard(
        "what silver had put into quarantine of a part is the same part again",
        "engine/changes.py",
        LOOKS,
        "looks = False",
        (*PARTS, "-k", "crash and silver"),
    ),
    Guard(
        "what gold had put into quarantine of a part is the same part again",
        "engine/changes.py",
        LOOKS,
        "looks = False",
        (*PARTS, "-k", "crash and gold"),
    ),
    Guard(
        "a batch with nothing left to write tells nothing of the next one",
        "engine/changes.py",
        "was_sure or stop is None or end >= stop",
        "True",
        (*PARTS, "-k", "recovered"),
    ),
    Guard(
        "a write that fails ends the batch whatever the step says",
        "engine/stream.py",
        "                    steps.throw(error)\n                raise\n",
        "                    steps.throw(error)\n",
        ("tests/unit/test_steps.py",),
    ),
    Guard(
        "silver's index is brought to where its table is",
        "streams/silver/stream.py",
        "        state.bring({Table.PURCHASES: NEWEST}, batch.progress)\n",
        "",
        (*PARTS, "-k", "crash and silver"),
    ),
    Guard(
        "gold's state is brought to where a part begins",
        "streams/gold/stream.py",
        "        state.bring({table: after for table, (after, _) in part.versions.items()}, batch.progress)\n",
        "",
        (*PARTS, "-k", "crash and gold"),
    ),
    Guard(
        "a place in a table is that of one commit",
        "state/restore.py",
        "    return bool(held.commit) and deltalog.position(lake, table, held.table_id, held.version) == held\n",
        "    return True\n",
        (*STATE, "-k", "put_back"),
    ),
    Guard(
        "what landed later is not in an earlier state",
        "state/restore.py",
        "    return newest.filter(is_earlier)\n",
        "    return newest\n",
        (*STATE, "-k", "landed_later"),
    ),
    Guard(
        "an older change brings no profile back",
        "state/profile_records.py",
        'WHERE (excluded.landing, excluded."partition", excluded."offset") >= (landing, "partition", "offset")\n',
        "",
        (*STATE, "-k", "older_change"),
    ),
    Guard(
        "a total out of range stays so",
        "streams/gold/state.py",
        "    cents = min(cents + excluded.cents, {OUT_OF_RANGE}),",
        "    cents = cents + excluded.cents,",
        (*STATE, "-k", "out_of_range"),
    ),
    Guard(
        "gold is told that a profile ended before it came back",
        "streams/silver/profiles.py",
        "last.union(number for customer, number in ended.items() if customer in current)",
        "last",
        ("tests/component/test_silver.py", "-k", "profile_verdicts"),
    ),
    Guard(
        "a row whose total is out of range ends with its profile",
        "streams/gold/state.py",
        "    AND NOT EXISTS (SELECT 1 FROM over WHERE over.customer_id = changed.customer_id)\n",
        "",
        (*STATE, "-k", "ends_with_its_profile"),
    ),
    Guard(
        "gold writes a row only when it changed",
        "streams/gold/state.py",
        "      AND (before.customer_id IS NULL OR ({VALUES}) IS NOT ({BEFORE}))\n",
        "",
        ("tests/spark/test_story.py", "-k", "came_back"),
    ),
    Guard(
        "a publisher fences the one before",
        "streams/publish/transaction.py",
        "transactional_id=self.identity,",
        "transactional_id=str(id(self)),",
        ("tests/integration/test_streams.py", "-k", "fences"),
    ),
    Guard(
        "a row too large for the topic goes to quarantine",
        "streams/publish/stream.py",
        "too_large = oversized(rows, publisher.max_bytes)",
        "too_large = oversized(rows, 2**62)",
        ("tests/spark/test_publish.py",),
    ),
    Guard(
        "publishing waits at the gate of quality",
        "engine/queries.py",
        "        if self.spec.is_gated:\n            self._pass_gate()\n",
        "",
        ("tests/integration/test_quality.py", "-k", "held"),
    ),
    Guard(
        "a rule that could not be judged is no pass",
        "quality/judging.py",
        "    if fault := fault_of(result):",
        "    if False and (fault := fault_of(result)):",
        ("tests/spark/test_quality.py", "-k", "gone"),
    ),
    Guard(
        "a commit looks for a successor's epoch",
        "lake/commits.py",
        "if jvm.last_version(transaction, batch.lease_id) > epoch:",
        "if False:",
        ("tests/spark/test_lease.py",),
    ),
    Guard(
        "a commit fails on a successor's that comes meanwhile",
        "lake/jvm.py",
        AS_READ,
        f'    if not application.startswith("lease"):\n    {AS_READ}',
        ("tests/spark/test_lease.py",),
    ),
    Guard(
        "a commit fails on the same batch that another driver commits meanwhile",
        "lake/jvm.py",
        AS_READ,
        f'    if application.startswith("lease"):\n    {AS_READ}',
        ("tests/spark/test_commits.py", "-k", "same_batch"),
    ),
    Guard(
        "epochs begin above the tables' own",
        "lease/lease.py",
        "epoch = max(newest or 0, in_tables) + 1",
        "epoch = (newest or 0) + 1",
        ("tests/component/test_kept_out.py", "-k", "above_those_in_the_tables"),
    ),
    Guard(
        "Hadoop repeats no commit beyond its lease",
        "engine/session.py",
        '    "spark.hadoop.fs.s3a.retry.limit": "0",\n',
        '    "spark.hadoop.fs.s3a.retry.limit": "7",\n',
        ("tests/component/test_s3_lease.py", "-k", "hadoop_repeats"),
    ),
    Guard(
        "a commit on S3 begins only when it ends before the lease",
        "lease/lease.py",
        "silent > LEASE_SECONDS - s3.WRITE_SECONDS:",
        "silent > LEASE_SECONDS:",
        ("tests/component/test_s3_lease.py", "-k", "ends_before_the_lease"),
    ),
    Guard(
        "a source that was put back is refused by its reader",
        "checkpoints/agreement.py",
        "    if position.version > newest:\n",
        "    if False:\n",
        ("tests/component/test_agreement.py", "-k", "refused_by_name"),
    ),
    Guard(
        "a source that was put back and has grown is told by its commits",
        "checkpoints/agreement.py",
        "if there is not None and there.commit != position.commit:",
        "if False:",
        ("tests/component/test_agreement.py", "-k", "has_grown"),
    ),
    Guard(
        "a table that lacks what its checkpoint has read is refused",
        "checkpoints/agreement.py",
        "if commit.kind is Kind.APPEND and commit.adds and (",
        "if False and (",
        ("tests/component/test_agreement.py", "-k", "refused_by_name"),
    ),
    Guard(
        "one of bronze's tables that was put back is told by the other",
        "checkpoints/agreement.py",
        "if len(topics) == len(events) and state",
        "if False and state",
        ("tests/component/test_agreement.py", "-k", "told_by_the_other"),
    ),
    Guard(
        "gold that names none of its reads lacks what this release has brought to silver",
        "checkpoints/agreement.py",
        "after = None if done is None else range(",
        "after = None if done is None or of_before else range(",
        ("tests/component/test_agreement.py", "-k", "before_this_release"),
    ),
    Guard(
        "current rows are made anew where the log does not reach back",
        "operations/recovery.py",
        "if topology.spec(query).is_behind and written is not None and not _reaches(lake, query, written):",
        "if False:",
        ("tests/component/test_agreement.py", "-k", "recovered"),
    ),
    Guard(
        "a log becomes short by slices",
        "maintenance/maintenance.py",
        "until = gone[SLICE_COMMITS] if len(gone) > SLICE_COMMITS else begin",
        "until = begin",
        ("tests/component/test_maintenance.py", "-k", "by_slices"),
    ),
    Guard(
        "a data file is on the disk before it is committed",
        "lake/datafiles.py",
        '            settle(f"{self.folder}/{self.path}")',
        "            pass",
        ("tests/component/test_power_loss.py",),
    ),
    Guard(
        "a commit is on the disk before its batch goes on",
        "lake/commits.py",
        '    settle(f"{path}/_delta_log/{committed:020}.json")\n',
        "",
        ("tests/spark/test_power_loss.py",),
    ),
    Guard(
        "history is written whole",
        "storage/filesystem.py",
        WHOLE,
        "    draft = place\n",
        ("tests/component/test_history.py", "-k", "writing_failed"),
    ),
    Guard(
        "a history that was cut off is read as far as it goes",
        "lake/history.py",
        "    except ValueError:\n        return None\n    return said if",
        "    except FileNotFoundError:\n        return None\n    return said if",
        ("tests/component/test_history.py", "-k", "cut_off"),
    ),
    Guard(
        "a named operation is fenced",
        "lake/named_operations.py",
        "if operation is not None and _is_fenced(actions):",
        "if operation is not None:",
        ("tests/component/test_operations.py",),
    ),
    Guard(
        "rows that somebody removed are no append",
        "lake/named_operations.py",
        "elif is_ours and not takes_away and operation is None:",
        "elif is_ours and operation is None:",
        ("tests/component/test_operations.py",),
    ),
    Guard(
        "what lies beside the tables is its owner's alone",
        "storage/filesystem.py",
        "        folder.chmod(PRIVATE)\n",
        "        pass\n",
        ("tests/component/test_rights.py",),
    ),
    Guard(
        "a merge carries the epoch",
        "lake/merging.py",
        "        transactions.append(Transaction(batch.lease_id, epoch))\n",
        "",
        ("tests/spark/test_lease.py",),
    ),
    Guard("a driver looks whether it was taken over from", "lease/lease.py", HELD, "", ("tests/spark/test_lease.py",)),
    Guard("a frozen driver commits nothing (drill)", "lease/lease.py", HELD, "", DRILL),
    Guard(
        "an epoch on S3 is one driver's",
        "storage/s3.py",
        ', IfNoneMatch="*"',
        "",
        ("tests/component/test_s3_lease.py",),
    ),
    Guard(
        "checkpoint and tables must agree",
        "application.py",
        "        recovery.check_agreement(settings.lake, queries)\n",
        "",
        EARLIER_DAY,
    ),
    Guard(
        "a recovered checkpoint repeats the newest batch",
        "checkpoints/checkpoint.py",
        'contents[f"commits/{batch_id - 1}"]',
        'contents[f"commits/{batch_id}"]',
        ("tests/component/test_recovery.py",),
    ),
    Guard(
        "bronze compares its position with Kafka's",
        "application.py",
        "            loss.check(settings)\n",
        "            pass\n",
        ("tests/integration/test_loss.py",),
    ),
    Guard(
        "a topic is known by its id",
        "engine/loss.py",
        "        if topic in noted and noted[topic] != clients.topic_ids(settings, [topic])[topic]:\n"
        '            raise _another(topic, "its id is another one")\n',
        "",
        ("tests/integration/test_loss.py",),
    ),
    Guard(
        "silence is not the end of a topic",
        "streams/bronze/fetching.py",
        "            elif time.monotonic() > silent_until:\n",
        "            elif time.monotonic() > silent_until and (unread := set()):\n",
        ("tests/integration/test_fetching.py", "-k", "silent"),
    ),
    Guard(
        "VACUUM asks the readers", "maintenance/maintenance.py", READERS, "", ("tests/component/test_maintenance.py",)
    ),
    Guard(
        "a log keeps what a reader needs",
        "maintenance/maintenance.py",
        "    upto = min([newest - kept, *(-1 if version is None else version for version in needed)])\n",
        "    upto = newest - kept\n",
        ("tests/component/test_maintenance.py",),
    ),
    Guard(
        "what leaves a log is kept in its history",
        "maintenance/maintenance.py",
        "    history.keep(lake, table, commits)\n",
        "",
        ("tests/component/test_maintenance.py",),
    ),
    Guard(
        "a compaction is no change",
        "lake/named_operations.py",
        'return bool(file.get("dataChange", True))',
        "return True",
        ("tests/component/test_operations.py",),
    ),
    Guard(
        "a compaction is no change (feed)",
        "lake/named_operations.py",
        '    return bool(file.get("dataChange", True))\n',
        "    return True\n",
        (*FEEDS, "-k", "compaction"),
    ),
    Guard(
        "somebody else's change is refused",
        "lake/feeds.py",
        "        if commit.kind is Kind.FOREIGN:\n",
        "        if False:\n",
        (*FEEDS, "-k", "somebody"),
    ),
    Guard(
        "a version that is gone is an error",
        "lake/feeds.py",
        "            if after < 0:  # the log begins later: all versions up to one are the table at that version\n",
        "            if True:\n",
        (*FEEDS, "-k", "entry_that_is_gone"),
    ),
    Guard(
        "a version that a batch ends inside is read to its end",
        "checkpoints/checkpoint.py",
        '    if offset["index"] >= 0:\n',
        "    if False:\n",
        ("tests/component/test_checkpoints.py",),
    ),
    Guard(
        "too many bad records stop bronze",
        "streams/bronze/bad_share.py",
        "bad > self.max_share * records",
        "False",
        ("tests/spark/test_story.py", "-k", "too_many_bad"),
    ),
    Guard(
        "bad records before a restart count",
        "streams/bronze/bad_share.py",
        "_remembered(noted or {})",
        "_remembered({})",
        ("tests/unit/test_bad_share.py",),
    ),
    Guard(
        "ids hold no control characters",
        "streams/bronze/refusals.py",
        "if pattern is None or (pattern == NO_CONTROL_CHARACTERS and not _may_hold_controls(texts)):",
        "if pattern is None or pattern == NO_CONTROL_CHARACTERS:",
        ("tests/unit/test_rules_of_landing.py",),
    ),
    Guard(
        "an event is compared with its landing",
        "streams/bronze/parsing.py",
        "pc.min_element_wise(pc.if_else(is_dated, stamped, landed), landed)",
        "pc.if_else(is_dated, stamped, landed)",
        ("tests/unit/test_rules_of_landing.py",),
    ),
    Guard(
        "a Kafka timestamp that no table holds is refused",
        "streams/bronze/parsing.py",
        "pc.invert(is_stamped), Reason.OUT_OF_RANGE",
        "pc.is_null(is_stamped), Reason.OUT_OF_RANGE",
        ("tests/unit/test_rules_of_landing.py",),
    ),
    Guard(
        "a batch that was interrupted keeps its number and its time",
        "streams/bronze/numbering.py",
        "not self.has(batch.generation, batch.batch_id)",
        "batch",
        ("tests/component/test_landing.py", "-k", "interrupted"),
    ),
    Guard(
        "a file of bronze ends when it is large",
        "streams/bronze/landing.py",
        "if self.writer.bytes >= FILE_BYTES:",
        "if False:",
        ("tests/component/test_landing.py",),
    ),
    Guard(
        "what is parsed is bounded by bytes",
        "lake/datafiles.py",
        "if waiting_rows and waiting_bytes + size > most_bytes:",
        "if False:",
        ("tests/component/test_landing.py",),
    ),
    Guard(
        "a row group is bounded by bytes",
        "lake/datafiles.py",
        "if self.waiting_bytes >= ROW_GROUP_BYTES:",
        "if False:",
        ("tests/component/test_landing.py",),
    ),
    Guard(
        "a batch is fetched in parts",
        "streams/bronze/fetching.py",
        "if taken_bytes >= PART_BYTES or len(taken) >= PART_RECORDS:",
        "if False:",
        ("tests/integration/test_odd_records.py", "-k", "parts"),
    ),
    Guard(
        "a header's name may be any bytes",
        "kafka/headers.py",
        "except (SystemError, UnicodeDecodeError):",
        "except KeyError:",
        ("tests/integration/test_odd_records.py", "-k", "names"),
    ),
    Guard(
        "records are compared with their checksum",
        "kafka/clients.py",
        "check_crcs=True",
        "check_crcs=False",
        ("tests/integration/test_odd_records.py", "-k", "damaged"),
    ),
    Guard(
        "what the client cannot read is an error",
        "kafka/faults.py",
        "if fault.code() in PASSING or (",
        "if fault.code() < 0 or (",
        ("tests/integration/test_odd_records.py", "-k", "compression"),
    ),
    Guard(
        "what Spark does not tell as it is comes to the driver",
        "streams/bronze/landing.py",
        "            raise _Unreadable\n",
        "            pass\n",
        ("tests/integration/test_odd_records.py", "-k", "spark_changes"),
    ),
    Guard(
        "an added partition is read from its first offset",
        "engine/loss.py",
        "(dict.fromkeys(ranges, 0) | partitions)",
        "partitions",
        ("tests/component/test_loss.py",),
    ),
    Guard(
        "what a terminal obeys is shown escaped",
        "shown.py",
        'HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})',
        "HIDDEN: frozenset[str] = frozenset()",
        ("tests/unit/test_shown.py",),
    ),
    Guard(
        "a console escapes what a caller forgot",
        "terminal/console.py",
        "yield segment if segment.control else Segment(shown.lines(segment.text), segment.style)",
        "yield segment",
        ("tests/component/test_hostile_text.py", "-k", "forgot"),
    ),
    Guard(
        "data forges no line of a log",
        "engine/observability.py",
        "return shown.in_a_line(super().formatMessage(record))",
        "return super().formatMessage(record)",
        ("tests/component/test_hostile_text.py", "-k", "logs"),
    ),
    Guard(
        "data is no markup in Data Docs",
        "quality/documents.py",
        "isinstance(value, HARMLESS) else shown.inert(value)",
        "isinstance(value, HARMLESS) else value",
        ("tests/component/test_documents.py",),
    ),
    Guard(
        "a lake in a place that is not supported is refused",
        "storage/locations.py",
        "    if parts.scheme not in BUCKETS:",
        "    if False:",
        ("tests/unit/test_locations.py", "-k", "refused_by_name"),
    ),
    Guard(
        "a purchase topic that is compacted is refused",
        "kafka/policy.py",
        "if is_compacted and role == PURCHASES_ROLE",
        "if False",
        ("tests/unit/test_topic_policy.py",),
    ),
    Guard(
        "a view whose rows expire is refused",
        "kafka/policy.py",
        "    elif expires:",
        "    elif False:",
        ("tests/unit/test_topic_policy.py",),
    ),
    Guard(
        "fail points are refused in production",
        "settings.py",
        "if self.production and self.fail_points:",
        "if False:",
        ("tests/unit/test_failpoints.py",),
    ),
    Guard(
        "two passwords for Kafka are refused",
        "kafka/client_properties.py",
        "        if option in in_line and in_line[option] != given.get(name, in_line[option]):",
        "        if False:",
        ("tests/unit/test_client_properties.py",),
    ),
    Guard(
        "Kafka's settings that would be overlooked are refused",
        "kafka/client_properties.py",
        'if overlooked is not None and family.upper() not in protocol.split("_"):',
        "if False:",
        ("tests/unit/test_client_properties.py",),
    ),
    Guard(
        "a value that a client does not take is not told",
        "kafka/clients.py",
        """reason = re.sub(r'(?<=[Vv]alue )"[^"]*"', "given", error.args[0].str())""",
        "reason = error.args[0].str()",
        ("tests/unit/test_client_properties.py",),
    ),
    Guard(
        "who Kafka turns away is not told to try again",
        "kafka/faults.py",
        "    if told is not None and _is_refusal(told):\n        return refused(",
        "    if told is not None and False:\n        return refused(",
        ("tests/unit/test_kafka.py",),
    ),
    Guard(
        "verification orders records by their landing",
        "verification/oracle.py",
        "landings.setdefault(-1 if landing is None else landing, []).append(record)",
        "landings.setdefault(0, []).append(record)",
        ("tests/unit/test_oracle.py", "-k", "landed_later or first_purchase_to_land"),
    ),
    Guard(
        "verification holds landings against Kafka's order",
        "verification/order.py",
        "if number < newest:",
        "if number < newest < 0:",
        ("tests/component/test_verification_damage.py", "-k", "order"),
    ),
    Guard(
        "verification judges by the rules of a record's landing",
        "verification/order.py",
        "            return BEFORE_NUMBERS",
        "            return Place(None, landed_at, NEWEST_RULES)",
        ("tests/component/test_verification.py", "-k", "rules_that_its_landing_notes"),
    ),
    Guard(
        "verification knows totals that do not fit",
        "verification/oracle.py",
        "total if total <= GREATEST_TOTAL else None",
        "total",
        ("tests/component/test_verification.py", "-k", "freezes_the_row"),
    ),
    Guard(
        "verification knows which frozen rows were right once",
        "verification/totals.py",
        "return any(row == joined(profile, bought, self.currency) for profile in self.profiles)",
        "return True",
        ("tests/unit/test_oracle.py", "-k", "right_once"),
    ),
    Guard(
        "verification says from where on it speaks",
        "verification/landing.py",
        "in sorted(firsts.items()) if first}",
        "in sorted(firsts.items()) if not first}",
        ("tests/component/test_verification.py", "-k", "from_where_on"),
    ),
    Guard(
        "a replay follows the order of landings",
        "quarantine/replay.py",
        "    if landing is None and refused_in is None:",
        "    if landing is None or refused_in is not None:",
        ("tests/component/test_landing_order.py", "-k", "overtakes"),
    ),
    Guard(
        "a replay is a landing of its own",
        "quarantine/replay.py",
        "numbering.newest + 1",
        "numbering.newest",
        ("tests/component/test_landing_order.py", "-k", "next_landing"),
    ),
    Guard(
        "a batch after a replay has a landing of its own",
        "maintenance/replays.py",
        "                query.refresh()",
        "                pass",
        ("tests/spark/test_quarantine.py", "-k", "between_its_batches"),
    ),
    Guard(
        "a replay is made of what it judged",
        "quarantine/replay.py",
        "write_deltalake(log, rows,",
        "write_deltalake(table_path(lake, table), rows,",
        ("tests/spark/test_quarantine.py", "-k", "is_written_to_while"),
    ),
    Guard(
        "a driver that judges otherwise than whoever asks replays nothing",
        "maintenance/replays.py",
        'if request.asked["judged_by"] != _judged_by(self.settings):',
        "if False:",
        ("tests/spark/test_quarantine.py", "-k", "says_why"),
    ),
    Guard(
        "a replay does not come between two commits of a batch",
        "quarantine/replay.py",
        "_refuse_half_landed(lake, numbering, landed)\n    landing",
        "pass\n    landing",
        ("tests/component/test_landing_order.py", "-k", "between_two_commits"),
    ),
    Guard(
        "a replay is fenced by the epochs of its tables' writers",
        "quarantine/replay.py",
        "app_transactions=named_operations.epochs_of(lake, table, run.fencing_epoch),",
        "",
        ("tests/component/test_landing_order.py", "-k", "of_a_replay or taken_over"),
    ),
    Guard(
        "checksums keep transaction ids",
        "lake/checksums.py",
        '[*others, action["txn"]]',
        "others",
        ("tests/component/test_landing_order.py", "-k", "of_a_replay"),
    ),
    Guard(
        "a checksum follows from one that is not its neighbour's",
        "lake/checksums.py",
        "max(version - NEAR, -1) - 1, -1)",
        "version - 2, -1)",
        ("tests/component/test_checksums.py",),
    ),
    Guard(
        "a start looks into quarantine's history, too",
        "checkpoints/agreement.py",
        'said["version"] < oldest and _is_of(',
        "False and _is_of(",
        ("tests/component/test_agreement.py", "-k", "no_longer_is_told"),
    ),
    Guard(
        "what a history tells of a log that reaches back counts for nothing",
        "checkpoints/agreement.py",
        'said["version"] < oldest and ',
        "",
        ("tests/component/test_agreement.py", "-k", "no_longer_is_told"),
    ),
    Guard(
        "a start does not look through long logs for quarantine's rows",
        "checkpoints/agreement.py",
        "if query in topology.writers(QUARANTINE) and (what",
        "if (what",
        ("tests/component/test_agreement.py", "-k", "long_logs"),
    ),
    Guard(
        "an index that other SQL has made is made again",
        "state/index.py",
        "if objects and found != self.format:",
        "if False:",
        ("tests/component/test_index.py", "-k", "other_sql"),
    ),
    Guard(
        "an index that is not damaged stays",
        "state/index.py",
        "if not isinstance(error, OtherFormat) and not _is_damage(error):",
        "if False:",
        ("tests/component/test_index.py", "-k", "another_reason"),
    ),
    Guard(
        "an entry that was cut off is refused by name",
        "lake/layout.py",
        "        refuse_cut_off(lake)\n",
        "        pass\n",
        ("tests/component/test_power_loss.py", "-k", "cut_off"),
    ),
    Guard(
        "a compaction looks at its own files alone",
        "maintenance/maintenance.py",
        "footers.repair_commit(lake, table, log.version())",
        "footers.repair(lake, table)",
        ("tests/component/test_merged_tables.py", "-k", "own_files"),
    ),
    Guard(
        "whose the topics are is marked before anything is published",
        "streams/publish/transaction.py",
        "if self.marker is None and ours:",
        "if False:",
        ("tests/integration/test_publisher.py", "-k", "before_it_has_published"),
    ),
    Guard(
        "a log with a hole tells no table as it was",
        "lake/feeds.py",
        "if not deltalog.is_whole(lake, table, version):",
        "if False:",
        ("tests/component/test_feeds.py", "-k", "hole"),
    ),
    Guard(
        "a merge that changes no row leaves a commit",
        "lake/merging.py",
        "if target.version() == before:",
        "if False:",
        ("tests/component/test_merges.py", "-k", "no_trace"),
    ),
    Guard(
        "a replay has appended to the disk what it removes",
        "quarantine/replay.py",
        "deltalog.settle(lake, table, version)",
        "pass",
        ("tests/component/test_power_loss.py", "-k", "replay"),
    ),
    Guard(
        "a rebuild follows the order of landings",
        "rebuild/building.py",
        "ORDER BY landing NULLS FIRST, ",
        "ORDER BY ",
        ("tests/component/test_landing_order.py", "-k", "rebuild"),
    ),
    Guard(
        "a rebuild's commits say that they are the pipeline's",
        "rebuild/building.py",
        "add(lake, table, [file], said(table))",
        "add(lake, table, [file])",
        ("tests/component/test_landing_order.py", "-k", "rebuild"),
    ),
    Guard(
        "nothing begins on a lake that is corrected in part",
        "lake/delta.py",
        "    corrections.refuse_unfinished(lake)\n    layout.refuse_others(lake)\n    for folder",
        "    layout.refuse_others(lake)\n    for folder",
        ("tests/spark/test_corrections.py", "-k", "interrupted"),
    ),
    Guard(
        "a correction's commit to a table is made once",
        "rebuild/finishing.py",
        "if fence.is_in(table):",
        "if False:",
        ("tests/spark/test_corrections.py", "-k", "interrupted"),
    ),
    Guard(
        "nobody reads over what a correction has retracted",
        "lake/feeds.py",
        "(going.rows and not even_retracted)",
        "False",
        ("tests/component/test_feeds.py", "-k", "correction"),
    ),
    Guard(
        "a correction is behind the foreign commit that it puts right",
        "lake/feeds.py",
        "if refused is not None or ",
        "if ",
        ("tests/component/test_feeds.py", "-k", "refused_no_more"),
    ),
    Guard(
        "what a correction adds is not sent twice",
        "streams/publish/stream.py",
        "publisher.on_topic() if begins_before else None",
        "None",
        ("tests/component/test_publish_again.py", "-k", "correction"),
    ),
    Guard(
        "what a correction retracts is not sent",
        "streams/publish/stream.py",
        "reading.standing(reading.rows(feed, COLUMNS), corrections)",
        "reading.rows(feed, COLUMNS)",
        ("tests/component/test_publish_again.py", "-k", "never_out"),
    ),
    Guard(
        "an undoing leaves what has changed since",
        "rebuild/undoing.py",
        "AS FROM {known} EXCEPT FROM {side.name}_keys",
        "AS FROM {known}",
        ("tests/spark/test_corrections.py", "-k", "changed_since"),
    ),
    Guard(
        "a correction tells what all batches have counted",
        "quality/accounting.py",
        "if COUNTED in note), default=0)",
        "if False), default=0)",
        ("tests/spark/test_corrections.py", "-k", "alone_reaches"),
    ),
    Guard(
        "an older lake is refused",
        "lake/layout.py",
        "return self.version < CURRENT or bool(self.lacks)",
        "return False",
        ("tests/component/test_migration.py", "-k", "refused_by_name"),
    ),
    Guard(
        "a lake without a column of a contract is refused",
        "lake/layout.py",
        " or bool(self.lacks)",
        "",
        ("tests/component/test_migration.py", "-k", "without_a_column"),
    ),
    Guard(
        "a lake with a column that this release does not know is refused",
        "lake/layout.py",
        " and set(there).issubset(arrow_schema(table).names)",
        "",
        ("tests/component/test_migration.py", "-k", "without_a_column"),
    ),
    Guard(
        "a newer lake is refused",
        "lake/layout.py",
        "if one.version > CURRENT]",
        "if one.version > CURRENT + 9]",
        ("tests/component/test_migration.py", "-k", "newer"),
    ),
    Guard(
        "a migration writes checksums that an interrupted one left out",
        "operations/migration.py",
        "            finish_checksums(lake)",
        "            pass",
        ("tests/component/test_migration.py", "-k", "interrupted"),
    ),
)


def main(
    *,
    only: Annotated[list[str] | None, typer.Option(help="Guards whose name has this; may be repeated.")] = None,
) -> None:
    """Take out one guard after the other; exit 1 when one is not missed."""
    chosen = [guard for guard in GUARDS if not only or any(word in guard.name for word in only)]
    verdicts = []
    table = Table("guard", "its test without it", "s")
    with tempfile.TemporaryDirectory(prefix="guards-") as name:
        copy = Path(name)
        for guard in chosen:
            started = time.monotonic()
            verdict, words = without(guard, copy)
            verdicts.append(verdict)
            seconds = f"{time.monotonic() - started:.0f}"
            say(f"{guard.name}: {verdict} ({seconds} s) {words}")
            table.add_row(guard.name, verdict.value, seconds)
    Console().print(table)
    if any(verdict is not Verdict.RED for verdict in verdicts):
        raise typer.Exit(1)


def without(guard: Guard, copy: Path) -> tuple[Verdict, str]:
    """Run a guard's tests in a copy of the project that lacks it; return the verdict and why the tests failed."""
    for name in COPIED:
        place = copy / name
        if (PROJECT / name).is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(PROJECT / name, place, ignore=shutil.ignore_patterns("__pycache__", "target"))
        else:
            shutil.copy(PROJECT / name, place)
    for name in SHARED:
        if not (copy / name).exists():
            (copy / name).symlink_to(PROJECT / name)
    path = copy / "jobs" / "customer_activity" / guard.file
    text = path.read_text(encoding="utf-8")
    if text.count(guard.code) != 1:
        return Verdict.NOT_FOUND, f"{text.count(guard.code)} times in {guard.file}"
    path.write_text(text.replace(guard.code, guard.without), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *guard.tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "jobs")},  # drivers that the tests start must lack it, too
        capture_output=True,
        text=True,
        check=False,
    )
    words = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    if done.returncode == FAILED and words.startswith("FAILED"):
        return Verdict.RED, words
    return (Verdict.STAYED_GREEN if done.returncode == GREEN else Verdict.BROKEN), words or done.stdout[-300:]


if __name__ == "__main__":
    typer.run(main)
