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

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.trial import say

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ("jobs", "tests", "infra", "docs", "expectations", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
SHARED = (".venv", ".jars")
GREEN, FAILED = 0, 1  # pytest's exit codes; others say that it could not run
DRILL = ("tests/drills/test_drills.py",)
MODEL = ("tests/spark/test_model.py", "--hypothesis-profile=as-found")


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


ONCE = "    if _last_batch(transaction, application) >= batch.batch_id:\n        return None\n"
MERGE_ONCE = "if not source.num_rows or (written is not None and written >= batch.batch_id):"
MARKER = "if publisher.marker and publisher.marker.table_id == table_id else -1"
AS_READ = "    transaction.readTxn().addOne(application)\n"
HELD = "        if newest.get(query) != epoch:\n            raise lost(query, epoch)\n"
READERS = "    if behind := readers_behind(lake, table, retention):\n        return Vacuumed(0, 0, behind)\n"
EARLIER_DAY = ("tests/integration/test_streams.py", "-k", "lost_checkpoint and bronze or earlier_day and summaries")

GUARDS = (
    Guard("an append is made once (drill)", "commits.py", ONCE, "", DRILL),
    Guard("an append is made once (model)", "commits.py", ONCE, "", MODEL),
    Guard("a merge is made once (drill)", "merging.py", MERGE_ONCE, "if not source.num_rows:", DRILL),
    Guard("a merge is made once (model)", "merging.py", MERGE_ONCE, "if not source.num_rows:", MODEL),
    Guard("publish goes on from its marker (drill)", "publish/stream.py", MARKER, "if False else -1", DRILL),
    Guard("publish goes on from its marker (model)", "publish/stream.py", MARKER, "if False else -1", MODEL),
    Guard(
        "gold leaves out what its state holds",
        "gold/stream.py",
        "held = state.positions",
        "held = dict.fromkeys(state.positions, -1)",
        MODEL,
    ),
    Guard(
        "gold writes a row only when it changed",
        "gold/state.py",
        "   OR profile.customer_id IS NOT NULL AND ({VALUES}) IS NOT ({BEFORE})",
        "   OR profile.customer_id IS NOT NULL",
        ("tests/spark/test_story.py", "-k", "came_back"),
    ),
    Guard(
        "a publisher fences the one before",
        "publish/transaction.py",
        "transactional_id=self.identity,",
        "transactional_id=str(id(self)),",
        ("tests/integration/test_streams.py", "-k", "fences"),
    ),
    Guard(
        "a row too large for the topic goes to quarantine",
        "publish/stream.py",
        "too_large = oversized(rows, publisher.max_bytes)",
        "too_large = oversized(rows, 2**62)",
        ("tests/spark/test_publish.py",),
    ),
    Guard(
        "publishing waits at the gate of quality",
        "queries.py",
        "        if self.query is Query.PUBLISH:\n            self._pass_gate()\n",
        "",
        ("tests/integration/test_quality.py", "-k", "held"),
    ),
    Guard(
        "a rule that could not be judged is no pass",
        "quality/judging.py",
        "    if fault := _fault(result):",
        "    if False and (fault := _fault(result)):",
        ("tests/spark/test_quality.py", "-k", "gone"),
    ),
    Guard(
        "a commit looks for a successor's epoch",
        "commits.py",
        "if _last_batch(transaction, batch.lease_id) > epoch:",
        "if False:",
        ("tests/spark/test_lease.py",),
    ),
    Guard(
        "a commit fails on a successor's that comes meanwhile",
        "commits.py",
        AS_READ,
        f'    if not application.startswith("lease"):\n    {AS_READ}',
        ("tests/spark/test_lease.py",),
    ),
    Guard(
        "a merge carries the epoch",
        "merging.py",
        "        transactions.append(Transaction(batch.lease_id, epoch))\n",
        "",
        ("tests/spark/test_lease.py",),
    ),
    Guard("a driver looks whether it was taken over from", "lease.py", HELD, "", ("tests/spark/test_lease.py",)),
    Guard("a frozen driver commits nothing (drill)", "lease.py", HELD, "", DRILL),
    Guard("an epoch on S3 is one driver's", "s3.py", ', IfNoneMatch="*"', "", ("tests/unit/test_s3_lease.py",)),
    Guard(
        "checkpoint and tables must agree",
        "application.py",
        "        recovery.check_agreement(settings.lake, queries)\n",
        "",
        EARLIER_DAY,
    ),
    Guard(
        "a recovered checkpoint repeats the newest batch",
        "checkpoints.py",
        'contents[f"commits/{batch_id - 1}"]',
        'contents[f"commits/{batch_id}"]',
        ("tests/unit/test_recovery.py",),
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
        "loss.py",
        "        if topic in noted and noted[topic] != kafka.topic_ids(settings, [topic])[topic]:\n"
        '            raise _another(topic, "its id is another one")\n',
        "",
        ("tests/integration/test_loss.py",),
    ),
    Guard(
        "silence is not the end of a topic",
        "bronze/fetching.py",
        "            elif time.monotonic() > silent_until:\n",
        "            elif time.monotonic() > silent_until and (unread := set()):\n",
        ("tests/integration/test_fetching.py", "-k", "silent"),
    ),
    Guard("VACUUM asks the readers", "maintenance.py", READERS, "", ("tests/unit/test_maintenance.py",)),
    Guard(
        "a log keeps what a reader needs",
        "maintenance.py",
        "    if needed or not gone:\n",
        "    if not gone:\n",
        ("tests/unit/test_maintenance.py",),
    ),
    Guard(
        "what leaves a log is kept in its history",
        "maintenance.py",
        "    history.keep(lake, table, commits)\n",
        "",
        ("tests/unit/test_maintenance.py",),
    ),
    Guard(
        "sums begin anew where a log no longer tells what came next",
        "gold/state.py",
        "if begins_anew(self.lake, table, held):",
        "if False:",
        ("tests/unit/test_gold_state.py",),
    ),
    Guard(
        "a compaction is no change",
        "feeds.py",
        'if action.get("add", {}).get("dataChange"):',
        'if action.get("add"):',
        ("tests/spark/test_feeds.py",),
    ),
    Guard(
        "too many bad records stop bronze",
        "bronze/bad_share.py",
        "bad > self.max_share * records",
        "False",
        ("tests/spark/test_story.py", "-k", "too_many_bad"),
    ),
    Guard(
        "fail points are refused in production",
        "settings.py",
        "if self.production and self.fail_points:",
        "if False:",
        ("tests/unit/test_failpoints.py",),
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
