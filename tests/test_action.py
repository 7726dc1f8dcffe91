"""The GitHub Action: its scripts are run by bash, with stand-ins for Python and cudadoctor, and once with the real one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.report.workflow_commands import commands

ROOT = Path(__file__).parents[1]
ACTION = ROOT / ".github" / "actions" / "cudadoctor" / "action.yml"
BASH = shutil.which("bash")
EXPRESSION = re.compile(r"\$\{\{ *inputs\.([\w-]+) *\}\}")

pytestmark = pytest.mark.skipif(BASH is None, reason="no bash")


def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return loaded


def step(name: str) -> dict[str, Any]:
    return next(dict(step) for step in action()["runs"]["steps"] if step["name"] == name)


def environment(name: str, inputs: dict[str, str]) -> dict[str, str]:
    """What a runner sets for a step: its `env`, the inputs in it replaced, defaults where none is given."""
    values = {key: str(each.get("default", "")) for key, each in action()["inputs"].items()} | inputs
    return {key: EXPRESSION.sub(lambda match: values[match[1]], text) for key, text in step(name)["env"].items()}


@dataclass
class Runner:
    """A runner's folders, with executables that write down how they are called."""

    folder: Path
    calls: Path = field(init=False)
    code: int = 0

    def __post_init__(self) -> None:
        self.calls = self.folder / "calls"
        self.executable(
            "stubs/python3", f'{self.log("python3")}mkdir -p "$3/bin"; cp "{self.folder}/venv-python" "$3/bin/python"'
        )
        self.executable("venv-python", self.log("venv-python"))
        (self.folder / "temp").mkdir()

    def log(self, name: str) -> str:
        return (
            f'for each in {name} "$@"; do printf "%s\\n" "$each"; done >> {shlex.quote(str(self.calls))}; echo >> {self.calls}\n'
        )

    def executable(self, name: str, script: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{BASH}\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def cudadoctor(self, code: int) -> None:
        self.executable("temp/cudadoctor/bin/cudadoctor", f"{self.log('cudadoctor')}exit {code}")

    def real_cudadoctor(self) -> None:
        command = f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -P -m cudadoctor "$@"'
        if sys.version_info < (3, 11):
            command = command.replace(" -P ", " ")
        self.executable("temp/cudadoctor/bin/cudadoctor", command)

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """The step's script as a runner calls it; `report_format` is the input `report-format`."""
        given = {key.replace("_", "-"): value for key, value in inputs.items()}
        return subprocess.run(
            [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)["run"]],
            cwd=self.folder,
            env={
                "PATH": f"{self.folder}/stubs:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "RUNNER_TEMP": str(self.folder / "temp"),
                "GITHUB_ACTION_PATH": "/actions/cudadoctor/.github/actions/cudadoctor",
                "GITHUB_OUTPUT": str(self.folder / "output"),
                "GITHUB_WORKSPACE": str(self.folder),
                **environment(name, given),
            },
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )

    def called(self) -> list[list[str]]:
        return [call.split("\n") for call in self.calls.read_text(encoding="utf-8").strip("\n").split("\n\n")]

    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_no_input_is_pasted_into_a_script() -> None:
    for each in action()["runs"]["steps"]:
        assert "${{" not in each["run"]
        assert each["shell"] == "bash"


def test_every_input_is_described_and_used() -> None:
    used = set(EXPRESSION.findall(ACTION.read_text(encoding="utf-8")))
    assert used == set(action()["inputs"])
    assert all(each["description"] for each in action()["inputs"].values())


def test_it_installs_its_own_checkout_into_an_environment_of_its_own(runner: Runner) -> None:
    assert runner.run("Install cudadoctor").returncode == 0
    venv = f"{runner.folder}/temp/cudadoctor"
    package = "/actions/cudadoctor/.github/actions/cudadoctor/../../.."
    assert runner.called() == [
        ["python3", "-m", "venv", venv],
        ["venv-python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package],
    ]
    assert ACTION.parent.joinpath("../../..").resolve() == ROOT


def test_a_package_that_is_named_is_installed_instead(runner: Runner) -> None:
    runner.run("Install cudadoctor", package="cudadoctor==0.1.0")
    assert runner.called()[1][-1] == "cudadoctor==0.1.0"


def test_inputs_become_options(runner: Runner) -> None:
    runner.cudadoctor(code=0)
    done = runner.run(
        "Judge",
        gpus="RTX 4090\n12.0\n",
        driver="570",
        dockerfile="deploy/my Dockerfile",
        policy="gpu.toml",
        fail_on="warning",
        arguments="--ignore=CD850\n--build-arg\nCUDA=12.8.1\n",
    )
    assert done.returncode == 0
    (call,) = runner.called()
    assert call == [
        *("cudadoctor", "preflight", "--gpu=RTX 4090", "--gpu=12.0", "--driver=570", "--dockerfile=deploy/my Dockerfile"),
        *("--policy=gpu.toml", "--fail-on=warning", "--ignore=CD850", "--build-arg", "CUDA=12.8.1", "--format=github"),
    ]
    assert runner.output() == "exit-code=0\n"


@pytest.mark.parametrize("text", ["$(touch owned)", "`touch owned`", '"; touch owned; "', "'; touch owned; '", "*", "~", "--gpu"])
def test_inputs_are_data(text: str, runner: Runner) -> None:
    runner.cudadoctor(code=0)
    assert runner.run("Judge", gpus=text, arguments=text).returncode == 0
    assert runner.called() == [["cudadoctor", "preflight", f"--gpu={text}", text, "--format=github"]]
    assert not (runner.folder / "owned").exists()


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_the_step_ends_as_cudadoctor_does(code: int, runner: Runner) -> None:
    runner.cudadoctor(code)
    assert runner.run("Judge", command="check").returncode == code
    assert runner.called()[0][:2] == ["cudadoctor", "check"]
    assert runner.output() == f"exit-code={code}\n"


def test_a_report_is_written_also_where_problems_were_found(runner: Runner) -> None:
    runner.cudadoctor(code=1)
    assert runner.run("Judge", report="out/cuda.xml", report_format="junit").returncode == 1
    assert [call[-2:] for call in runner.called()] == [
        ["preflight", "--format=github"],
        ["--format=junit", "--output=out/cuda.xml"],
    ]


def test_another_command_is_refused(runner: Runner) -> None:
    runner.cudadoctor(code=0)
    done = runner.run("Judge", command="demo; rm -rf")
    assert done.returncode == 2
    assert not runner.calls.exists()
    assert commands(done.stdout)[0].name == "error"


def test_the_real_one_annotates_a_dockerfile_and_writes_sarif(runner: Runner) -> None:
    runner.real_cudadoctor()
    text = "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN apt-get install -y python3-pip\nRUN pip install torch==2.5.1+cu124\n"
    (runner.folder / "Dockerfile").write_text(text, encoding="utf-8")
    done = runner.run("Judge", gpus="RTX 5090", dockerfile="Dockerfile", report="cuda.sarif")
    assert done.returncode == 1, done.stderr
    assert commands(done.stdout)[0].properties["line"] == "3"
    assert '"startLine": 3' in (runner.folder / "cuda.sarif").read_text(encoding="utf-8")
    assert runner.output() == "exit-code=1\n"
