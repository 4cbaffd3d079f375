"""Places besides a terminal: development container, Binder, GitHub Actions; and what a release says of itself."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from course_lib import __version__

ROOT = Path(__file__).parents[1]
PYTHONS = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
FOR_LINUX = [re.sub(r"^.*\.venv/bin/", "", line) for line in (ROOT / "README.md").read_text().splitlines()
             if line.startswith("python -m venv") and "whl/cpu" in line]


def triggers(workflow):
    return workflow[True]  # YAML reads the key `on` as a truth value


def jobs():
    return [pytest.param(job, id=f"{name}-{key}") for name, workflow in WORKFLOWS.items()
            for key, job in workflow["jobs"].items()]


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


# --- GitHub Actions -----------------------------------------------------------------------------


@pytest.mark.parametrize("job", jobs())
def test_what_a_job_makes_is_a_target(job):
    made = [target for command in commands(job) for target in re.findall(r"^make ([a-z-]+)", command)]
    assert set(made) <= TARGETS
    assert made or commands(job) == [".ci/run"]
    assert job["steps"][0]["uses"].startswith("actions/checkout@") and job["timeout-minutes"] <= 90


def test_the_gpu_is_reached_by_hand_alone():
    """A pull request from outside must not start anything on a machine of one's own."""
    [job] = WORKFLOWS["gpu"]["jobs"].values()
    assert "self-hosted" in job["runs-on"] and set(triggers(WORKFLOWS["gpu"])) == {"workflow_dispatch"}
    assert job["env"]["COURSE_DEVICE"] == "cuda"
    assert {"make test-kernels", "make test-notebooks ARGS=--nbval-lax"} <= set(commands(job))
    others = [job for name, flow in WORKFLOWS.items() if name != "gpu" for job in flow["jobs"].values()]
    assert others and not [job for job in others if "self-hosted" in job["runs-on"]]


def test_once_a_week_the_newest_of_everything_is_tried():
    workflow = WORKFLOWS["newest"]
    [job], [schedule] = workflow["jobs"].values(), triggers(workflow)["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", schedule["cron"]), "one day of the week"
    assert workflow["permissions"] == {"contents": "read"} and "permissions" not in job, "it opens nothing"
    lines = commands(job)
    assert lines[-1] == "make test" and not [line for line in lines if "constraints" in line]
    assert [line for line in lines if re.search(r"install --upgrade --upgrade-strategy eager -e '\.\[test\]'", line)]
    assert f"touch .venv/{re.search(r'^INSTALLED := .*/(.*)$', MAKEFILE, re.M)[1]}" in lines[-2], "make brings no other"
    versions = [f"3.{minor}" for minor in range(40) if PYTHONS.contains(f"3.{minor}")]
    assert job["container"] == f"python:{versions[-1]}-bookworm"


def test_the_site_is_published_after_the_tests_and_only_where_it_is_wanted():
    jobs = WORKFLOWS["test"]["jobs"]
    publish = jobs["publish"]
    assert publish["needs"] == "test" and "needs" not in jobs["test"]
    assert "github.event_name == 'push'" in publish["if"] and "vars.PUBLISH_SITE == 'true'" in publish["if"]
    assert triggers(WORKFLOWS["test"])["push"] == {"branches": ["main"]}
    assert publish["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    [folder] = [step["with"]["path"] for step in publish["steps"] if "upload-pages" in step.get("uses", "")]
    assert folder == "build/site" and "build/" in (ROOT / ".gitignore").read_text().splitlines()
    assert publish["steps"][-1]["uses"].startswith("actions/deploy-pages@")


# --- development container and Binder -----------------------------------------------------------


def test_the_development_container_installs_as_the_readme_says():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert PYTHONS.contains(re.fullmatch(r"python:(3\.\d+)-bookworm", container["image"])[1])
    assert container["postCreateCommand"] == "make install TORCH=cpu" and "`make install`" in (
        ROOT / "README.md").read_text()
    environment, tools = container["containerEnv"], container["customizations"]["vscode"]
    assert re.search(r"^VENV \?= ", MAKEFILE, re.M), "what the container sets counts"
    assert tools["settings"]["python.defaultInterpreterPath"] == environment["VENV"] + "/bin/python"
    assert re.search(r"GOMP_SPINCOUNT \?= (\d+)", MAKEFILE)[1] == environment["GOMP_SPINCOUNT"]
    assert container["forwardPorts"] == [8888] and "ms-toolsai.jupyter" in tools["extensions"]


def test_binder_installs_as_the_readme_says_for_linux_without_a_card():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    binder = yaml.safe_load((ROOT / ".binder/environment.yml").read_text())
    assert binder["dependencies"] == environment["dependencies"][:2], "Python and pip, nothing else"
    script = ROOT / ".binder/postBuild"
    lines = [line.replace("--no-cache-dir ", "") for line in script.read_text().splitlines() if "-m pip" in line]
    assert len(FOR_LINUX) == 1 and lines == [FOR_LINUX[0], "python -m pip install -c constraints.txt -e '.[test]'"]
    assert script.read_text().startswith("#!/bin/sh\n") and "set -eu" in script.read_text()
    assert os.access(script, os.X_OK)


# --- a release ----------------------------------------------------------------------------------


def test_every_file_says_the_same_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    headings = re.findall(r"^## \[(.*?)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert citation["version"] == __version__ == headings[0][0]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d|Unreleased", date) for _, date in headings)
    assert "Unreleased" not in [date for _, date in headings[1:]], "only the newest can be waiting"
    assert ("date-released" in citation) == (headings[0][1] != "Unreleased")


def test_the_citation_names_what_is_cited():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software" and citation["message"]
    assert f"# {citation['title']}" == (ROOT / "README.md").read_text().splitlines()[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert " AND ".join(citation["license"]) == project["license"]
    assert citation["authors"] == project["authors"]


@pytest.mark.parametrize("name", [".github/RELEASE_CHECKLIST.md", "teaching/where_it_runs.md"])
def test_the_pages_speak_of_what_there_is(name):
    text = (ROOT / name).read_text()
    made = re.findall(r"\bmake ([a-z-]+)", "\n".join(re.findall(r"`[^`]+`|```.*?```", text, re.S)))
    assert made and set(made) <= TARGETS
    for path in re.findall(r"`((?:\.github|\.binder|\.devcontainer|teaching|course_lib|tests)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for workflow in re.findall(r"workflow `(\w+)`", text):
        assert workflow in WORKFLOWS
