"""YARN as processes: a resource manager and a node manager of Hadoop's, which run what Spark submits to them.

Their jars are no part of set-up: who asks for YARN first fetches them (50 MB, once), each checked against its digest.
Hadoop's client, which they need, comes with pyspark.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from support import addresses
from support.images import PROJECT
from support.waiting import EndedEarly, until

SPARK_JARS = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pyspark" / "jars"
SETTINGS_FILE = PROJECT / "infra" / "jars" / "ivysettings.xml"
# Organisation, name, revision, SHA-256. Hadoop's jar leaves BouncyCastle out, and Java 17 has no JAXB any more.
JARS = [
    (
        "org.apache.hadoop",
        "hadoop-client-minicluster",
        "3.4.1",
        "5b90be54a39d856f237a4530e25f62aea4b67c180c73b5cfb1aff35c502b2d29",
    ),
    ("org.bouncycastle", "bcprov-jdk18on", "1.77", "dabb98c24d72c9b9f585633d1df9c5cd58d9ad373d0cd681367e6a603a495d58"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.77", "1ac7fe8efd5b2f38cdc165be5a0675734fe44808dab92707201f03a535d6f1b8"),
    ("javax.xml.bind", "jaxb-api", "2.3.1", "88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06"),
    (
        "javax.activation",
        "javax.activation-api",
        "1.2.0",
        "43fdef0b5b6ceb31b0424b208b930c74ab58fac2ceeb7b3f6fd3aeb8b5ca4393",
    ),
    ("org.bouncycastle", "bcutil-jdk18on", "1.77", "947673bcbc5a8dde2d2fa688a5b7598d0ca6e2a74a7ea30cd93f04f6b3ad68f8"),
    ("com.sun.xml.bind", "jaxb-impl", "2.3.1", "e6c9e0f1830fd5f7c30c25ecf5e2046c5668b06d304add89d2f027d5072297d0"),
    ("com.sun.xml.bind", "jaxb-core", "2.3.0.1", "d2ecba63615f317a11fb55c6468f6a9480f6411c10951d9881bafd9a9a8d0467"),
]
JAVA = shutil.which("java") or "java"
MANAGERS = {
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
# Guice makes classes at run time.
OPENED = [
    word for name in ("java.lang", "java.util", "java.io") for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")
]


def fetched(folder: Path) -> list[Path]:
    """Return the jars, which are fetched into a folder when they are not there.

    Raises:
        AssertionError: one is not what it must be.
    """
    wanted = {folder / f"{name}-{revision}.jar": digest for _, name, revision, digest in JARS}
    if not all(jar.exists() for jar in wanted):
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(folder)
    for jar, digest in wanted.items():
        assert hashlib.sha256(jar.read_bytes()).hexdigest() == digest, f"{jar} is not what it must be"
    return list(wanted)


def _fetch(folder: Path) -> None:
    """Fetch them with the Ivy that pyspark ships, as infra/jars/resolve.sh does."""
    lines = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="yarn->default" transitive="false"/>'
        for organisation, name, revision, _ in JARS
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="customer-activity" module="yarn"/><configurations>'
        f'<conf name="yarn"/></configurations><dependencies>{lines}</dependencies></ivy-module>',
        encoding="utf-8",
    )
    ivy = [JAVA, "-cp", f"{SPARK_JARS}/*", "org.apache.ivy.Main", "-settings", str(SETTINGS_FILE)]
    into = ["-ivy", str(module), "-cache", str(folder / "cache"), "-types", "jar", "bundle"]
    retrieved = ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    subprocess.run([*ivy, *into, *retrieved], check=True, capture_output=True)


@contextmanager
def running(folder: Path, jars: list[Path], *, megabytes: int = 4_096) -> Iterator[Path]:
    """Run both managers, with this much memory for containers; yield the folder of Hadoop's settings."""
    conf = folder / "hadoop"
    conf.mkdir()
    pages = _write(conf, folder, megabytes)
    names = ("hadoop-client-*", "slf4j-api-*", "log4j-*", "commons-logging-*", "jcl-over-slf4j-*")
    shipped = [jar for name in names for jar in SPARK_JARS.glob(f"{name}.jar")]
    path = ":".join(str(entry) for entry in (conf, *jars, *shipped))
    parts: list[subprocess.Popen[bytes]] = []

    def is_up() -> bool:
        if any(part.poll() is not None for part in parts):
            raise EndedEarly(f"YARN does not start: {folder} has its logs")
        return '"state":"RUNNING"' in httpx.get(f"http://{pages}/ws/v1/cluster/nodes").text

    with ExitStack() as stack:
        for name, main in MANAGERS.items():
            said = stack.enter_context((folder / f"{name}.log").open("wb"))
            part = subprocess.Popen(
                [JAVA, "-Xmx384m", *OPENED, "-cp", path, main], stdout=said, stderr=said, cwd=folder
            )
            parts.append(part)
            stack.callback(part.wait, 30)
            stack.callback(part.kill)  # one that is asked looks for the other for minutes
        until(is_up, 120)
        yield conf


def _write(conf: Path, folder: Path, megabytes: int) -> str:
    """Write Hadoop's settings; return where the resource manager's pages are."""
    named = {
        "yarn.resourcemanager": ("address", "scheduler.address", "resource-tracker.address", "admin.address"),
        "yarn.nodemanager": ("address", "localizer.address", "webapp.address"),
    }
    where = {f"{part}.{name}": addresses.free() for part, of_part in named.items() for name in of_part}
    where["yarn.resourcemanager.webapp.address"] = pages = addresses.free()
    settings = {
        **where,
        "yarn.resourcemanager.hostname": "127.0.0.1",
        # The capacity scheduler wants a file of queues.
        "yarn.resourcemanager.scheduler.class": (
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
        ),
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": str(megabytes),
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",  # a disk that is nearly full is not this test's concern
    }
    for name, of_file in {"yarn-site.xml": settings, "core-site.xml": {"fs.defaultFS": "file:///"}}.items():
        lines = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>" for key, value in of_file.items()
        )
        (conf / name).write_text(f"<configuration>{lines}</configuration>", encoding="utf-8")
    return pages
