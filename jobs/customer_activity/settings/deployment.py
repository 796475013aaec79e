"""Configuration: one frozen object, read once from `ACTIVITY_…` variables by the command line and passed down."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from customer_activity import catalog
from customer_activity.errors import SettingsError
from customer_activity.settings.analysts import OWN_KEY, Analysts
from customer_activity.settings.monitoring import Monitoring
from customer_activity.settings.pipeline import PIPELINE, PREFIX, TopicName
from customer_activity.settings.portal import PortalSettings
from customer_activity.settings.project import IS_INSTALLED, PROJECT
from customer_activity.settings.telemetry import LogsAndLineage
from customer_activity.storage import locations, s3

# Settings that name a file of secrets; no setting is one itself.
SECRETS = frozenset({"kafka_config", "mask_key_file", "portal_tokens"})

# As Spark takes them; one that it would not is refused before a JVM is started for it.
MASTER = re.compile(
    r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn"
    r"|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*|k8s://(https://)?([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?(/\S*)?"
)


def _own(folder: str) -> Callable[[dict[str, Any]], str]:
    """Return what names a pipeline's folder: two pipelines on one machine share none."""
    return lambda known: f"./var/{folder}" if known["pipeline"] == PIPELINE else f"./var/{known['pipeline']}/{folder}"


