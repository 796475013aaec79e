"""`activity doctor`: what is wrong with the machine, the set-up or the settings, and how to fix it. Changes nothing."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from customer_activity.errors import ActivityError, BrokerUnavailable, EnvironmentFault
from customer_activity.inspection import switched_off, topics
from customer_activity.kafka import clients
from customer_activity.kafka import topics as broker_topics
from customer_activity.lake import bucket, change_feeds
from customer_activity.settings import PREFIX, PROJECT, TO_GET_JARS, Settings

PYTHON = ((3, 11), (3, 14))  # at least, below: requires-python in pyproject.toml
JAVA = 17  # Spark 4 and Kafka 4.1 run on no older one
JAVA_SECONDS = 5.0
PINS = PROJECT / "infra" / "jars" / "SHA256SUMS"
FREE_BYTES = 2 * 1024**3  # tables, Kafka's log and checkpoints of the real data take 1 GB; compaction needs room, too
SET_UP = "run `make setup`"
JAR = re.compile(r"(?P<name>.+?)(_(?P<spark>\d+\.\d+)(_\d+\.\d+)?)?-(?P<version>\d[\w.]*)\.jar")


class Finding(NamedTuple):
    """What a check, by its name, found; `ok`: nothing has to be done, though `remedy` may say what could be."""

    check: str
    ok: bool
    found: str
    remedy: str


class Warned(NamedTuple):
    """What a check found that is to be known, and what could be done about it: nothing has to be."""

    found: str
    remedy: str


Check = Callable[[Settings], str | Warned]  # says what is there; what is wrong, it raises as an ActivityError


def diagnose(settings: Settings, added: Mapping[str, Check] | None = None) -> list[Finding]:
    """Make every check, and those that something optional adds; a broker that is down costs seconds, not a minute."""
    # Asked once: a broker that is down is told by the connection, within a second or two.
    is_answering = topics.is_reachable(settings) and clients.is_answering(settings)
    checks: dict[str, Check] = {
        "settings": _settings,
        "python": _python,
        "java": _java,
        "versions": _versions,
        "jars": _jars,
        "lake": _lake,
        "disk": _disk,
        "change feeds": reach_of_change_feeds,
        "streams that are off": _off,
        **(added or {}),  # before the broker: why it does not answer is the better remedy
        "broker": partial(_broker, is_answering=is_answering),
        "topics": partial(_topics, is_answering=is_answering),
    }
    return [_finding(name, check, settings) for name, check in checks.items()]


def _finding(name: str, check: Check, settings: Settings) -> Finding:
    try:
        found = check(settings)
        words = found if isinstance(found, Warned) else Warned(found, "")
        return Finding(name, ok=True, found=words.found, remedy=words.remedy)
    except ActivityError as error:
        return Finding(name, ok=False, found=error.what, remedy=error.remedy)


def _settings(settings: Settings) -> str:
    """Values were checked when they were read; here, what they say together."""
    clients.security(settings)
    broker_topics.declared(settings)
    changed = sorted(f"{PREFIX}{name.upper()}" for name in settings.model_fields_set)
    return f"valid; not default: {', '.join(changed)}" if changed else "valid; all default"


def _python(_: Settings) -> str:
    least, below = PYTHON
    found = ".".join(str(part) for part in sys.version_info[:3])
    if not least <= sys.version_info[:2] < below:
        raise EnvironmentFault(
            found, remedy=f"use Python 3.{least[1]} to 3.{below[1] - 1}: remove .venv, then {SET_UP}"
        )
    return found


def _java(_: Settings) -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(f"{home}/bin/java" if home else "java")
    remedy = f"install Java {JAVA} or later; put it on the PATH or set JAVA_HOME"
    if program is None:
        raise EnvironmentFault(f"none in JAVA_HOME={home}" if home else "none on the PATH", remedy=remedy)
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark would run
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"{program} does not run: {type(error).__name__}", remedy=remedy) from None
    version = re.search(r'version "((\d+)[^"]*)"', answer.stderr + answer.stdout)
    if version is None:
        raise EnvironmentFault(f"{program} does not print its version", remedy=remedy)
    if int(version[2]) < JAVA:  # Java 8 calls itself 1.8
        raise EnvironmentFault(f"{program} is Java {version[1]}", remedy=remedy)
    return f"{version[1]} ({program})"


def _versions(settings: Settings) -> str:
    """Python packages and jars must be of one release: Spark refuses nothing at start, it fails in the middle."""
    try:
        spark, delta = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        raise EnvironmentFault(f"the package {error.name} is not installed", remedy=SET_UP) from None
    found = {
        jar["name"]: jar for path in (settings.jars_dir / "spark").glob("*.jar") if (jar := JAR.fullmatch(path.name))
    }
    if "delta-spark" not in found or "spark-sql-kafka-0-10" not in found:
        raise EnvironmentFault(
            f"Delta's or Kafka's jar for Spark is not in {settings.jars_dir / 'spark'}", remedy=TO_GET_JARS
        )
    line = ".".join(spark.split(".")[:2])
    jar = found["delta-spark"]
    connector = found["spark-sql-kafka-0-10"]["version"]
    if jar["version"] != delta or jar["spark"] != line:
        raise EnvironmentFault(
            f"delta-spark is {delta} for pyspark {spark}, its jar is {jar['version']} for Spark {jar['spark']}",
            remedy=f"pin one release in pyproject.toml and infra/jars/ivy.xml, then {SET_UP}",
        )
    if not connector.startswith(f"{line}."):
        raise EnvironmentFault(
            f"pyspark is {spark}, Kafka's connector {connector}",
            remedy=f"pin one release in pyproject.toml and infra/jars/ivy.xml, then {SET_UP}",
        )
    return f"pyspark {spark}, delta-spark {delta}, Kafka connector {connector}"


def _jars(settings: Settings) -> str:
    """Exactly the jars that are pinned, each with the pinned content."""
    if not PINS.exists():
        raise EnvironmentFault(
            f"no list of checksums: {PINS}", remedy="run from a whole source tree, or install the wheel"
        )
    pins = {name: digest for digest, name in (line.split() for line in PINS.read_text(encoding="utf-8").splitlines())}
    folders = ("spark", "s3", "broker")
    present = {
        f"{folder}/{path.name}": path for folder in folders for path in (settings.jars_dir / folder).glob("*.jar")
    }
    if wrong := [
        *(f"{name} is missing" for name in sorted(pins.keys() - present.keys())),
        *(f"{name} is not listed" for name in sorted(present.keys() - pins.keys())),
        *(
            f"{name} has other content"
            for name in sorted(pins.keys() & present.keys())
            if _digest(present[name]) != pins[name]
        ),
    ]:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise EnvironmentFault(f"{settings.jars_dir}: {wrong[0]}{more}", remedy=TO_GET_JARS)
    if not [*(settings.jars_dir / "own").glob("*.jar")]:  # compiled here: no checksum to know it by
        raise EnvironmentFault(f"{settings.jars_dir}: the classes of infra/spark are missing", remedy=TO_GET_JARS)
    return f"{len(pins)} jars in {settings.jars_dir}, all as infra/jars/SHA256SUMS says"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lake(settings: Settings) -> str:
    if settings.is_on_s3:
        traits = bucket.check(settings)
        if wrong := [f"{trait.trait}: {trait.found}" for trait in traits if not trait.ok]:
            raise EnvironmentFault(f"{settings.lake}: {'; '.join(wrong)}", remedy=bucket.TO_CREATE)
        return f"{settings.lake}: {', '.join(trait.found for trait in traits[1:])}"
    folder = _existing(Path(settings.lake))
    try:
        with tempfile.TemporaryFile(dir=folder):
            return f"{settings.lake} is writable"
    except OSError as error:
        raise EnvironmentFault(
            f"{folder}: {error.strerror}",
            remedy="make it a folder that this user may write, or set ACTIVITY_LAKE to another",
        ) from None


def _disk(settings: Settings) -> str:
    """Least free disk among the places that grow."""
    places = [settings.broker_dir, settings.run_dir, *([Path(settings.lake)] if settings.is_local_lake else [])]
    free, place = min((shutil.disk_usage(_existing(place)).free, place) for place in places)
    found = f"{free / 1024**3:.1f} GiB free at {place}"
    if free < FREE_BYTES:
        raise EnvironmentFault(
            found, remedy=f"free some disk space: less than {FREE_BYTES // 1024**3} GiB is too little for the real data"
        )
    return found


def reach_of_change_feeds(settings: Settings) -> str | Warned:
    """Say whether readers outside the pipeline can read as far back as they are promised."""
    try:
        reaches, now = change_feeds.reaches(settings), datetime.now(UTC)
    except OSError as error:
        raise EnvironmentFault(f"not seen: {type(error).__name__}", remedy="fix the lake first") from None
    kept = f"{settings.change_feed_hours:g} h"
    short = [
        f"{reach.table} from version {reach.first} ({round((now - reach.since) / timedelta(hours=1))} h)"
        for reach in reaches
        if not reach.is_kept(now)
    ]
    if short:
        return Warned(
            f"from now on {kept}, and not yet that far back: {', '.join(short)}",
            "nothing has to be done; a reader that is further behind reads the table as a whole, and goes on from its "
            "version",
        )
    return f"{len(reaches)} of gold reach back {kept}, or to their first version"


def _off(settings: Settings) -> str | Warned:
    try:
        idle = switched_off.idle(settings)
    except OSError as error:
        raise EnvironmentFault(f"not seen: {type(error).__name__}", remedy="fix the lake first") from None
    if idle:
        return Warned("; ".join(each.what for each in idle), switched_off.remedy(idle))
    return "none of them has written before"


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists: where it would be made."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _broker(settings: Settings, *, is_answering: bool) -> str:
    if not is_answering:
        if topics.is_reachable(settings):
            with suppress(BrokerUnavailable):  # said better below
                clients.metadata(settings, seconds=1.0)  # says why, where this client is refused
        local = clients.is_on_this_machine(settings)
        start = "start it: `activity broker start`" if local else "see whether the cluster is up"
        raise EnvironmentFault(
            f"no answer from Kafka at {settings.kafka_bootstrap_servers}",
            remedy=f"{start}, or correct ACTIVITY_KAFKA_BOOTSTRAP_SERVERS",
        )
    return f"answers at {settings.kafka_bootstrap_servers}"


def _topics(settings: Settings, *, is_answering: bool) -> str | Warned:
    if not is_answering:
        raise EnvironmentFault("not seen: the broker does not answer", remedy="fix the broker first")
    names = [topic.name for topic in broker_topics.declared(settings).values()]
    words = f"{', '.join(names)} can be used"
    if warning := broker_topics.warning(settings):
        return Warned(f"{words}; {warning}", "nothing has to be done; longer retention reaches further back")
    return words
