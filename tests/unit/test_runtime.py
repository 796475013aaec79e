"""What rows depend on besides the code is compared: versions of libraries, and time zones as Arrow has them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from customer_activity.engine import runtime
from customer_activity.errors import EXIT_TERMINAL, EnvironmentFault, OtherRuntime

BERLIN = "Europe/Berlin"
HERE = {"release": "0a1b", "msgspec": "0.22.0", "numpy": "2.4.6", "pyarrow": "26.0.1", BERLIN: "a1b2"}


@pytest.mark.parametrize(
    ("there", "said"),
    [
        pytest.param(HERE, [], id="all alike"),
        pytest.param({**HERE, "tenacity": "9.2.1"}, [], id="more than is asked for"),
        pytest.param({**HERE, "msgspec": "0.21.1"}, ["msgspec 0.21.1 instead of 0.22.0"], id="another version"),
        pytest.param({**HERE, "pyarrow": runtime.MISSING}, ["no pyarrow"], id="a library is missing"),
        pytest.param({**HERE, BERLIN: runtime.MISSING}, [f"no time zone {BERLIN}"], id="the time zone is missing"),
        pytest.param({**HERE, "release": "2c3d"}, ["another release of the pipeline"], id="another release"),
        pytest.param({**HERE, BERLIN: "c3d4"}, [f"other offsets of the time zone {BERLIN}"], id="other offsets"),
        pytest.param(
            {},
            ["another release of the pipeline", "no msgspec", "no numpy", "no pyarrow", f"no time zone {BERLIN}"],
            id="nothing is told",
        ),
        pytest.param(
            {**HERE, "numpy": "2.0.0", BERLIN: "c3d4"},
            ["numpy 2.0.0 instead of 2.4.6", f"other offsets of the time zone {BERLIN}"],
            id="several",
        ),
    ],
)
def test_what_differs_on_an_executor_is_said(there: dict[str, str], said: list[str]) -> None:
    assert runtime.differences(HERE, there) == said


def test_the_drivers_runtime_is_told_as_text() -> None:
    here = runtime.found(BERLIN)
    assert runtime.of_text(runtime.as_text(here)) == here
    assert list(here) == [runtime.RELEASE, *runtime.LIBRARIES, BERLIN]
    assert runtime.MISSING not in here.values()


def test_a_release_is_its_modules_and_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "customer_activity"
    (package / "streams").mkdir(parents=True)
    (package / "streams" / "gold.py").write_text("one", encoding="utf-8")
    (package / "view.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(runtime, "PACKAGE", package)

    def release() -> str:
        runtime.release.cache_clear()
        return runtime.release()

    try:
        before = release()
        (package / "streams" / ".#gold.py").symlink_to("somebody@somewhere")  # as an editor does
        (package / ".mypy_cache").mkdir()
        (package / ".mypy_cache" / "gold.json").write_text("{}", encoding="utf-8")
        (package / "streams" / "gold.py~").write_text("none", encoding="utf-8")
        (package / "a.json").mkdir()
        assert release() == before
        (package / "streams" / "gold.py").write_text("two", encoding="utf-8")
        changed = release()
        (package / "streams" / "silver.py").touch()
        assert len({before, changed, release()}) == 3
    finally:
        runtime.release.cache_clear()


@pytest.mark.parametrize(
    ("variable", "refused"),
    [
        pytest.param(None, "", id="threads of the driver are told none"),
        pytest.param({}, "", id="the driver's"),
        pytest.param({"release": "a1b2"}, r"on \S+ another release of the pipeline$", id="another release"),
        pytest.param({"numpy": "1.0"}, r"on \S+ numpy \S+ instead of 1\.0$", id="another version"),
        pytest.param({BERLIN: "a1b2"}, rf"on \S+ other offsets of the time zone {BERLIN}$", id="other offsets"),
        pytest.param({"Nowhere/Land": "a1b2"}, r"on \S+ no time zone Nowhere/Land$", id="a zone that is missing"),
    ],
)
def test_a_worker_compares_itself_before_its_first_task(
    monkeypatch: pytest.MonkeyPatch, variable: dict[str, str] | None, refused: str
) -> None:
    monkeypatch.delenv(runtime.VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(runtime.VARIABLE, runtime.as_text({**runtime.found(None), **variable}))
    runtime.require_alike.cache_clear()
    try:
        if not refused:
            runtime.require_alike()
            return
        with pytest.raises(OtherRuntime) as met:
            runtime.require_alike()
    finally:
        runtime.require_alike.cache_clear()
    told = runtime.other_in(f"PythonException: Traceback …\ncustomer_activity.errors.OtherRuntime: {met.value}\n\n")
    assert told is not None
    assert (told.what, told.remedy, told.exit_code) == (met.value.what, met.value.remedy, EXIT_TERMINAL)
    assert re.search(refused, told.what)


def test_an_error_of_something_else_is_left_alone() -> None:
    assert runtime.other_in("RuntimeError: StateGone in tasks.py, line 5") is None


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        pytest.param({90_000: 3_600}, {90_001: 3_600}, id="a second later"),
        pytest.param({90_000: 3_600}, {90_000: 7_200}, id="by more"),
        pytest.param({90_000: 3_600}, {90_000: 3_600, 4_000_000_000: 0}, id="once more, in 2096"),
        pytest.param({0: 3_600}, {0: 7_200}, id="always"),
        pytest.param({}, {90_000: 3_600}, id="never, and once"),
    ],
)
def test_time_zones_that_differ_have_other_digests(
    monkeypatch: pytest.MonkeyPatch, changes: dict[int, int], others: dict[int, int]
) -> None:
    zones = {"one": changes, "the same": dict(changes), "other": others}

    def offsets(seconds: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
        found = np.zeros_like(seconds)
        for since, offset in zones[zone].items():
            found[seconds >= since] = offset
        return found

    monkeypatch.setattr(runtime, "_offsets", offsets)
    assert runtime.offsets("one") == runtime.offsets("the same") != runtime.offsets("other")


def test_time_zones_are_those_that_arrow_has() -> None:
    assert runtime.offsets("UTC") == runtime.offsets("Etc/UTC")
    assert len({runtime.offsets(zone) for zone in ("UTC", BERLIN, "Europe/London", "+01:00", "Nowhere/Land")}) == 5
    assert runtime.offsets("Nowhere/Land") == runtime.MISSING


@pytest.mark.parametrize("zone", [None, "UTC", BERLIN])
def test_a_time_zone_that_arrow_finds_is_let_pass(zone: str | None) -> None:
    runtime.require_time_zone(zone)


def test_a_time_zone_that_arrow_does_not_find_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match=r"does not find the time zone Nowhere/Land .*\n.*tzdata") as refused:
        runtime.require_time_zone("Nowhere/Land")
    assert refused.value.exit_code == EXIT_TERMINAL
