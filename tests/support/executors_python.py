"""A Python as executors on other machines have it: their libraries, and neither this source tree nor its install.

It is an environment of its own whose one file names the folder of our libraries: files there that would bring the
source tree in are not read then.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

LACKING = [
    "pyspark",
    "py4j",
    "deltalake",
    "duckdb",
    "yaml",
    "pythonjsonlogger",
]  # infra/spark/environment.sh packs none


def made(folder: Path, without: str | None = None) -> Path:
    """Make it in a folder, perhaps without one of the libraries; return its interpreter."""
    home = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python3.*/site-packages")
    ours = Path(sysconfig.get_path("purelib"))
    if without is None:
        (packages / "libraries.pth").write_text(str(ours), encoding="utf-8")
    else:
        for entry in ours.iterdir():
            if not entry.name.startswith(without) and entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return home / "bin" / "python"


def with_version(python: Path, library: str, version: str) -> None:
    """Give an environment that was made without a library a copy of ours that says that it is of another version."""
    (packages,) = python.parents[1].glob("lib/python3.*/site-packages")
    shutil.copytree(Path(sysconfig.get_path("purelib")) / library, packages / library)
    with (packages / library / "__init__.py").open("a", encoding="utf-8") as module:
        module.write(f'\n__version__ = "{version}"\n')


def packed(folder: Path) -> Path:
    """Make it in a folder, and an archive of it, as `spark.archives` takes one; return that."""
    home = made(folder).parent.parent
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(home, arcname=".")
    return archive


def run(python: Path, path: Path, code: str) -> str:
    """Run code with a path to import from, and libraries away that executors lack; return what it prints."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({LACKING})); "
    line = [str(python), "-c", hidden + code]
    done = subprocess.run(line, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
