from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import EnvironmentKind, Gpu, PythonEnvironment, Torch, TorchBuild
from cudadoctor.model.versions import CudaVersion, SmTarget
from cudadoctor.probes.python_env import ChosenPython
from cudadoctor.probes.torch_child import CHILD, crash_place, start_torch_child
from cudadoctor.probes.torch_facts import cudnn_version, parse_torch
from cudadoctor.probes.torch_proofs import api_error, gpu_index, parse_proofs
from cudadoctor.system import RealSystem
from tests.fakes.fakebin import Says, fake_program
from tests.fakes.stub_torch import StubTorch, add_distribution, make_environment, write_stub_torch

WORKING = StubTorch("2.5.1+cu124", "12.4", ("sm_50", "sm_86", "sm_90"), (("NVIDIA GeForce RTX 4090", "8.9"),))
UNSAID = Missing(MissingReason.CRASHED, "computing: died of SIGSEGV", "torch child")


def examine(
    folder: Path, torch: StubTorch | None, wait: float = 30, packages: tuple[str, ...] = ()
) -> tuple[PythonEnvironment, tuple[Proof, ...]]:
    """Facts and proofs of a stub torch in a fresh environment."""
    python = make_environment(folder / "venv", torch, packages)
    return _ask(python, wait)


def _ask(python: Path, wait: float = 30) -> tuple[PythonEnvironment, tuple[Proof, ...]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    child = start_torch_child(RealSystem(environ), ChosenPython(str(python), "given by --python"))
    try:
        deadline = time.monotonic() + wait
        return child.facts(deadline), child.proofs(deadline)
    finally:
        child.stop()


def of_torch(environment: PythonEnvironment) -> Torch:
    return known(environment.torch)


def test_a_working_torch(tmp_path: Path) -> None:
    environment, proofs = examine(tmp_path, WORKING, packages=("nvidia-cudnn-cu12==9.1.0.70", "Triton==3.1.0", "requests==2.0"))
    assert known(environment.executable) == str(tmp_path / "venv/bin/python")
    assert known(environment.kind) is EnvironmentKind.VENV
    assert known(environment.installer) == "pip"
    assert str(known(environment.python_version)) == ".".join(map(str, sys.version_info[:3]))
    packages = {package.name: package.package_version for package in known(environment.packages)}
    assert packages == {"nvidia-cudnn-cu12": "9.1.0.70", "torch": "2.5.1+cu124", "triton": "3.1.0"}
    torch = of_torch(environment)
    assert known(torch.imports) is True
    assert known(torch.torch_version) == "2.5.1+cu124"
    assert known(torch.build) is TorchBuild.CUDA
    assert known(torch.torch_cuda_version) == CudaVersion.of(12, 4)
    assert known(torch.arch_list) == tuple(map(SmTarget.parse, ("sm_50", "sm_86", "sm_90")))
    assert known(torch.is_available) is True
    assert isinstance(torch.cuda_error, Missing)
    assert str(known(torch.cudnn_version)) == "9.1.0"
    assert str(known(torch.nccl_version)) == "2.21.5"
    assert [device.name for device in known(torch.devices)] == ["NVIDIA GeForce RTX 4090"]
    assert [(p.kernel, p.gpu, p.target, p.outcome) for p in proofs] == [
        (kernel, 0, "sm_89", ProofOutcome.PASSED) for kernel in ("allocation", "matmul", "sdpa", "conv")
    ]


def test_no_torch_is_found_out_without_proofs(tmp_path: Path) -> None:
    environment, proofs = examine(tmp_path, None)
    assert isinstance(environment.torch, Missing)
    assert environment.torch.reason is MissingReason.NOT_FOUND
    assert [(p.layer, p.outcome) for p in proofs] == [(ProofLayer.TORCH, ProofOutcome.SKIPPED)]


def test_a_folder_named_torch_is_no_torch(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    next((tmp_path / "venv/lib").glob("*/site-packages")).joinpath("torch").mkdir()
    fact = _ask(python)[0].torch
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.NOT_FOUND
    assert "without __init__.py" in fact.detail


def test_a_torch_that_cannot_be_looked_for_is_not_called_absent() -> None:
    said = {"torch_absent": {"event": "torch_absent", "message": "", "unreadable": "/venv/lib/python3.12/site-packages"}}
    torch = parse_torch(said, UNSAID)
    assert isinstance(torch, Missing)
    assert torch.reason is MissingReason.PERMISSION_DENIED
    assert "/venv/lib/python3.12/site-packages" in torch.detail


def test_a_pipe_in_the_place_of_the_version_file_is_not_waited_for(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", WORKING)
    version = next((tmp_path / "venv").rglob("torch/version.py"))
    version.unlink()
    os.mkfifo(version)
    torch = of_torch(_ask(python, 3)[0])
    assert isinstance(torch.imports, Missing)
    assert isinstance(torch.torch_version, Missing)


def test_what_torch_leaves_behind_is_ended(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", WORKING)
    init = next((tmp_path / "venv").rglob("torch/__init__.py"))
    init.write_text("import os, time\nif os.fork() == 0: time.sleep(60)\nraise ImportError('no')")
    _ask(python, 20)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(python) in _text(path)]
    assert not left


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_modules_beside_the_child_or_in_the_current_folder_do_not_shadow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.chdir(tmp_path)
    assert known(of_torch(examine(tmp_path / "x", WORKING)[0]).imports) is True


def test_a_segfault_at_import_is_named_and_the_files_still_tell_the_version(tmp_path: Path) -> None:
    environment, proofs = examine(tmp_path, StubTorch("2.5.1+cu124", "12.4", on_import="segfault"))
    torch = of_torch(environment)
    assert isinstance(torch.imports, Missing)
    assert torch.imports.reason is MissingReason.CRASHED
    assert torch.imports.detail.startswith("importing torch: died of SIGSEGV at ")
    assert known(torch.torch_version) == "2.5.1+cu124"
    assert known(torch.torch_cuda_version) == CudaVersion.of(12, 4)
    assert isinstance(torch.is_available, Missing)
    assert torch.is_available.reason is MissingReason.CRASHED
    assert [(p.outcome, p.gpu) for p in proofs] == [(ProofOutcome.FAILED, None)]
    assert known(environment.packages)


def test_an_import_error_is_kept_with_its_words(tmp_path: Path) -> None:
    words = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    environment, proofs = examine(tmp_path, StubTorch("2.5.1+cu124", "12.4", on_import=words))
    imports = of_torch(environment).imports
    assert isinstance(imports, Missing)
    assert (imports.reason, imports.detail) == (MissingReason.FAILED, f"ImportError: {words}")
    assert proofs[0].outcome is ProofOutcome.FAILED
    assert words in (proofs[0].because or "")


def test_an_import_that_hangs_is_a_timeout(tmp_path: Path) -> None:
    environment, proofs = examine(tmp_path, StubTorch("2.5.1+cu124", "12.4", on_import="hang"), wait=2)
    imports = of_torch(environment).imports
    assert isinstance(imports, Missing)
    assert imports.reason is MissingReason.TIMEOUT
    assert "importing torch: no answer within" in imports.detail
    assert proofs[0].outcome is ProofOutcome.UNKNOWN


@pytest.mark.parametrize(("how", "reason"), [("hang", MissingReason.TIMEOUT), ("segfault", MissingReason.CRASHED)])
def test_what_goes_wrong_in_cuda_s_initialisation_leaves_the_build_known(tmp_path: Path, how: str, reason: MissingReason) -> None:
    torch = of_torch(examine(tmp_path, StubTorch("2.5.1+cu124", "12.4", ("sm_90",), on_init=how), wait=2)[0])
    assert known(torch.imports) is True
    assert known(torch.arch_list) == (SmTarget.parse("sm_90"),)
    for fact in (torch.is_available, torch.cuda_error, torch.devices, torch.cudnn_version):
        assert isinstance(fact, Missing)
        assert fact.reason is reason
        assert "initialising CUDA through torch" in fact.detail


def test_a_cpu_build_says_why_it_has_no_cuda(tmp_path: Path) -> None:
    stub = StubTorch("2.9.1+cpu", is_available=False, cuda_error="Torch not compiled with CUDA enabled")
    environment, proofs = examine(tmp_path, stub)
    torch = of_torch(environment)
    assert known(torch.build) is TorchBuild.CPU
    assert isinstance(torch.arch_list, Missing)
    assert torch.arch_list.reason is MissingReason.NOT_APPLICABLE
    assert known(torch.cuda_error) == "Torch not compiled with CUDA enabled"
    assert proofs[0].outcome is ProofOutcome.SKIPPED


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("No CUDA GPUs are available", ProofOutcome.SKIPPED),
        ("Found no NVIDIA driver on your system.", ProofOutcome.SKIPPED),
        ("The NVIDIA driver on your system is too old (found version 12000).", ProofOutcome.FAILED),
    ],
)
def test_a_torch_that_cannot_use_cuda_is_no_proof_or_a_failed_one(tmp_path: Path, words: str, outcome: ProofOutcome) -> None:
    stub = StubTorch("2.5.1+cu124", "12.4", ("sm_90",), is_available=False, cuda_error=words)
    environment, proofs = examine(tmp_path, stub)
    assert known(of_torch(environment).cuda_error) == words
    assert [p.outcome for p in proofs] == [outcome]
    assert words in (proofs[0].because or "")


def test_warnings_of_cuda_s_initialisation_are_kept(tmp_path: Path) -> None:
    stub = StubTorch("2.5.1+cu124", "12.4", ("sm_90",), warnings=("CUDA initialization: odd", "something else"))
    assert known(of_torch(examine(tmp_path, stub)[0]).cuda_error) == "CUDA initialization: odd"


def test_a_launch_without_code_for_the_gpu_fails_with_209(tmp_path: Path) -> None:
    stub = StubTorch(**{**vars(WORKING), "launch_error": "CUDA error: no kernel image is available for execution on the device"})
    proofs = {p.kernel: p for p in examine(tmp_path, stub)[1]}
    assert proofs["allocation"].outcome is ProofOutcome.PASSED
    for kernel in ("matmul", "sdpa", "conv"):
        assert proofs[kernel].outcome is ProofOutcome.FAILED
        error = proofs[kernel].error
        assert error is not None
        assert (error.code, error.name) == (209, "CUDA_ERROR_NO_BINARY_FOR_GPU")


def test_after_a_lost_context_the_rest_is_unknown(tmp_path: Path) -> None:
    stub = StubTorch(**{**vars(WORKING), "launch_error": "CUDA error: an illegal memory access was encountered"})
    proofs = {p.kernel: p for p in examine(tmp_path, stub)[1]}
    assert proofs["matmul"].outcome is ProofOutcome.FAILED
    for kernel in ("sdpa", "conv"):
        assert proofs[kernel].outcome is ProofOutcome.UNKNOWN
        assert "lost" in (proofs[kernel].because or "")


def test_a_full_gpu_proves_nothing_about_torch(tmp_path: Path) -> None:
    stub = StubTorch(**{**vars(WORKING), "launch_error": "CUDA out of memory. Tried to allocate 2.00 MiB"})
    assert {p.outcome for p in examine(tmp_path, stub)[1] if p.kernel == "matmul"} == {ProofOutcome.UNKNOWN}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.1, -1.0])
