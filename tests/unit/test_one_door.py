"""What Spark and Delta do not promise to keep is used in one module, whose names `tests/spark/test_jvm.py` has."""

from __future__ import annotations

import ast

import pytest

from customer_activity.settings import PROJECT

PACKAGE = PROJECT / "jobs" / "customer_activity"
DOOR = PACKAGE / "lake" / "jvm.py"
# pyspark's way to its Java objects, and any path to a Java class of Apache's.
PRIVATE = {
    *("_jvm", "_jsc", "_jdf", "_jsparkSession", "_jschema", "_jreader", "_jwrite", "_jq", "_jsq", "_gateway"),
    *("_ensure_initialized", "apache"),
}


def private_uses(source: str) -> list[int]:
    """Return the lines that reach for Java."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in PRIVATE)
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "py4j")
        or (isinstance(node, ast.Import) and any(name.name.split(".")[0] == "py4j" for name in node.names))
    ]


def test_nothing_goes_past_the_door() -> None:
    uses = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if path != DOOR
        for line in private_uses(path.read_text(encoding="utf-8"))
    }
    assert uses == set()


@pytest.mark.parametrize(
    "source",
    [
        "spark._jvm.java.lang.System.exit(0)",
        "frame._jdf.queryExecution()",
        "view.org.apache.hadoop.fs.Path('/')",
        "from py4j.protocol import Py4JError",
        "import py4j.protocol as p",
    ],
)
def test_another_way_would_be_seen(source: str) -> None:
    assert private_uses(source) == [1]
