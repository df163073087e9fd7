"""What is installed is what is in the folders, under `duly` and under no other name."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def project() -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def package_folders() -> dict[str, Path]:
    """Folder of each top package: `duly` and what is mapped below it."""
    mapping: dict[str, str] = project()["tool"]["setuptools"]["package-dir"]
    return {package: ROOT / folder for package, folder in mapping.items()}


def shipped_files() -> dict[str, Path]:
    """Every file of the package folders: its path in a wheel, and its path here."""
    files = {}
    for package, folder in package_folders().items():
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                inside = Path(*package.split("."), path.relative_to(folder))
                files[inside.as_posix()] = path
    return files


def run(*arguments: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed; Python finds only what is installed."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        arguments, cwd=cwd, env=clean, check=False, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_listed_packages_are_the_folders() -> None:
    folders = {Path(name).parent.as_posix().replace("/", ".") for name in shipped_files()}
    assert set(project()["tool"]["setuptools"]["packages"]) == folders


def test_every_package_folder_has_an_init() -> None:
    names = set(shipped_files())
    folders = {Path(name).parent.as_posix() for name in names}
    assert {folder for folder in folders if f"{folder}/__init__.py" not in names} == set()


def test_nothing_is_imported_under_a_bare_name(tmp_path: Path) -> None:
    code = """
import importlib, pkgutil, sys
import duly
for package in ("duly", "duly.nodes", "duly.actors", "duly.wheel", "duly.storage"):
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, package + "."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
ours = tuple(sys.argv[1:])
print(*sorted(
    name for name, module in sys.modules.items()
    if not name.startswith("duly") and (getattr(module, "__file__", None) or "").startswith(ours)
))
"""
    roots = [f"{folder}{os.sep}" for folder in package_folders().values()]
    assert run(sys.executable, "-P", "-c", code, *roots, cwd=tmp_path).split() == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from an sdist, with no network."""
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "duly"
    top = [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    for path in (*top, *shipped_files().values()):
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    # From elsewhere: at the top of the repository Python would take our `wheel` for the real one.
    run(sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_file_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set(shipped_files())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the wheel; its dependencies are our own, behind the wheel's copy of duly."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, system_site_packages=False, symlinks=True)
    python = place / "bin" / "python"
    paths = "\n".join(path for path in sys.path if "site-" in path)
    (site_of(place) / "dependencies.pth").write_text(paths)
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", "--quiet", wheel, cwd=place)
    return place


def site_of(place: Path) -> Path:
    """Where an environment has its packages."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(run(place / "bin" / "python", "-c", ask, cwd=place).strip())


def test_the_wheel_works_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    code = """
import duly, duly.actors, duly.nodes.embedded, duly.storage.sql, duly.wheel
for module in (duly, duly.actors, duly.nodes.embedded, duly.storage.sql, duly.wheel):
    print(module.__file__)
"""
    for file in run(installed / "bin" / "python", "-P", "-c", code, cwd=tmp_path).split():
        assert Path(file).is_relative_to(site_of(installed))


def test_the_installed_demo_runs(installed: Path, seeded_folder: Path, tmp_path: Path) -> None:
    demo = ("demo", "--count", "1", "--port", "0", "--data", seeded_folder)
    said = run(installed / "bin" / "duly", *demo, cwd=tmp_path)
    assert re.search(r"worker ran task 1, \S+ ms after its due time$", said, re.MULTILINE)


def test_the_installed_kit_tries_an_example(installed: Path, tmp_path: Path) -> None:
    """The workers in other languages: scripts/wheel_check."""
    shutil.copy(ROOT / "examples" / "workers" / "worker.py", tmp_path)
    kit = ("conformance", "--wait", "60", "--rule", "2.1", "--")
    binaries = installed / "bin"
    said = run(binaries / "duly", *kit, binaries / "python", "worker.py", cwd=tmp_path)
    assert said.splitlines()[-1].endswith(": 1 passed, 0 failed, 0 not tried")
