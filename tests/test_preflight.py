"""Preflight over unpacked images and over this machine's files: what would run on GPUs that are not here."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.cli import app
from cudadoctor.exit_codes import ExitCode
from cudadoctor.preflight_judgement import ABOUT_COMPILING, ALSO_WITHOUT_ONE, FOR_BUILDERS, NEEDS_A_LIVE_MACHINE, preflight_rules
from cudadoctor.rules.registry import RULES
from tests.fakes.roots import fill
from tests.fakes.stub_torch import StubTorch, add_distribution, make_environment, write_stub_torch

SAMPLES = Path(__file__).parent / "binary" / "data" / "samples.zip"
SITE = "usr/local/lib/python3.11/site-packages"
OS_RELEASE = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n'


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real libraries with GPU code: plain.so (8.0, 9.0a, PTX 9.0), lz4.so (8.9), compressed.so (7.5, 12.0)."""
    folder = tmp_path_factory.mktemp("samples")
    with zipfile.ZipFile(SAMPLES) as file:
        file.extractall(folder)
    return folder


@dataclass(frozen=True)
class Done:
    """How a command ended and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The report that it printed as JSON."""
        assert self.code in (ExitCode.OK, ExitCode.PROBLEMS, ExitCode.UNDETERMINED), self.stderr
        document: dict[str, Any] = json.loads(self.stdout)
        return document


class Shell:
    """Runs `cudadoctor preflight` in this process, in a folder and an environment of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._patch = patch
        self._capture = capture
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)

    def variables(self, **values: str) -> None:
        for name, value in values.items():
            self._patch.setenv(name, value)

    def run(self, *arguments: str) -> Done:
        self._capture.readouterr()
        code = app(["preflight", *arguments], standalone_mode=False)
        printed = self._capture.readouterr()
        return Done(code, printed.out, printed.err)

    def report(self, *arguments: str) -> dict[str, Any]:
        return self.run(*arguments, "--format", "json").document


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def serious(document: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["severity"] for each in document["findings"] if each["severity"] != "note"}


@dataclass(frozen=True)
class Image:
    """An unpacked image, what it is judged for, and every error and warning that is right."""

    label: str
    problems: Mapping[str, str]
    torch: StubTorch | None = None
    torch_code: str = ""
    """Which sample stands for libtorch_cuda.so."""
    extension: str = ""
    """Which sample stands for an extension's library."""
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ("--gpu", "RTX 4090", "--driver", "580")
    variables: tuple[str, ...] = ()
    stub: str = ""
    """The name of a library in the toolkit's folder of stubs."""


