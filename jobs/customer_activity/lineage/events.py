"""Make OpenLineage's events of what is told."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any

from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent, RunState
from openlineage.client.event_v2 import Job as OpenLineageJob
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    data_quality_assertions_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    parent_run,
    processing_engine_run,
)
from openlineage.client.generated.base import InputDatasetFacet

from customer_activity import shown
from customer_activity.catalog import PROGRESS_ROLE, Table
from customer_activity.lineage import datasets, facets
from customer_activity.lineage.origins import sources
from customer_activity.lineage.told import Job, Moment, Told
from customer_activity.settings import Settings
from customer_activity.topology import End, Topic

DOCUMENTED = {
    "driver": "Runs the streams of the pipeline.",
    "quality": "Judges the tables and the view topic by the rules of expectations/.",
}


def event(settings: Settings, told: Told) -> RunEvent:
    """Return the event; what never changes in a run is in its first and its last."""
    return RunEvent(
        eventType=RunState(told.moment.value),
        eventTime=told.at.isoformat(timespec="milliseconds"),
        run=Run(told.job.run_id, facets=_run_facets(told)),
        job=OpenLineageJob(told.job.namespace, told.job.name, facets=_job_facets(told)),
        inputs=[*_inputs(settings, told), *_judged(settings, told)],
        outputs=_outputs(settings, told),
    )


def _run_facets(told: Told) -> dict[str, RunFacet]:
    found: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=version_of("pyspark"), name="spark", openlineageAdapterVersion=version_of("customer-activity")
        )
    }
    if told.parents is not None:
        parent, root = told.parents
        found["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(parent.run_id),
            job=parent_run.Job(parent.namespace, parent.name),
            root=None if root is None else _root(root),
        )
    if told.progress is not None:
        found[facets.PROGRESS] = facets.ProgressFacet(batches=told.progress.batches, rows=told.progress.rows)
    if told.moment is Moment.FAIL:
        found["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=shown.in_a_line(told.error) or "it has not said why", programmingLanguage="Python"
        )
    return found


def _root(job: Job) -> parent_run.Root:
    return parent_run.Root(run=parent_run.RootRun(job.run_id), job=parent_run.RootJob(job.namespace, job.name))


def _job_facets(told: Told) -> dict[str, JobFacet]:
    processing = "BATCH" if told.kind == "quality" else "STREAMING"
    return {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType=processing, integration="CUSTOMER_ACTIVITY", jobType=told.kind.upper()
        ),
        "documentation": documentation_job.DocumentationJobFacet(
            description=told.stream.promises if told.stream is not None else DOCUMENTED[told.kind]
        ),
    }


def _inputs(settings: Settings, told: Told) -> list[InputDataset]:
    if told.stream is None or told.progress is None:
        return []
    found = []
    for end in sources(told.stream):
        of_end: dict[str, Any] = {} if told.moment is Moment.RUNNING else datasets.described(end)
        read: dict[str, InputDatasetFacet] = {}
        if isinstance(end, Topic):
            ranges = told.progress.offsets.get(settings.topics[end.role], {})
            partitions = [
                {"partition": each, "begin": begin, "end": upto} for each, (begin, upto) in sorted(ranges.items())
            ]
            if partitions:
                read[facets.OFFSETS] = facets.KafkaOffsetsFacet(partitions=partitions)
        elif end in told.progress.versions:
            after, upto = told.progress.versions[end]
            read[facets.VERSIONS] = facets.TableVersionsFacet(after=after, upto=upto)
            of_end |= datasets.version(upto)
        found.append(InputDataset(*datasets.named(settings, end), facets=of_end, inputFacets=read))
    return found


def _outputs(settings: Settings, told: Told) -> list[OutputDataset]:
    if told.stream is None or told.progress is None:
        return []
    found = []
    for write in told.stream.writes:
        end = write.target
        if _is_internal(end):
            continue
        of_end: dict[str, Any] = {}
        if told.moment is not Moment.RUNNING:
            of_end |= datasets.described(end) | datasets.column_lineage(settings, told.stream, write)
        if isinstance(end, Table) and end in told.progress.written:
            of_end |= datasets.version(told.progress.written[end])
        found.append(OutputDataset(*datasets.named(settings, end), facets=of_end))
    return found


def _is_internal(end: End) -> bool:
    """Whether it is a publisher's own note and no data."""
    return isinstance(end, Topic) and end.role == PROGRESS_ROLE


def _judged(settings: Settings, told: Told) -> list[InputDataset]:
    """Return the tables that quality judged, each with what came of its rules."""
    found = []
    for table, version in told.versions.items():
        assertions = [
            data_quality_assertions_dataset.Assertion(
                assertion=verdict.rule, success=verdict.is_passed, severity=verdict.severity
            )
            for verdict in told.verdicts
            if verdict.table is table
        ]
        judged: dict[str, InputDatasetFacet] = {
            "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions)
        }
        of_table = datasets.described(table) | datasets.version(version)
        found.append(InputDataset(*datasets.named(settings, table), facets=of_table, inputFacets=judged))
    return found
