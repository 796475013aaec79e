"""A standalone Spark cluster of this machine's own: a master and workers, as processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from support import addresses
from support.waiting import until

SPARK_CLASS = Path(sys.executable).with_name("spark-class")
HOSTS = Path("/etc/hosts")
MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


class Cluster(NamedTuple):
    """A cluster that runs.

    Attributes:
        address: of its master.
        workers: its processes.
        conf: the folder of Spark's settings.
        restart: starts the worker of a number again, which was killed.
    """

    address: str
    workers: list[psutil.Process]
    conf: Path | None
    restart: Callable[[int], None]


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
    *,
    are_apart: bool = False,
) -> Iterator[Cluster]:
    """Run a master and workers of one core each; logs and the workers' files go to a folder.

    Args:
        folder: of logs.
        conf: with Spark's settings.
        hidden: folders that are empty for the workers, as if they were other machines.
        replaced: folders in whose place the workers have others, likewise.
        workers: how many.
        are_apart: whether no worker resolves another one's name.
    """
    address = f"spark://{addresses.free()}"
    port = address.rpartition(":")[2]
    common = ["--webui-port", "0"]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    names = [f"worker-{number}" for number in range(workers)]
    hosts = dict.fromkeys(names, "127.0.0.1")
    mounted = {name: replaced or {} for name in names}
    if are_apart:
        hosts = {name: name for name in names}
        mounted = {name: {HOSTS: _hosts(folder / f"hosts-of-{name}", [name]), **mounted[name]} for name in names}
    of_master = {HOSTS: _hosts(folder / "hosts", names)} if are_apart else {}
    master = [str(SPARK_CLASS), MASTER, "--host", "127.0.0.1", *common, "--port", port]
    lines = {"master": _mounting(master, (), of_master)}
    for name in names:
        worker = [str(SPARK_CLASS), WORKER, "--host", hosts[name], *common, *room, address]
        lines[name] = _mounting(worker, hidden, mounted[name])
    log = folder / "master.log"
    for name in lines:
        (folder / f"{name}.log").unlink(missing_ok=True)  # of a cluster before it in this folder
    with ExitStack() as stack:

        def start(name: str) -> psutil.Process:
            said = stack.enter_context((folder / f"{name}.log").open("ab"))
            part = subprocess.Popen(lines[name], env=environment(conf), stdout=said, stderr=said)
            stack.callback(part.wait, 30)
            stack.callback(part.terminate)
            return psutil.Process(part.pid)

        def registered() -> int:
            return log.read_text(encoding="utf-8").count("Registering worker")

        def restart(number: int) -> None:
            before = registered()
            found.workers[number] = start(names[number])
            until(lambda: registered() > before, 90)

        start("master")
        found = Cluster(address, [start(name) for name in names], conf, restart)
        until(lambda: registered() == workers, 90)
        yield found


def _mounting(line: list[str], hidden: Sequence[Path], replaced: Mapping[Path, Path]) -> list[str]:
    """Return a command line with which a process sees empty folders, or other files, in the place of some."""
    mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(path))} && " for path in hidden)
    for path, other in replaced.items():
        mounts += f"mount --bind {shlex.quote(str(other))} {shlex.quote(str(path))} && "
    if not mounts:
        return line
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mounts}exec "$@"', "sh", *line]


def _hosts(file: Path, names: Sequence[str]) -> Path:
    """Write a hosts file that knows some names more than this machine's."""
    file.write_text("\n".join([HOSTS.read_text(encoding="utf-8"), *(f"127.0.0.1 {name}" for name in names), ""]))
    return file