def test_wrong_numbers_and_nan_fail(tmp_path: Path, value: float) -> None:
    proofs = {p.kernel: p for p in examine(tmp_path, StubTorch(**{**vars(WORKING), "gpu_result": value}))[1]}
    for kernel in ("matmul", "sdpa", "conv"):
        assert proofs[kernel].outcome is ProofOutcome.FAILED
        assert "differs from the CPU" in (proofs[kernel].because or "")


def test_an_interpreter_that_is_absent_hangs_or_prints_garbage(tmp_path: Path) -> None:
    absent = _ask(tmp_path / "nowhere")[0].python_version
    assert isinstance(absent, Missing)
    assert absent.reason is MissingReason.NOT_FOUND
    hanging = _ask(fake_program(tmp_path / "hang", Says(hangs=True)), wait=1)[0].python_version
    assert isinstance(hanging, Missing)
    assert (hanging.reason, "starting Python" in hanging.detail) == (MissingReason.TIMEOUT, True)
    garbage = _ask(fake_program(tmp_path / "garbage", Says(b'\xff{"event": "python"\n[]\n', exit_code=3)))[0].python_version
    assert isinstance(garbage, Missing)
    assert (garbage.reason, "exit code 3" in garbage.detail) == (MissingReason.FAILED, True)