class Settings(Analysts, Monitoring, PortalSettings, LogsAndLineage):
    """Everything a deployment may change. Field `lake` is the variable `ACTIVITY_LAKE`, and so on."""

    lake: str = Field(
        default_factory=_own("lake"),
        min_length=1,
        description="Where the Delta tables and checkpoints are: a folder or s3a://bucket/prefix.",
    )
    s3_endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/]+$")] | None = Field(
        None, description="Endpoint of an S3-compatible service, such as http://minio:9000; AWS when not set."
    )
    s3_region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")] | None = Field(
        None, description="Region of the lake's bucket; AWS_REGION or the profile's when not set."
    )
    s3_path_style: bool = Field(
        False,  # noqa: FBT003
        description="Path-style addressing: the bucket is in the path, not in the host, as MinIO needs it.",
    )
    kafka_bootstrap_servers: str = Field(
        "localhost:9092", min_length=1, description="Kafka brokers, host:port, comma separated."
    )
    kafka_config: Path | None = Field(
        None, description="Java properties file with Kafka's security settings; only its path is ever shown."
    )
    purchase_topic: TopicName = Field("purchase-events", description="Topic of the purchases.")
    profile_topic: TopicName = Field("customer-profile-state", description="Topic of the profiles; compacted.")
    view_topic: TopicName = Field(
        default_factory=lambda known: f"{known['pipeline']}-view",
        description="Topic that gold is published to; compacted.",
    )
    progress_topic: TopicName = Field(
        default_factory=lambda known: f"{known['pipeline']}-progress",
        description="Topic of the publisher's progress markers; compacted.",
    )
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = Field(
        "EUR", description="The one currency of this deployment, ISO 4217."
    )
    max_bad_share: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of bad records over 10 minutes above which bronze stops; 1 disables the check.",
    )
    max_offsets_per_trigger: int = Field(2_500_000, ge=1, description="Maximum number of records in one bronze batch.")
    linger_seconds: float = Field(
        0.9,
        ge=0,
        le=60,
        description="Seconds between two rounds of the hot path while little arrives; at 400 records a second half of "
        "it. 0: the next round begins at once, which costs a core at any rate.",
    )
    gold_seconds: float = Field(
        2.0,
        gt=0,
        description="Least seconds between two merges into `gold.customer_activity`; more where a merge takes more "
        "than a fifth of them.",
    )
    merge_seconds: float = Field(
        10.0,
        gt=0,
        description="Least seconds between two batches of the other streams behind the hot path: of silver's tables of "
        "current rows, and of optional streams without a setting of their own.",
    )
    driver_memory: str = Field("2g", pattern=r"^[0-9]+[mg]$", description="Heap of the Spark driver.")
    spark_master: str = Field(
        "local[*]",
        description="Spark master to run on: `local[*]`, `spark://HOST:PORT`, `yarn` or `k8s://https://HOST:PORT`. The "
        "driver stays where it was started.",
    )
    spark_properties_file: Path | None = Field(
        None,
        description="Properties of Spark's, in the form of spark-defaults.conf, that the pipeline does not set itself: "
        "executors' number and size, the driver's address, a cluster's own. On top of Spark's spark-defaults.conf.",
    )
    executor_python: str | None = Field(
        None,
        min_length=1,
        description="Python that executors on other machines run, as they name it: a path there, or "
        "`./environment/bin/python` in an archive that `spark.archives` unpacks as `environment`; when not set, what "
        "`PYSPARK_PYTHON` says, else the driver's path.",
    )
    ship_release: bool = Field(
        True,  # noqa: FBT003
        description="Send this release's code and jars to executors on other machines. Off where they have it at the "
        "driver's paths, as with one image for both.",
    )
    placement: Literal["auto", "driver", "executors"] = Field(
        "auto",
        description="Where batches are worked on: small ones in the driver and large ones on Spark's executors, where "
        "the master has some of its own; or always the one or the other.",
    )
    local_state_gb: float | None = Field(
        None,
        ge=0,
        description="GB of local state that a stream keeps at most; when not set, 16, and 2 for silver where lake and "
        "executors are on this machine. With more it keeps none, and looks state up in the sorted runs that the lake "
        "has; with `ACTIVITY_PLACEMENT=driver` there is no limit.",
    )
    production: bool = Field(False, description="Refuse settings that are for drills (fault injection) only.")  # noqa: FBT003
    fail_points: bool = Field(
        False,  # noqa: FBT003
        description="Let drills kill the driver at a named place of a batch; refused in production.",
    )
    quality_docs: str = Field(
        default_factory=_own("quality"),
        min_length=1,
        description="Where Data Docs are written: a folder or s3://bucket/prefix.",
    )
    quality_url: Annotated[str, StringConstraints(pattern=r"^https?://\S+[^/]$")] | None = Field(
        None,
        description="URL at which the Data Docs are served; links use it. The portal's is its URL with `/data-docs`.",
    )
    run_dir: Path = Field(
        default_factory=lambda known: Path(_own("run")(known)),
        description="State, logs and locks of running processes.",
    )
    broker_dir: Path = Field(Path("./var/kafka"), description="Data of the embedded broker, which pipelines share.")
    airflow_dir: Path = Field(
        default_factory=lambda known: Path(_own("airflow")(known)),
        description="Home of the local Airflow: its database and logs.",
    )
    airflow_port: int = Field(
        8080,
        ge=1,
        le=65533,
        description="Port of the local Airflow's web UI, on loopback; the next two serve logs.",
    )
    jars_dir: Path = Field(
        Path("./.jars") if IS_INSTALLED else PROJECT / ".jars", description="Folder of the jars that set-up downloaded."
    )

    @field_validator("lake", "quality_docs")
    @classmethod
    def _supported_location(cls, location: str) -> str:
        """Make a local one absolute, so that every process and Spark mean the same folder; refuse what is neither."""
        return locations.normal(location)

    @field_validator("spark_master")
    @classmethod
    def _known_master(cls, master: str) -> str:
        if not MASTER.fullmatch(master):
            raise ValueError(
                "Spark has no such master: it is local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
            )
        return master

    @field_validator("routing_rules", "run_dir", "broker_dir", "airflow_dir", "jars_dir")
    @classmethod
    def _absolute_folder(cls, folder: Path) -> Path:
        return folder.expanduser().resolve()

    @field_validator("spark_properties_file")
    @classmethod
    def _absolute_file(cls, file: Path | None) -> Path | None:
        return None if file is None else file.expanduser().resolve()

    @model_validator(mode="after")
    def _no_drills_in_production(self) -> Self:
        if self.production and self.fail_points:
            raise ValueError("ACTIVITY_FAIL_POINTS is set, and ACTIVITY_PRODUCTION refuses it")
        return self

    @property
    def topics(self) -> dict[str, str]:
        """Topic name by role, the roles of `infra/kafka/topics.yaml`."""
        return {
            catalog.PURCHASES_ROLE: self.purchase_topic,
            catalog.PROFILES_ROLE: self.profile_topic,
            catalog.VIEW_ROLE: self.view_topic,
            catalog.PROGRESS_ROLE: self.progress_topic,
            **self.optional_topics,
        }

    @property
    def airflow_prefix(self) -> str:
        """What ids of this pipeline's DAGs and connections begin with, before an underscore."""
        return self.pipeline.replace("-", "_")

    @property
    def index_dir(self) -> Path:
        """Where the streams keep their local state: beside a lake on this machine, else with the running processes."""
        return Path(self.lake) / "_index" if self.is_local_lake else self.run_dir / "index"

    @property
    def is_on_cluster(self) -> bool:
        """Whether executors are processes of their own, on other machines as a rule."""
        return not self.spark_master.startswith("local")

    @property
    def is_local_lake(self) -> bool:
        """Whether the lake is a folder of this machine."""
        return "://" not in self.lake

    @property
    def is_on_s3(self) -> bool:
        """Whether the lake is on S3."""
        return s3.is_on(self.lake)

    @property
    def mask_key(self) -> Path | None:
        """The file with the key of masked values: the one that is set, or that of a demonstration."""
        own = self.run_dir / OWN_KEY
        return own if self.mask_key_file is None and own.is_file() else self.mask_key_file

    @property
    def present(self) -> list[str]:
        """Names of the settings that have a value: some switch an optional stream on."""
        return [name for name, value in {**dict(self), "mask_key_file": self.mask_key}.items() if value is not None]

    def s3_environment(self) -> dict[str, str]:
        """The variables that tell delta-rs and boto3 where S3 is; none where nothing of ours is there."""
        on_s3 = next((location for location in (self.lake, self.quality_docs) if s3.is_on(location)), None)
        if on_s3 is None:
            return {}
        bucket, _ = s3.place(on_s3)
        return s3.environment(self.s3_endpoint, self.s3_region, bucket, path_style=self.s3_path_style)

    def environment(self) -> dict[str, str]:
        """The variables that give a child process these very settings."""
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in self if value is not None}


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: a variable with our prefix is unknown, or a value does not fit.
    """
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for variable in sorted(v for v in environ if v.startswith(PREFIX) and v not in known):
        near = get_close_matches(variable, known, n=1)
        raise SettingsError(
            f"{variable} is not a setting",
            remedy=f"did you mean {near[0]}?" if near else "`activity doctor --settings` lists them",
        )
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        variable = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(
            f"{variable}: {re.sub('^Value error, ', '', first['msg'])}", remedy="correct it in the environment"
        ) from None
