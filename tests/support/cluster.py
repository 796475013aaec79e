"""A standalone Spark cluster of this machine's own: a master and workers, as processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from support import addresses
from support.waiting import until

SPARK_CLASS = Path(sys.executable).with_name("spark-class")
MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


class Cluster(NamedTuple):
    """A cluster that runs: its master's address, its workers, and where Spark's settings are."""

    address: str
    workers: list[psutil.Process]
    conf: Path | None


def environment(conf: Path | None = None) -> dict[str, str]:
    """Return an environment with Spark's settings from a folder, as Compose gives them, or with none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "ACTIVITY_", "AWS_"))}
    given = {} if conf is None else {"SPARK_CONF_DIR": str(conf)}
    ours = sysconfig.get_path("purelib")  # an executor's Python may have other libraries
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path and path != ours)}
    return {**kept, **given, **paths, "SPARK_HOME": f"{ours}/pyspark"}


@contextmanager
def running(
    folder: Path,
    conf: Path | None = None,
    hidden: Sequence[Path] = (),
    replaced: Mapping[Path, Path] | None = None,
    workers: int = 1,
) -> Iterator[Cluster]:
    """Run a master and workers of one core each; logs and the workers' files go to a folder.

    Args:
        folder: of logs.
        conf: with Spark's settings.
        hidden: folders that are empty for the workers, as if they were other machines.
        replaced: folders in whose place the workers have others, likewise.
        workers: how many.
    """
    address = f"spark://{addresses.free()}"
    port = address.rpartition(":")[2]
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    worker = [str(SPARK_CLASS), WORKER, *common, *room, address]
    mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(path))} && " for path in hidden)
    for path, other in (replaced or {}).items():
        mounts += f"mount --bind {shlex.quote(str(other))} {shlex.quote(str(path))} && "
    if mounts:
        worker = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mounts}exec "$@"', "sh", *worker]
    lines = {
        "master": [str(SPARK_CLASS), MASTER, *common, "--port", port],
        **{f"worker-{number}": worker for number in range(workers)},
    }
    with ExitStack() as stack:
        started = []
        for name, line in lines.items():
            said = stack.enter_context((folder / f"{name}.log").open("wb"))
            part = subprocess.Popen(line, env=environment(conf), stdout=said, stderr=said)
            started.append(part)
            stack.callback(part.wait, 30)
            stack.callback(part.terminate)
        log = folder / "master.log"
        until(lambda: log.read_text(encoding="utf-8").count("Registering worker") == workers, 90)
        yield Cluster(address, [psutil.Process(part.pid) for part in started[1:]], conf)