CUDA_124 = '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'
TOOLKIT: Mapping[str, str | bytes | None] = {
    "/usr/local/cuda-12.4/version.json": CUDA_124,
    "/usr/local/cuda-12.4/bin/nvcc": b"\x7fELF",
    "/usr/local/cuda-12.4/bin/ptxas": b"\x7fELF",
    "/usr/local/cuda-12.4/bin/cudafe++": b"\x7fELF",
    "/usr/local/cuda-12.4/nvvm/bin/cicc": b"\x7fELF",
    "/usr/local/cuda-12.4/include/cuda_runtime.h": "",
    "/usr/local/cuda-12.4/include/crt/host_config.h": "",
}
STUBS = "/usr/local/cuda-12.4/lib64/stubs"
IMAGES = (
    Image("an image without anything of CUDA", {}),
    Image("a torch that fits", {}, StubTorch("2.5.1+cu124", "12.4"), "plain.so"),
    Image(
        "a torch whose binaries lack the GPU",
        {"arch-missing-in-wheel": "error"},
        StubTorch("2.5.1+cu124", "12.4"),
        "compressed.so",
        arguments=("--gpu", "V100", "--driver", "580"),
    ),
    Image(
        "the binaries count more than the table of its version",
        {},
        StubTorch("2.5.1+cu124", "12.4"),
        "compressed.so",
        arguments=("--gpu", "RTX 5090", "--driver", "580"),
    ),
    Image(
        "a CUDA major above the driver's",
        {"driver-too-old": "error"},
        StubTorch("2.9.1+cu130", "13.0"),
        "plain.so",
        arguments=("--gpu", "RTX 4090", "--driver", "550"),
    ),
    Image("a CPU build", {"cpu-only-torch": "error"}, StubTorch("2.5.1+cpu")),
    Image(
        "an extension whose library lacks the GPU",
        {"extension-arch-missing": "error"},
        StubTorch("2.9.1+cu130", "13.0"),
        "compressed.so",
        "lz4.so",
        arguments=("--gpu", "RTX 5090", "--driver", "580"),
    ),
    Image("an extension that fits", {}, StubTorch("2.9.1+cu130", "13.0"), "plain.so", "lz4.so"),
    Image(
        "a toolkit that is too old for the GPU",
        {"toolkit-too-old": "warning"},
        files=TOOLKIT,
        arguments=("--gpu", "RTX 5090", "--driver", "580"),
    ),
    Image(
        "the same where an extension is to be built",
        {"toolkit-too-old": "error", "arch-list-empty-no-gpu": "error"},
        files=TOOLKIT,
        arguments=("--gpu", "RTX 5090", "--driver", "580", "--build"),
    ),
    Image(
        "no compiler where an extension is to be built",
        {"nvcc-missing": "error"},
        StubTorch("2.5.1+cu124", "12.4"),
        "plain.so",
        arguments=("--gpu", "RTX 4090", "--build"),
        variables=("TORCH_CUDA_ARCH_LIST=8.9",),
    ),
    Image(
        "stubs on the loader's path",
        {"stub-on-library-path": "warning"},
        files=TOOLKIT,
        stub="libcuda.so",
        variables=(f"LD_LIBRARY_PATH={STUBS}",),
    ),
    Image(
        "a stub that is called libcuda.so.1",
        {"stub-libcuda": "error"},
        files=TOOLKIT,
        stub="libcuda.so.1",
        variables=(f"LD_LIBRARY_PATH={STUBS}",),
    ),
    Image(
        "cuda-compat on the loader's path, for a GeForce",
        {"cuda-compat-in-image": "error"},
        files={"/usr/local/cuda-12.8/compat/libcuda.so.1": b"\x7fELF"},
        arguments=("--gpu", "RTX 4090", "--driver", "535"),
        variables=("LD_LIBRARY_PATH=/usr/local/cuda-12.8/compat",),
    ),
    Image(
        "a demand that the driver does not meet",
        {"container-require-unsatisfied": "error"},
        variables=("NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=tesla,driver>=535,driver<536",),
        arguments=("--gpu", "RTX 4090", "--driver", "550"),
    ),
    Image(
        "a triton whose ptxas does not know the GPU",
        {"ptxas-too-old": "warning"},
        StubTorch("2.5.1+cu124", "12.4"),
        "compressed.so",
        files={f"/{SITE}/triton-3.1.0.dist-info/METADATA": "Name: triton\nVersion: 3.1.0\n"},
        arguments=("--gpu", "RTX 5090", "--driver", "580"),
    ),
)


def unpack(folder: Path, image: Image, samples: Path) -> Path:
    """The image as a folder."""
    root = folder / "image"
    links = {"/usr/local/cuda": "cuda-12.4"} if image.files is TOOLKIT else {}
    fill(root, {"/etc/os-release": OS_RELEASE, "/lib64/ld-linux-x86-64.so.2": "", **image.files}, {**links, **image.links})
    for path in root.rglob("bin/*"):
        path.chmod(0o755)
    if image.stub:
        fill(root, {f"{STUBS}/{image.stub}": (samples / "plain.so").read_bytes()})
    if image.torch is not None:
        write_stub_torch(root / SITE, image.torch)
    if image.torch_code and image.torch is not None:
        runtime = f"libcudart.so.{(image.torch.cuda or '').partition('.')[0]}"
        code = (samples / image.torch_code).read_bytes().replace(b"libcudart.so.13", runtime.encode())
        library = (samples / "plain.so").read_bytes().replace(b"libcudart.so.13", b"libc.so.6".ljust(15, b"\0"))
        fill(root, {f"/{SITE}/torch/lib/libtorch_cuda.so": code, f"/usr/lib/x86_64-linux-gnu/{runtime}": library})
    if image.extension:
        add_distribution(root / SITE, "flash-attn", "2.7.0")
        record = "flash_attn/lib.so,,\n"
        fill(root, {f"/{SITE}/flash_attn-2.7.0.dist-info/RECORD": record})
        fill(root, {f"/{SITE}/flash_attn/lib.so": (samples / image.extension).read_bytes()})
    return root


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.label)
def test_an_unpacked_image_is_judged_by_its_files(shell: Shell, tmp_path: Path, samples: Path, image: Image) -> None:
    root = unpack(tmp_path, image, samples)
    variables = [word for variable in image.variables for word in ("--env", variable)]
    document = shell.report("--root", str(root), *image.arguments, *variables)
    assert serious(document) == image.problems
    assert document["verdict"] == ("problems" if "error" in image.problems.values() else "healthy")


