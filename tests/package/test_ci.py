"""What runs elsewhere and cannot be run here is at least whole: the CI workflow, the container
file."""

import re

import pytest

from conftest import SOURCE

CONTAINER = (SOURCE / "packaging/Containerfile").read_text()


@pytest.fixture(scope="module")
def workflow():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((SOURCE / ".github/workflows/ci.yml").read_text())


def test_make_test_installs_what_tests_need():
    """Else a bare Debian would skip them. systemd is left out: tools/deps.sh says why."""
    package = {"groff": "groff-base", "dpkg-shlibdeps": "dpkg-dev", "yaml": "python3-yaml"}
    needed = set()
    for file in (SOURCE / "tests/package").glob("*.py"):
        needed |= set(
            re.findall(
                r'^ *(?:\w+ = pytest\.importorskip|needs)\("([\w-]+)"\)', file.read_text(), re.M
            )
        )
    assert {"fish", "zsh", "mandoc", "file"} <= needed
    listed = (
        re.search(r'^test\) packages="([^"]*)"', (SOURCE / "tools/deps.sh").read_text(), re.M)
        .group(1)
        .split()
    )
    there = {"dpkg-deb", "systemd-analyze"}  # of every Debian; of every Debian that boots
    assert {package.get(tool, tool) for tool in needed - there} <= set(listed)


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_workflow_runs_what_people_run(workflow):
    jobs = workflow["jobs"]
    assert "make test" in commands(jobs["test"])
    assert set(jobs["sanitizers"]["strategy"]["matrix"]["job"]) == {"asan", "tsan"}
    assert "make deb" in commands(jobs["deb"])
    assert "packaging/test-deb.sh --here packages" in commands(jobs["bare"])
    for job in jobs.values():
        image = job["container"]
        assert (image if isinstance(image, str) else image["image"]) == "debian:12"
        assert job["timeout-minutes"] > 0


def test_its_make_targets_are_there(workflow):
    targets = set(re.findall(r"^([a-z]+):", (SOURCE / "Makefile").read_text(), re.M))
    named = {
        t
        for job in workflow["jobs"].values()
        for c in commands(job)
        for t in re.findall(r"^make ([a-z]+)$", c)
    }
    assert named >= {"test", "deb"} and named <= targets
    assert set(workflow["jobs"]["sanitizers"]["strategy"]["matrix"]["job"]) <= targets


def test_its_artifacts_meet(workflow):
    steps = {name: job["steps"] for name, job in workflow["jobs"].items()}
    up = {
        s["with"]["name"]: s["with"]["path"]
        for s in steps["deb"]
        if "upload-artifact" in s.get("uses", "")
    }
    down = {
        s["with"]["name"]: s["with"]["path"]
        for s in steps["bare"]
        if "download-artifact" in s.get("uses", "")
    }
    assert up == {"packages": "build/deb/packages/*.deb"} and down == {"packages": "packages"}
    assert workflow["jobs"]["bare"]["needs"] == "deb"


def test_the_container_is_careful():
    lines = [line for line in CONTAINER.splitlines() if line and not line.startswith("#")]
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    words = {line.split()[0] for line in last}
    assert {"USER", "VOLUME", "HEALTHCHECK", "EXPOSE", "ENTRYPOINT", "CMD"} <= words
    assert "USER berth" in last
    assert last.index("USER berth") > max(
        i for i, line in enumerate(last) if line.startswith("RUN ")
    )
    assert not [line for line in last if "make" in line.split()]  # no compiler in what is shipped


def test_podman_is_told_to_keep_the_health_check():
    """Its own format, OCI, has none."""
    for text in (CONTAINER, (SOURCE / "docs/install.md").read_text()):
        built = re.findall(r"podman build .*", text)
        assert built and all(" --format docker " in line for line in built)
