"""Faults made real on a machine with a GPU, one at a time, and `cudadoctor check` on each: the root named, no false root.

Every fault lives in the environment of one child and in a temporary folder; the machine stays as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.gpu.description import DriverDescription
from cudadoctor.gpu.driver_session import describe_driver
from tests.fakes.fakebin import python_program
from tests.fakes.stub_torch import StubTorch, make_environment

pytestmark = pytest.mark.gpu
NEWER_PTX = Path(__file__).with_name("gemm_f32_tiled_cuda_13_5.ptx")
"""Written by NVRTC 13.5 (`--gpu-architecture=compute_75`): PTX ISA 9.5, which a driver before R620 does not know."""
NEWER_PTX_CUDA = 13050


class Checked:
    """What `check` said in one environment."""

    def __init__(self, env: Mapping[str, str], *options: str) -> None:
        argv = [sys.executable, "-m", "cudadoctor", "check", "--format", "json", *options]
        done = subprocess.run(argv, env=dict(env), capture_output=True, timeout=120)
        self.exit_code = done.returncode
        self.report: dict[str, Any] = json.loads(done.stdout)
        self.findings = {finding["name"]: finding for finding in self.report["findings"]}
        self.roots = [item["name"] for item in self.report["findings"] if item["root"] and item["severity"] == "error"]
        print(self.exit_code, self.report["summary"])
        for finding in self.report["findings"]:
            print(" ", finding["code"], finding["name"], finding["severity"], finding["what"])

    def outcomes(self, layer: str) -> set[str]:
        return {proof["outcome"] for proof in self.report["proofs"] if proof["layer"] == layer}

    def error_codes(self, layer: str) -> set[int]:
        return {proof["error"]["code"] for proof in self.report["proofs"] if proof["layer"] == layer and proof["error"]}


@pytest.fixture(scope="module")
def driver() -> DriverDescription:
    found = describe_driver(os.environ, timeout_s=30)
    if not found.usable:
        pytest.skip(f"no CUDA device: {found.refusal or found.failure_text}")
    return found


@pytest.fixture
def env(driver: DriverDescription, tmp_path: Path) -> dict[str, str]:
    """The machine as it is, with a cache of its own; an interpreter without torch, so that each run is short."""
    python = make_environment(tmp_path / "plain")
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "VIRTUAL_ENV": str(python.parent.parent)}


@pytest.fixture
def toolkit(env: dict[str, str]) -> Iterator[Path]:
    nvcc = shutil.which("nvcc", path=env["PATH"]) or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).is_file():
        pytest.skip("no nvcc on this machine")
    yield Path(nvcc).resolve().parent.parent


def wrapped_nvcc(folder: Path, real: Path, body: str, targets: str = "") -> Path:
    """A toolkit folder whose nvcc is the real one, except for what `body` does with `argv` when it compiles.

    Where `targets` is given, that is what it says it can compile for.
    """
    program = folder / "bin" / "nvcc"
    code = f"import os, shutil, sys\nargv = [{str(real / 'bin/nvcc')!r}, *sys.argv[1:]]\n"
    code += (
        f"if {targets!r} and '--list-gpu-code' in argv:\n    print({targets!r})\n    raise SystemExit(0)\nif '-cubin' in argv:\n"
    )
    code += "\n".join(f"    {line}" for line in body.splitlines()) + "\nos.execv(argv[0], argv)\n"
    program.parent.mkdir(parents=True, exist_ok=True)
    python_program(program, code)
    return folder


def test_the_machine_as_it_is(driver: DriverDescription, tmp_path: Path) -> None:
    checked = Checked({**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert checked.roots == []
    assert checked.exit_code == 0
    assert checked.outcomes("driver-jit") == {"passed"}


def test_cuda_visible_devices_hides_the_gpu(env: dict[str, str]) -> None:
    checked = Checked({**env, "CUDA_VISIBLE_DEVICES": ""})
    assert checked.roots == ["visible-devices-hide-all"]
    assert checked.outcomes("driver-jit") == {"passed"}


def test_cuda_visible_devices_names_no_gpu(env: dict[str, str]) -> None:
    assert Checked({**env, "CUDA_VISIBLE_DEVICES": "63"}).roots == ["visible-devices-invalid"]


def test_code_for_another_architecture_from_nvcc(env: dict[str, str], toolkit: Path, tmp_path: Path) -> None:
    """An nvcc that knows no sm_90a, so that the mma.sync kernel is taken, and makes sm_86 of every target."""
    wrong = "argv = ['-arch=sm_86' if word.startswith('-arch=') else word for word in argv]"
    folder = wrapped_nvcc(tmp_path / "cuda", toolkit, wrong, "sm_80\nsm_86\nsm_90")
    checked = Checked({**env, "CUDA_HOME": str(folder), "PATH": f"{folder}/bin:{env['PATH']}"})
    assert checked.roots == ["kernel-proof-fails"]
    assert checked.error_codes("nvcc") == {209}
    assert checked.outcomes("driver-jit") == {"passed"}
    assert "nvcc" in checked.findings["kernel-proof-fails"]["what"]


def test_ptx_newer_than_the_driver(env: dict[str, str], toolkit: Path, driver: DriverDescription, tmp_path: Path) -> None:
    if (driver.driver_version or 0) >= NEWER_PTX_CUDA:
        pytest.skip("this driver knows PTX 9.5")
    newer = f"output = argv[argv.index('-o') + 1]\nshutil.copyfile({str(NEWER_PTX)!r}, output)\nraise SystemExit(0)"
    folder = wrapped_nvcc(tmp_path / "cuda", toolkit, newer)
    checked = Checked({**env, "CUDA_HOME": str(folder), "PATH": f"{folder}/bin:{env['PATH']}"})
    assert 222 in checked.error_codes("nvcc")
    assert "ptx-newer-than-driver" in checked.roots
    assert checked.outcomes("driver-jit") == {"passed"}


def test_the_toolkits_stub_libcuda_comes_first(env: dict[str, str], toolkit: Path, tmp_path: Path) -> None:
    stubs = sorted(toolkit.rglob("stubs/libcuda.so"))
    if not stubs:
        pytest.skip("this toolkit has no stub libcuda")
    folder = tmp_path / "stubs"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(stubs[0])
    checked = Checked({**env, "LD_LIBRARY_PATH": f"{folder}:{env.get('LD_LIBRARY_PATH', '')}"})
    assert checked.roots == ["stub-libcuda"]


def test_a_cpu_build_of_torch_in_another_interpreter(env: dict[str, str], tmp_path: Path) -> None:
    stub = StubTorch("2.9.1+cpu", is_available=False, cuda_error="Torch not compiled with CUDA enabled", cudnn=None)
    python = make_environment(tmp_path / "cpu", stub)
    checked = Checked(env, "--python", str(python))
    assert checked.roots == ["cpu-only-torch"]
    assert "--index-url" in checked.findings["cpu-only-torch"]["fixes"][0]["commands"][0]


def test_a_torch_that_dies_at_import(env: dict[str, str], tmp_path: Path) -> None:
    python = make_environment(tmp_path / "dies", StubTorch("2.9.1+cu130", "13.0", on_import="segfault"))
    checked = Checked(env, "--python", str(python))
    assert checked.roots == ["torch-import-fails"]
    assert checked.outcomes("driver-jit") == {"passed"}


def test_no_compiler_at_all(env: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    smi = shutil.which("nvidia-smi", path=env["PATH"])
    if smi:
        (programs / "nvidia-smi").symlink_to(smi)
    bare = {key: value for key, value in env.items() if key not in ("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "CUDAHOSTCXX")}
    checked = Checked({**bare, "PATH": str(programs)})
    assert checked.roots == []
    assert checked.outcomes("driver-jit") == {"passed"}
    assert checked.exit_code == 0


def test_a_compat_libcuda_older_than_the_kernel_driver(env: dict[str, str], toolkit: Path) -> None:
    compat = toolkit / "compat"
    if not (compat / "libcuda.so.1").exists():
        pytest.skip("this toolkit has no compat folder")
    checked = Checked({**env, "LD_LIBRARY_PATH": f"{compat}:{env.get('LD_LIBRARY_PATH', '')}"})
    init = checked.report["snapshot"]["driver"]["cu_init"]
    print(init, checked.report["snapshot"]["driver"].get("libcuda_loaded"))
    worked = init["state"] == "known" and init["value"]["code"] == 0
    assert ("cuda-compat-in-image" in checked.roots or "system-driver-mismatch" in checked.roots) or worked


def test_nvidia_smi_hangs(env: dict[str, str], tmp_path: Path) -> None:
    python_program(tmp_path / "bin" / "nvidia-smi", "import time\ntime.sleep(600)\n")
    checked = Checked({**env, "PATH": f"{tmp_path}/bin:{env['PATH']}"})
    assert checked.exit_code == 4
    assert "nvidia-smi-hangs" in checked.findings
    assert checked.outcomes("driver-jit") == {"passed"}


def test_ten_runs_give_one_verdict(env: dict[str, str]) -> None:
    runs = [Checked(env) for _ in range(10)]
    assert {(run.exit_code, tuple(run.roots)) for run in runs} == {(0, ())}
