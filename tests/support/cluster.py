"""A standalone Spark cluster of this machine's own: a master and a worker, as processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from support import addresses
from support.waiting import until

SPARK_CLASS = Path(sys.executable).with_name("spark-class")
MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


class Cluster(NamedTuple):
    """A cluster that runs: its master's address, and its worker."""

    address: str
    worker: psutil.Process


def environment(conf: Path | None = None) -> dict[str, str]:
    """Return an environment with Spark's settings from a folder, as Compose gives them, or with none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "ACTIVITY_", "AWS_"))}
    given = {} if conf is None else {"SPARK_CONF_DIR": str(conf)}
    return {**kept, **given, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def running(folder: Path, conf: Path | None = None, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Run a master and a worker of one core; logs and the worker's files go to a folder.

    Args:
        folder: of logs.
        conf: with Spark's settings.
        hidden: folders that are empty for the worker, as if it was another machine.
    """
    address = f"spark://{addresses.free()}"
    port = address.rpartition(":")[2]
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    lines = {
        "master": [str(SPARK_CLASS), MASTER, *common, "--port", port],
        "worker": [str(SPARK_CLASS), WORKER, *common, *room, address],
    }
    if hidden:
        mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(path))} && " for path in hidden)
        own = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mounts}exec "$@"', "sh"]
        lines["worker"] = [*own, *lines["worker"]]
    with ExitStack() as stack:
        started = []
        for name, line in lines.items():
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            part = subprocess.Popen(line, env=environment(conf), stdout=log, stderr=log)
            started.append(part)
            stack.callback(part.wait, 30)
            stack.callback(part.terminate)
        until(lambda: "Registering worker" in (folder / "master.log").read_text(encoding="utf-8"), 90)
        yield Cluster(address, psutil.Process(started[1].pid))