def test_nothing_of_an_image_is_executed_and_nothing_of_this_machine_is_judged(shell: Shell, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    root = fill(tmp_path / "image", {"/etc/os-release": OS_RELEASE, **TOOLKIT})
    for name in ("usr/bin/python3", "usr/local/cuda-12.4/bin/nvcc", "usr/bin/nvidia-smi", "usr/bin/gcc", "usr/bin/g++"):
        write_program(root / name, f"#!/bin/sh\necho run >> {mark}\n")
    elsewhere = tmp_path / "here"
    for name in ("nvidia-smi", "nvcc"):
        write_program(elsewhere / name, f"#!/bin/sh\necho run >> {mark}\n")
    shell.variables(
        PATH=f"{elsewhere}:{os.environ['PATH']}", LD_LIBRARY_PATH="/opt/of/this/machine", CUDA_HOME="/opt/cuda-of-here"
    )
    document = shell.report("--root", str(root), "--gpu", "RTX 4090")
    assert not mark.exists()
    snapshot = document["snapshot"]
    assert [kit["root"] for kit in snapshot["toolkits"]["value"]] == ["/usr/local/cuda-12.4"]
    assert "of/this/machine" not in json.dumps(document) and "cuda-of-here" not in json.dumps(document)
    assert snapshot["driver"]["nvml"]["reason"] == "not_applicable"


def test_links_of_an_image_do_not_lead_out_of_it(shell: Shell, tmp_path: Path, samples: Path) -> None:
    outside = tmp_path / "outside"
    fill(outside, {"/lib/libtorch_cuda.so": (samples / "lz4.so").read_bytes()})
    root = unpack(tmp_path, Image("", {}, StubTorch("2.5.1+cu124", "12.4")), samples)
    (root / SITE / "torch" / "lib").symlink_to(outside / "lib")
    (root / SITE / "extension").symlink_to(outside)
    document = shell.report("--root", str(root), "--gpu", "V100", "--driver", "580")
    assert serious(document) == {}  # the table's list for 2.5.1+cu124 has sm_70; the file outside has only sm_89
    assert "lz4" not in json.dumps(document)


def test_the_environment_of_an_oci_bundle_is_read(shell: Shell, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    config = {"process": {"env": ["PATH=/usr/bin", "NVIDIA_REQUIRE_CUDA=cuda>=13.0"]}}
    fill(bundle, {"/config.json": json.dumps(config), "/rootfs/etc/os-release": OS_RELEASE})
    document = shell.report("--root", str(bundle), "--gpu", "RTX 4090", "--driver", "550")
    assert serious(document) == {"container-require-unsatisfied": "error"}
    assert document["snapshot"]["host"]["os_id"]["value"] == "ubuntu"


def test_the_environment_of_a_singularity_sandbox_is_read(shell: Shell, tmp_path: Path) -> None:
    text = (
        'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-"/usr/local/cuda/compat"}"\nexport CUDA_VERSION="${CUDA_VERSION:-"12.8.1"}"\n'
    )
    root = fill(tmp_path / "sandbox", {"/.singularity.d/env/10-docker2singularity.sh": text})
    document = shell.report("--root", str(root), "--gpu", "RTX 4090", "--driver", "535")
    assert serious(document) == {"cuda-compat-in-image": "error"}


@pytest.mark.parametrize("content", ["{", "[]", '{"process": {"env": 3}}', '{"process": {"env": [3]}}', "[" * 100_000])
def test_a_bundle_configuration_that_is_none_says_nothing(shell: Shell, tmp_path: Path, content: str) -> None:
    bundle = fill(tmp_path / "bundle", {"/config.json": content, "/rootfs/etc/os-release": OS_RELEASE})
    assert serious(shell.report("--root", str(bundle), "--gpu", "RTX 4090", "--driver", "550")) == {}


# This machine


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment whose torch says that it finds no driver, as in a Docker build."""
    torch = StubTorch(
        "2.5.1+cu124", "12.4", ("sm_80", "sm_86", "sm_90"), is_available=False, cuda_error="Found no NVIDIA driver on your system"
    )
    return make_environment(tmp_path / "venv", torch)


def test_a_machine_without_a_gpu_is_judged_for_one_elsewhere(shell: Shell, tmp_path: Path, venv: Path) -> None:
    mark = tmp_path / "mark"
    write_program(tmp_path / "bin" / "nvidia-smi", f"#!/bin/sh\necho run >> {mark}\nsleep 60\n")
    shell.variables(PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", CUDA_VISIBLE_DEVICES="7", CUDA_HOME="", LD_LIBRARY_PATH="")
    good = shell.report("--python", str(venv), "--gpu", "RTX 4090", "--driver", "550")
    assert "error" not in serious(good).values()
    assert not mark.exists()
    assert good["snapshot"]["environment"]["value"]["CUDA_VISIBLE_DEVICES"] == "7"
    bad = shell.report("--python", str(venv), "--gpu", "RTX 4090", "--gpu", "12.0", "--driver", "470")
    assert {"arch-missing-in-wheel": "error", "driver-too-old": "error"}.items() <= serious(bad).items()
    assert "no-nvidia-gpu" not in serious(bad)


def test_without_gpu_and_driver_what_is_installed_is_judged_against_itself(shell: Shell, venv: Path) -> None:
    shell.variables(PATH="/usr/bin:/bin", CUDA_HOME="", LD_LIBRARY_PATH="")
    done = shell.run("--python", str(venv))
    assert done.code == ExitCode.OK, done.stdout
    assert "Judged against itself" in done.stdout


def test_the_report_names_what_was_judged_for(shell: Shell, tmp_path: Path) -> None:
    done = shell.run("--root", str(fill(tmp_path / "i", {})), "--gpu", "RTX 4090", "--gpu", "12.0", "--driver", "550")
    text = " ".join(done.stdout.split())
    assert "Judged for RTX 4090 (8.9), 12.0, driver 550." in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "RTX"), "several compute capabilities"),
        (("--gpu", "Voodoo 2"), "no GPU is called"),
        (("--gpu", "8.8888"), "8.8888"),
        (("--driver", "new"), "new"),
        (("--root", "/no/such/folder"), "is no folder"),
        (("--dockerfile", "/no/such/file"), "No such file"),
        (("--dockerfile", "/"), "not a regular file"),
        (("--root", "/", "--dockerfile", "x"), "different things"),
        (("--stage", "x"), "--dockerfile"),
        (("--build-arg", "A=1"), "--dockerfile"),
        (("--env", "A=1"), "--root"),
        (("--root", "/", "--env", "A"), "NAME=VALUE"),
        (("--select", "no-such-rule"), "no-such-rule"),
        (("--require", "colour>=8"), "colour"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_ends_with_2_and_says_why(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    done = shell.run(*arguments)
    assert done.code == ExitCode.USAGE
    assert done.stdout == ""
    assert words in done.stderr


def test_a_dockerfile_from_the_command_line(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("ARG TAG=cpu\nFROM python:3.12\nARG TAG\nRUN pip install torch==2.6.0+$TAG\n")
    assert shell.run("--dockerfile", str(path), "--gpu", "4090", "--build-arg", "TAG=cu124").code == ExitCode.OK
    document = shell.report("--dockerfile", str(path), "--gpu", "4090")
    (finding,) = [each for each in document["findings"] if each["severity"] == "error"]
    assert finding["name"] == "cpu-only-torch"
    assert {"Dockerfile"} == {each["source"] for each in finding["evidence"]}
    assert {4} == {each["line"] for each in finding["evidence"]}
    unknown = tmp_path / "unknown"
    unknown.write_text("FROM team/app:1\n")
    assert shell.run("--dockerfile", str(unknown), "--gpu", "4090").code == ExitCode.UNDETERMINED


# Which rules are asked


def test_the_names_in_the_selection_are_rules() -> None:
    names = {rule.name for rule in RULES}
    for chosen in (ALSO_WITHOUT_ONE, NEEDS_A_LIVE_MACHINE, ABOUT_COMPILING, FOR_BUILDERS):
        assert chosen <= names


def test_rules_about_a_live_machine_do_not_speak() -> None:
    asked = {rule.name for rule in preflight_rules()}
    assert {"arch-missing-in-wheel", "driver-too-old", "toolkit-too-old", "requirement-unmet", "stub-libcuda"} <= asked
    assert (
        not {"no-nvidia-gpu", "kernel-module-not-loaded", "nvml-version-mismatch", "device-permission", "wsl-libcuda-path"}
        & asked
    )
    assert not {"kernel-proof-fails", "container-gpus-flag-missing", "uvm-device-missing", "nvidia-smi-hangs"} & asked


# Hostile images


def test_files_of_an_image_that_are_none_are_survived(shell: Shell, tmp_path: Path) -> None:
    root = tmp_path / "image"
    fill(root, {"/etc/os-release": None, "/etc/environment": b"\xff\0" * 1000, f"/{SITE}/torch/__init__.py": ""})
    fill(root, {f"/{SITE}/torch-2.5.1+cu124.dist-info/METADATA": None, "/usr/local/cuda-12.4/version.json": "[" * 100_000})
    (root / SITE / "torch" / "lib").mkdir()
    os.mkfifo(root / SITE / "torch" / "lib" / "libtorch_cuda.so")
    os.mkfifo(root / "usr" / "local" / "cuda-12.4" / "cuda.h")
    (root / "usr" / "local" / "cuda").symlink_to("cuda")
    (root / SITE / "loop").symlink_to("loop")
    (root / ".singularity.d").symlink_to("/")
    document = shell.report("--root", str(root), "--gpu", "RTX 4090", "--driver", "580")
    assert "error" not in serious(document).values()
    assert not [each for each in document["snapshot"]["probe_runs"] if each["outcome"] == "crashed"]
