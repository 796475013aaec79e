"""Data Docs: a run's results as HTML pages, in a folder or below an S3 prefix.

Great Expectations writes folders; to S3 the pages go as what they are (their content type), so that a browser opens
them there. In a folder the pages of older runs stay, by their run's name, until there are more than a hundred.

Great Expectations escapes some of what it is given and puts the rest into its pages as it is. So what comes from the
data is no markup any more when it gets it.
"""

from __future__ import annotations

import copy
import mimetypes
import shutil
import tempfile
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from customer_activity import shown
from customer_activity.quality.judging import NOT_JUDGED, Judge, Judged, fault_of, is_personal, quiet
from customer_activity.quality.rules import Rule, Suite
from customer_activity.storage.filesystem import filesystem

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

KEPT_RUNS = 100
HARMLESS = (bool, int, float, Decimal, date, timedelta)  # values that are no texts
PAGES = "validations"  # Great Expectations' own folder: <suite>/<run>/<time>/<page>


def write(judge: Judge, target: str, run_id: str, at: datetime, suites: Mapping[Suite, Mapping[Rule, Judged]]) -> str:
    """Write a run's pages to a folder or `s3://bucket/prefix`, by the judge's context; return where its index is."""
    if "://" not in target:
        _render(judge, Path(target), run_id, at, suites)
        _prune(Path(target) / PAGES)
        return str(Path(target) / "index.html")
    with tempfile.TemporaryDirectory(prefix="activity-docs-") as folder:
        _render(judge, Path(folder), run_id, at, suites)
        _upload(Path(folder), target)
    return f"{target.rstrip('/')}/index.html"


def _render(
    judge: Judge, folder: Path, run_id: str, at: datetime, suites: Mapping[Suite, Mapping[Rule, Judged]]
) -> None:
    from great_expectations.core import ExpectationSuiteValidationResult  # noqa: PLC0415 - as all of it, slow to import
    from great_expectations.core.run_identifier import RunIdentifier  # noqa: PLC0415
    from great_expectations.data_context.types.resource_identifiers import (  # noqa: PLC0415
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    with quiet():
        context = judge.context
        for site in list(context.list_data_docs_sites()):
            context.delete_data_docs_site(site)
        context.add_data_docs_site("quality", _site(folder))
        run = RunIdentifier(run_name=run_id, run_time=at)
        for suite, judged in suites.items():
            results = [_harmless(rule, one.result) for rule, one in judged.items() if one.result is not None]
            if not results:
                continue
            passed = sum(bool(result.success) for result in results)
            whole = ExpectationSuiteValidationResult(
                success=passed == len(results),
                results=results,
                suite_name=suite.name.replace("/", "."),
                statistics={
                    "evaluated_expectations": len(results),
                    "successful_expectations": passed,
                    "unsuccessful_expectations": len(results) - passed,
                    "success_percent": 100 * passed / len(results),
                },
                meta={"run_id": run.to_json_dict(), "validation_time": at.isoformat()},
            )
            name = ExpectationSuiteIdentifier(name=whole.suite_name)
            key = ValidationResultIdentifier(expectation_suite_identifier=name, run_id=run, batch_identifier="pinned")
            context.validation_results_store.add(key, whole)
        context.build_data_docs(site_names=["quality"])


def _harmless(rule: Rule, result: ExpectationValidationResult) -> ExpectationValidationResult:
    """Return a result whose texts are no markup, without stack traces; nothing of what a personal column raised."""
    made = copy.deepcopy(result)
    made.result = _inert(made.result or {})
    fault = fault_of(result)
    words = shown.inert(NOT_JUDGED if is_personal(rule) else fault) if fault else None
    made.exception_info = {
        "raised_exception": bool(fault),
        "exception_message": words,
        "exception_traceback": words,
    }
    return made


def _inert(value: Any) -> Any:
    """Return a value of a result with its texts, those of unknown types included, made harmless."""
    if isinstance(value, Mapping):
        return {_inert(name): _inert(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_inert(one) for one in value]
    return value if value is None or isinstance(value, HARMLESS) else shown.inert(value)


def _site(folder: Path) -> Any:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "site_section_builders": {"expectations": "None", "profiling": "None"},
    }


def _prune(pages: Path) -> None:
    """Remove the pages of all but the newest runs; a run's name begins with its time."""
    runs = sorted({run.name for suite in pages.glob("*") for run in suite.iterdir()})
    for old in runs[:-KEPT_RUNS]:
        for folder in pages.glob(f"*/{old}"):
            shutil.rmtree(folder)


def _upload(folder: Path, target: str) -> None:
    files, root = filesystem(target.rstrip("/"))
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            place = f"{root}/{path.relative_to(folder).as_posix()}"
            with files.open_output_stream(place, metadata={"Content-Type": kind}) as stream:
                stream.write(path.read_bytes())
