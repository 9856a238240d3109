"""One set of versions: the lock file, the conda environments and the project's ranges agree."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.workspace import ROOT


def name(text):
    return re.sub(r"[-_.]+", "-", text).lower()


def lock():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name(package): version for package, version in pins}


@pytest.mark.parametrize("environment", ["engine", "analysis"])
def test_conda_environments_have_the_lock_s_pins(environment):
    text = (ROOT / "envs" / f"{environment}.yaml").read_text(encoding="utf-8")
    pips = next(d["pip"] for d in yaml.safe_load(text)["dependencies"] if isinstance(d, dict))
    assert len(pips) >= 10
    for line in pips:
        package, version = line.split("==")
        assert lock()[name(package)] == version


def test_every_dependency_is_locked_within_its_range_and_says_why():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for line in wanted:
        requirement = Requirement(line)
        assert lock()[name(requirement.name)] in requirement.specifier
    unexplained = [
        line
        for before, line in zip(text.splitlines(), text.splitlines()[1:], strict=False)
        if re.match(r'  "[a-z]', line) and before.strip() in ("", "]")
    ]
    assert unexplained == []