def test_the_interpreter_s_own_package_folders_are_told_before_torch_is_imported(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", StubTorch("2.5.1+cu124", on_import="hang"))
    child = start_torch_child(RealSystem(), ChosenPython(str(python), ""))
    try:
        folders = child.package_folders(time.monotonic() + 20)
        assert str(next((tmp_path / "venv/lib").glob("*/site-packages"))) in folders
    finally:
        child.stop()


def test_conda_and_egg_metadata_are_read(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    site = next((tmp_path / "venv/lib").glob("*/site-packages"))
    (site / "torchvision-0.9.1-py3.8.egg-info").write_text("Metadata-Version: 1.0\nName: torchvision\nVersion: 0.9.1\n")
    (site / "cupy.egg-info").mkdir()
    (site / "cupy.egg-info" / "PKG-INFO").write_bytes(b"Name: cupy\nVersion: 13.0\n\xff")
    add_distribution(site, "jax", "0.4.30", installer="uv")
    meta = tmp_path / "venv/conda-meta"
    meta.mkdir()
    (meta / "pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0.json").write_text('{"channel": "https://conda.anaconda.org/pytorch"}')
    (meta / "history").write_text("")
    packages = {p.name: p for p in known(_ask(python)[0].packages)}
    assert {name: package.package_version for name, package in packages.items()} == {
        "torchvision": "0.9.1",
        "cupy": "13.0",
        "jax": "0.4.30",
        "pytorch": "2.5.1",
    }
    assert packages["pytorch"].build == "py3.12_cuda12.4_cudnn9.1.0_0"
    assert packages["pytorch"].channel == "https://conda.anaconda.org/pytorch"


@pytest.mark.parametrize("version", ["3.7", "3.8", "3.9", "3.10", "3.13"])
def test_the_child_runs_on_other_pythons(tmp_path: Path, version: str) -> None:
    of_pyenv = (str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = (*RealSystem().which(f"python{version}"), *of_pyenv)
    works = [path for path in found if subprocess.run([path, "-c", ""], capture_output=True, timeout=30).returncode == 0]
    if not works:
        pytest.skip(f"no Python {version} on the PATH")
    write_stub_torch(tmp_path, WORKING)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([works[0], str(CHILD)], capture_output=True, text=True, timeout=60, env=env, check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["outcome"] for e in events if e["event"] == "proof"] == ["passed"] * 4
    assert events[-1]["event"] == "end"


def test_the_child_compiles_as_python_3_7() -> None:
    import ast

    for path in CHILD.parent.glob("_torch*_child.py"):
        ast.parse(path.read_text(), feature_version=(3, 7))


@pytest.mark.parametrize(("number", "version"), [(90100, "9.1.0"), (91002, "9.10.2"), (8907, "8.9.7"), (7605, "7.6.5")])
def test_cudnn_s_number_is_read(number: int, version: str) -> None:
    assert str(cudnn_version(number)) == version


def test_a_device_is_numbered_as_nvidia_smi_does() -> None:
    from cudadoctor.model.fact import Known

    gpus = (
        Gpu(index=0, pci_bus_id=Known("0000:01:00.0", "NVML")),
        Gpu(index=1, pci_bus_id=Known("0000:c1:00.0", "NVML")),
    )
    assert gpu_index({"index": 0, "pci_bus_id": "0000:C1:00.0"}, gpus) == 1
    assert gpu_index({"index": 0, "pci_bus_id": None}, gpus) == 0


def test_the_crash_place_is_the_innermost_frame() -> None:
    text = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File "/x.py", line 7 in f\n'
    assert crash_place(text) == " at /x.py, line 7"
    assert crash_place("") == ""


def test_only_cuda_s_own_errors_become_api_errors() -> None:
    assert api_error({"message": "module 'torch' has no attribute 'rand'"}) is None
    assert api_error({}) is None
    error = api_error({"message": "CUDA error: the provided PTX was compiled with an unsupported toolchain.", "code": 222})
    assert error is not None
    assert (error.code, error.name) == (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")


def test_a_crash_in_a_computation_fails_that_one_and_leaves_the_rest_unknown() -> None:
    device = {"index": 0, "name": "x", "compute_capability": [8, 9], "pci_bus_id": None}
    events = (
        {"event": "torch_cuda", "is_available": True, "error": "", "devices": [device]},
        {"event": "proof", "device": 0, "kernel": "allocation", "outcome": "passed"},
        {"event": "step", "doing": "computing matmul on torch device 0", "device": 0, "kernel": "matmul"},
    )
    outcomes = {p.kernel: p.outcome for p in parse_proofs(events, UNSAID)}
    assert outcomes == {
        "allocation": ProofOutcome.PASSED,
        "matmul": ProofOutcome.FAILED,
        "sdpa": ProofOutcome.UNKNOWN,
        "conv": ProofOutcome.UNKNOWN,
    }


def test_a_torch_of_which_nothing_was_said_is_missing_with_the_reason() -> None:
    assert parse_torch({}, UNSAID) == UNSAID
