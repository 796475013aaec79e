"""Executors on other machines: how they get the release and its Python, and what else a cluster has to be told.

On every master the driver stays where it was started ("client mode"): whoever watches it finds its process, its files
and its lease as on one machine. Executors need three things of it. The code is sent as one zip of the very package
that the driver runs, and the jars with it; or both are there, at the driver's paths. The libraries are in a Python of
theirs. Everything else that a cluster needs to know, an operator says in a file of Spark's properties.

No key to S3 is in a property of Spark's: properties are sent to executors, kept with the application and shown.
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import re
import shlex
import socket
import sys
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from customer_activity.errors import EnvironmentFault, SettingsError
from customer_activity.kafka import properties_file
from customer_activity.settings import PACKAGE, Settings
from customer_activity.storage.filesystem import PRIVATE

PROPERTIES = "ACTIVITY_SPARK_PROPERTIES_FILE"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"  # what pyspark appends to the command line of spark-submit
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # is set where spark-submit started us, and Spark has its properties
YARN, KUBERNETES = "yarn", "k8s://"
YARN_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")  # where Spark finds a YARN cluster; it wants one of them
IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")

# A line of spark-defaults.conf; unlike Kafka's properties a name may be followed by white space alone. Spark's own file
# may have lines of others', which Spark leaves out.
LINE = re.compile(r"(?P<name>spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(?P<value>.*)", re.DOTALL)
SPARKS_LINE = re.compile(r"(?P<name>[^\s=:]*)(?P<value>.*)", re.DOTALL)
SPARKS_FILE = "spark-defaults.conf"
FORMER_FAILURES = ("spark.yarn.max.executor.failures",)  # names of spark.executor.maxNumFailures, which comes first
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
HAS_KEY = re.compile(
    rf"spark\.(executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv)\.({'|'.join(KEYS)})"
    r"|spark\.hadoop\.fs\.s3.*\.(access\.key|secret\.key|session\.token|awsAccessKeyId|awsSecretAccessKey)",
    re.IGNORECASE,
)
BY_SETTING = {
    "spark.master": "ACTIVITY_SPARK_MASTER",
    "spark.driver.memory": "ACTIVITY_DRIVER_MEMORY",
    "spark.jars": "ACTIVITY_SHIP_RELEASE",
    "spark.submit.pyFiles": "ACTIVITY_SHIP_RELEASE",
    "spark.executorEnv.PYTHONPATH": "ACTIVITY_SHIP_RELEASE",
    "spark.pyspark.python": "ACTIVITY_EXECUTOR_PYTHON",
}
# Spark runs much code a few thousand times and little code millions of times. At the JVM's own thresholds (a twentieth
# of these) its optimising compiler takes for the former a third of the processor time of a driver that starts, and half
# of that of an executor's JVM in its first batches.
OPTIMISE_LATER = (
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000"
    " -XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
)
# Room for a JVM's classes from the start: each time the default runs out, it collects garbage.
ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
# Of the pod that we are in, when we are in one.
POD_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def given(settings: Settings) -> dict[str, str]:
    """Read the operator's properties.

    Raises:
        SettingsError: the file cannot be read, a line is none of Spark's, or one would give a key to S3 away.
    """
    if settings.spark_properties_file is None:
        return {}
    found = properties_file.read(settings.spark_properties_file, PROPERTIES, LINE)
    _refuse_keys(found, PROPERTIES)
    return found


def inherited() -> set[str]:
    """Return which properties Spark's own file has, which applies below the operator's; none where there is no file.

    Raises:
        SettingsError: it cannot be read, or one would give a key to S3 away.
    """
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if folder is None or not (file := Path(folder) / SPARKS_FILE).exists():
        return set()
    found = set(properties_file.read(file, str(file), SPARKS_LINE))
    _refuse_keys(found, str(file))
    return found


def refuse_own(found: Iterable[str], own: Mapping[str, str]) -> None:
    """Make sure that an operator's properties leave alone what the pipeline sets itself.

    Raises:
        SettingsError: one does not.
    """
    if name := next((name for name in found if name in own or name in BY_SETTING), None):
        setting = BY_SETTING.get(name)
        raise SettingsError(
            f"{PROPERTIES}: {name} is the pipeline's own to set",
            remedy=f"leave it out, and use {setting}" if setting else "leave it out",
        )


def options(settings: Settings, found: Mapping[str, str]) -> dict[str, str]:
    """Return what Spark is told of its executors: how they get the release, and what a cluster needs besides.

    Args:
        settings: which master, and how executors get the release.
        found: the operator's properties.

    Raises:
        SettingsError: something is missing that this master needs.
    """
    here = {"spark.executorEnv.PYTHONPATH": str(PACKAGE.parent)}  # from this very checkout, installed or not
    if not settings.is_on_cluster:
        return here
    inherits = inherited()
    sent = {"spark.submit.pyFiles": str(release(settings.run_dir))}
    told = {"spark.submit.deployMode": "client", **(sent if settings.ship_release else here)}
    if settings.spark_master == YARN:
        _require_yarn()
    elif settings.spark_master.startswith(KUBERNETES):
        _require_image({*found, *inherits})
        # Spark would copy the files of its configuration folder into a ConfigMap. Executors are told all by the driver.
        told["spark.kubernetes.executor.disableConfigMap"] = "true"
    return told


def defaults(settings: Settings, found: Mapping[str, str]) -> dict[str, str]:
    """Return what Spark is told unless its or the operator's file says otherwise.

    When executors' JVMs compile code, how many may fail, and where a driver in a pod is.

    Args:
        settings: which master.
        found: the operator's properties.
    """
    if not settings.is_on_cluster:
        return {}
    said = {*found, *inherited()}
    here = {"spark.executor.defaultJavaOptions": f"{ROOM_FOR_CLASSES} {OPTIMISE_LATER}"}
    if not said & set(FORMER_FAILURES):
        # On YARN and Kubernetes Spark ends the application after a few of all its life, and small batches need none.
        here["spark.executor.maxNumFailures"] = str(2**31 - 1)
    account = POD_ACCOUNT / "namespace"
    if settings.spark_master.startswith(KUBERNETES) and account.exists():
        here |= {
            "spark.kubernetes.namespace": account.read_text(encoding="utf-8").strip(),
            "spark.kubernetes.driver.pod.name": socket.gethostname(),  # executors are the pod's, and end with it
        }
    return {name: value for name, value in here.items() if name not in said}


def require_own_spark() -> None:
    """Make sure that SPARK_HOME, where it is set, is a Spark of pyspark's release: pyspark starts whatever is there.

    Raises:
        EnvironmentFault: it is another one, or none.
    """
    if not (home := os.environ.get("SPARK_HOME")):
        return
    remedy = "unset it: the pipeline brings a Spark of its own"
    if not Path(home, "bin", "spark-submit").exists():
        raise EnvironmentFault(f"SPARK_HOME is {home}, and there is no Spark", remedy=remedy)
    wanted, found = version("pyspark"), [jar.stem for jar in Path(home, "jars").glob("spark-core_*.jar")]
    if found and not any(name.endswith(f"-{wanted}") for name in found):
        raise EnvironmentFault(f"SPARK_HOME is {home}, which has {found[0]}, and not Spark {wanted}", remedy=remedy)


def environment(settings: Settings) -> None:
    """Put into this process's environment what pyspark takes from there alone.

    The operator's file goes to spark-submit by its name: a secret in it (`spark.authenticate.secret`) is on no command
    line. Without an interpreter's name workers would run any python3 of the PATH.
    """
    if settings.is_on_cluster and settings.executor_python is not None:
        os.environ["PYSPARK_PYTHON"] = settings.executor_python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.spark_properties_file is not None and SUBMITTED not in os.environ:
        file = shlex.quote(str(settings.spark_properties_file))
        os.environ[SUBMIT_ARGUMENTS] = f"--properties-file {file} --load-spark-defaults pyspark-shell"


@cache
def release(folder: Path) -> Path:
    """Write the package that runs here as a zip, into a folder of its own below the one given; return its path.

    It is called after its content: executors that come later get the same, whatever starts here meanwhile. Modules are
    in it compiled, too: Python keeps nothing that it compiles from a zip, and each worker would do it again.
    """
    files = {file.relative_to(PACKAGE.parent): file for file in sorted(PACKAGE.rglob("*")) if _is_sent(file)}
    digest = hashlib.sha256(sys.version.encode())
    for name, file in files.items():
        digest.update(f"{name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    written = folder / "release" / f"customer-activity-{digest.hexdigest()[:12]}.zip"
    if not written.exists():
        written.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        with TemporaryDirectory(dir=written.parent) as made:  # whoever makes it at the same time has one, too
            part = Path(made) / written.name
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, file in files.items():
                    archive.write(file, name)
                    if file.suffix == ".py":
                        archive.write(_compiled(file, Path(made) / "compiled", str(name)), name.with_suffix(".pyc"))
            part.replace(written)
    return written


def _is_sent(file: Path) -> bool:
    return file.is_file() and file.suffix != ".pyc"


def _compiled(file: Path, to: Path, shown: str) -> Path:
    """Compile a module, so that a Python of the same version takes it without a look at its source."""
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(file), cfile=str(to), dfile=shown, doraise=True, invalidation_mode=unchecked)
    return to


def require_disk(lake: str, default: str) -> None:
    """Make sure that Spark means a folder of the machine by a path without a scheme, as everybody else here does.

    Args:
        lake: a folder.
        default: Hadoop's `fs.defaultFS`, which a cluster's core-site.xml sets.

    Raises:
        SettingsError: Spark would look for the lake elsewhere.
    """
    if not default.startswith("file:"):
        raise SettingsError(
            f"the lake {lake} is a folder, and Spark would look for it in {default}, Hadoop's fs.defaultFS",
            remedy="have the lake in a bucket; or fs.defaultFS file:/// in the core-site.xml of HADOOP_CONF_DIR",
        )


def _refuse_keys(found: Iterable[str], where: str) -> None:
    if name := next((name for name in found if HAS_KEY.fullmatch(name)), None):
        raise SettingsError(
            f"{where}: {name}: a property of Spark's is no place for a key to S3",
            remedy="give machines or pods a role; or spark.kubernetes.executor.secretKeyRef.…, which names a Secret",
        )


def _require_yarn() -> None:
    if not any(os.environ.get(name) for name in YARN_FOLDERS):
        raise SettingsError(
            f"ACTIVITY_SPARK_MASTER is {YARN}, and nothing says where the cluster is",
            remedy=f"set {YARN_FOLDERS[0]} to the folder with the cluster's core-site.xml and yarn-site.xml",
        )
    # SparkHadoopUtil takes keys from the environment, and YARN's client writes them into __spark_hadoop_conf__.xml.
    if name := next((name for name in KEYS if os.environ.get(name)), None):
        raise SettingsError(
            f"{name} is set, and Spark would write it into the files of an application on YARN",
            remedy="give the driver's machine and the cluster's a role instead",
        )


def _require_image(found: set[str]) -> None:
    if not found.intersection(IMAGES):
        raise SettingsError(
            "nothing says which image executors on Kubernetes have",
            remedy=f"name it by {IMAGES[0]} in the file of {PROPERTIES}",
        )
