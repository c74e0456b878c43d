"""What a fresh machine relies on: metadata, pinned versions, make targets, licence and citation."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import proxnas
from support.lower_bounds import lower_bounds
from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = [
    "help",
    "install",
    "search",
    "test",
    "test-all",
    "check",
    "format",
    "bench",
    "docs",
    "faults",
    "lower",
    "clean",
]
OLD = (
    "#!/bin/sh\ncase $1 in -V) echo Python 3.9.2;; esac\ncase $2 in *version_info*) exit 1;; esac\n"
)
NO_VENV = "#!/bin/sh\ncase $2 in *print*) echo python3.12-venv;; *ensurepip*) exit 1;; esac\n"

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ARGS", "PYTHON"}
    }
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_metadata() -> None:
    assert PROJECT["name"] == "proxnas"
    assert PROJECT["scripts"] == {"proxnas": "proxnas.cli.main:main"}
    assert PROJECT["requires-python"] == ">=3.11"
    assert PROJECT["license"] == "Apache-2.0"


def test_version_is_the_same_everywhere() -> None:
    try:
        installed = importlib.metadata.version("proxnas")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("proxnas is imported from its folder, not installed")
    assert installed == getattr(proxnas, "__version__", installed) == PROJECT["version"]
    assert f"version: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert PROJECT["version"] in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_pin_torch_and_every_direct_dependency() -> None:
    pinned = pins()
    assert pinned["torch"] == "2.13.0"
    assert "setuptools" in pinned  # the build backend
    wanted = PROJECT["dependencies"] + [
        each for extra in PROJECT["optional-dependencies"].values() for each in extra
    ]
    names = {normal(re.split(r"[^\w.-]", requirement)[0]) for requirement in wanted}
    assert names <= pinned.keys()


def test_every_dependency_has_a_lower_bound_that_is_not_above_the_tested_version() -> None:
    pinned = pins()
    for requirement in lower_bounds():
        name, version = requirement.split("==")
        lowest, tested = (
            [int(part) for part in text.split(".")[:3]] for text in (version, pinned[normal(name)])
        )
        assert lowest <= tested, requirement


def test_the_constraints_are_what_is_installed() -> None:
    """Of the direct dependencies: a version that is not tested any more must not stay in the
    file."""
    stale = {}
    for requirement in PROJECT["dependencies"]:
        name = normal(re.split(r"[^\w.-]", requirement)[0])
        installed = importlib.metadata.version(name).partition("+")[0]
        if installed != pins()[name]:
            stale[name] = installed
    if stale and not (ROOT / ".venv").exists():
        pytest.skip(f"not an environment made by make install: {stale}")
    assert stale == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_package_builds_and_installs_in_a_clean_venv(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "source"
    not_source = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, source, ignore=not_source)
    build = (
        "import sys; from setuptools import build_meta;"
        f" print(build_meta.build_{kind}(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    archive = tmp_path / done.stdout.splitlines()[-1]
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "venv")], check=True
    )
    python = tmp_path / "venv" / "bin" / "python"
    pip = [
        str(python),
        "-m",
        "pip",
        "-qq",
        "--disable-pip-version-check",
        "install",
        "--no-index",
        "--no-deps",
    ]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # setuptools is seen through the outer environment of this interpreter, which a build without
    # isolation may use
    env["PYTHONPATH"] = os.pathsep.join(site.getsitepackages()) if kind == "sdist" else ""
    subprocess.run(
        [*pip, "--no-build-isolation", "--force-reinstall", str(archive)],
        check=True,
        env=env,
        cwd=tmp_path,
    )
    del env["PYTHONPATH"]
    code = "import proxnas; from pathlib import Path; here = Path(proxnas.__file__)\n"
    code += "print(here, (here.parent / 'cells' / 'zoo.json').is_file())"
    said = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path, check=True
    ).stdout
    assert said.startswith(str(tmp_path / "venv")) and said.endswith("True\n")
    version = subprocess.run(
        [tmp_path / "venv" / "bin" / "proxnas", "--version"],
        capture_output=True,
        text=True,
        env=env,
    )
    assert version.stdout == f"proxnas {PROJECT['version']}\n", version.stderr


def test_package_is_typed() -> None:
    assert importlib.resources.files("proxnas").joinpath("py.typed").is_file()


@needs_make
def test_help_lists_every_target() -> None:
    done = make("help")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^  ([a-z-]+) ", done.stdout, re.MULTILINE) == TARGETS
    assert "TORCH_INDEX" in done.stdout


@needs_make
@pytest.mark.parametrize("target", TARGETS)
def test_target_can_be_made(target: str) -> None:
    done = make("--dry-run", target)
    assert done.returncode == 0, done.stderr


@needs_make
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OLD, ["Python 3.11 or newer", "Python 3.9.2", "python3-venv", "PYTHON="]),
        (NO_VENV, ["virtual environments", "apt install python3.12-venv"]),
        ("#!/bin/sh\nexit 127\n", ["Python 3.11 or newer", "does not run"]),
    ],
    ids=["too-old", "no-venv", "broken"],
)
def test_unusable_python_is_named_in_one_line(tmp_path: Path, text: str, words: list[str]) -> None:
    done = make("python", f"PYTHON={script(tmp_path / 'python3', text)}")
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(ours) == 1 and ours[0].startswith("proxnas: error: ")
    assert [word for word in words if word not in ours[0]] == []


def test_ci_runs_the_tests_by_make() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK)
    text = path.read_text()
    assert text.rstrip().endswith("make test")
    assert "chromium" in text and "export PROXNAS_REQUIRE_BROWSER=1" in text


def test_licence_is_the_whole_apache_text() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    assert "Copyright 2026 the proxnas authors" in text
    assert "[yyyy]" not in text


def test_citation_names_the_paper() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert all(re.fullmatch(r"(  )*(- )?([\w-]+:( .+)?|[\w ]+)", line) for line in lines)
    top = {line.split(":")[0] for line in lines if not line.startswith(" ")}
    assert {"cff-version", "message", "title", "authors", "license", "preferred-citation"} <= top
    paper = "\n".join(lines[lines.index("preferred-citation:") :])
    assert 'title: "Efficient Neural Architecture Search via Proximal Iterations"' in paper
    assert re.findall(r"family-names: (\w+)", paper) == ["Yao", "Xu", "Tu", "Zhu"]
