from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.gpu.catalog import FULL, QUICK
from cudadoctor.gpu.driver_session import describe_driver
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice, ProofRequest, ProofRun, prove_layers, skip_layers
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.versions import SmTarget
from tests.fakes.compilers import compiling_nvcc, fake_nvcc

Machine = Callable[..., dict[str, str]]
ENTRIES = tuple(kernel.entry for kernel in FULL)


def prove(env: dict[str, str], libcuda: str, seconds: float = 60.0, **wanted: Any) -> tuple[Proof, ...]:
    driver = describe_driver(env, libcuda, min(seconds, 5.0))
    return prove_layers(ProofRequest(env, driver, libcuda, **wanted), time.monotonic() + seconds)


def of(proofs: tuple[Proof, ...], layer: ProofLayer) -> list[Proof]:
    return [proof for proof in proofs if proof.layer is layer]


def outcomes(proofs: tuple[Proof, ...], layer: ProofLayer) -> set[ProofOutcome]:
    return {proof.outcome for proof in of(proofs, layer)}


def test_a_healthy_machine_passes_every_layer(fake_libcuda: str, nvrtc_12_4: str, machine: Machine, tmp_path: Path) -> None:
    nvcc = compiling_nvcc(tmp_path / "bin", ENTRIES, 90)
    proofs = prove(
        machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_CC="9.0"),
        fake_libcuda,
        nvrtc=(NvrtcChoice(nvrtc_12_4, "NVRTC of torch"),),
        nvcc=(NvccChoice(str(nvcc), "nvcc 12.4"),),
        kernels=FULL,
    )
    assert {proof.outcome for proof in proofs} == {ProofOutcome.PASSED}, proofs
    assert [proof.layer for proof in proofs] == [layer for layer in list(ProofLayer)[:3] for _ in FULL]
    assert [proof.kernel for proof in proofs] == [kernel.name for kernel in FULL] * 3
    assert {(proof.layer.value, proof.target) for proof in proofs} == {
        ("driver-jit", "compute_50"),
        ("nvrtc", "sm_90"),
        ("nvcc", "sm_90"),
    }
    for proof in proofs:
        assert proof.gpu == 0 and proof.error is None and proof.because is None
        assert proof.max_error is not None and proof.tolerance is not None and proof.max_error <= proof.tolerance
        assert proof.run_ms and proof.tflops and proof.compile_s


def test_a_gpu_that_no_compiler_can_target(fake_libcuda: str, nvrtc_12_4: str, machine: Machine, tmp_path: Path) -> None:
    """Machine B of the contract: the driver is proven, both compilers are too old."""
    nvcc = fake_nvcc(tmp_path / "bin", "exit 1")
    proofs = prove(
        machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_CC="12.0"),
        fake_libcuda,
        nvrtc=(NvrtcChoice(nvrtc_12_4, "NVRTC"),),
        nvcc=(NvccChoice(str(nvcc), "nvcc 12.6", (SmTarget.parse("sm_80"), SmTarget.parse("sm_90"))),),
    )
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) == {ProofOutcome.PASSED}
    assert {proof.because for proof in of(proofs, ProofLayer.NVRTC)} == {"NVRTC (12.4) cannot target sm_120"}
    assert {proof.because for proof in of(proofs, ProofLayer.NVCC)} == {"nvcc 12.6 cannot target sm_120"}
    assert outcomes(proofs, ProofLayer.NVRTC) == outcomes(proofs, ProofLayer.NVCC) == {ProofOutcome.SKIPPED}


def test_no_compiler_at_all(fake_libcuda: str, machine: Machine) -> None:
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda)
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) == {ProofOutcome.PASSED}
    assert {proof.because for proof in proofs if proof.outcome is ProofOutcome.SKIPPED} == {
        "no NVRTC library was found",
        "no nvcc was found",
    }


def test_a_failing_compiler_with_a_passing_driver_names_the_culprit(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path / "bin", "echo 'error: unsupported GNU version!' >&2; exit 1")
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda, nvcc=(NvccChoice(str(nvcc), "nvcc 12.4"),))
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) == {ProofOutcome.PASSED}
    assert outcomes(proofs, ProofLayer.NVCC) == {ProofOutcome.FAILED}
    assert all("unsupported GNU version" in (proof.because or "") for proof in of(proofs, ProofLayer.NVCC))


def test_code_for_another_architecture_gives_209(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    nvcc = compiling_nvcc(tmp_path / "bin", ENTRIES, 80)
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_CC="9.0"), fake_libcuda, nvcc=(NvccChoice(str(nvcc), "nvcc"),))
    for proof in of(proofs, ProofLayer.NVCC):
        assert proof.outcome is ProofOutcome.FAILED
        assert proof.error is not None and proof.error.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"


@pytest.mark.parametrize(
    ("fault", "code"), [("cuModuleLoadDataEx=221", 221), ("cuCtxSetCurrent=201", 201), ("cuLaunchKernel=719", 719)]
)
def test_results_are_named(fake_libcuda: str, machine: Machine, fault: str, code: int) -> None:
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_FAIL=fault), fake_libcuda)
    for proof in of(proofs, ProofLayer.DRIVER_JIT):
        assert proof.outcome is ProofOutcome.FAILED
        assert proof.error is not None and proof.error.code == code and proof.error.name.startswith("CUDA_ERROR_")


def test_wrong_numbers_fail(fake_libcuda: str, machine: Machine) -> None:
    proofs = prove(machine(FAKE_CUDA_COMPUTE=0), fake_libcuda)
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) == {ProofOutcome.FAILED}
    assert all(proof.error is None and "wrong numbers" in (proof.because or "") for proof in of(proofs, ProofLayer.DRIVER_JIT))


def test_a_fault_in_one_kernel_does_not_spoil_the_next(fake_libcuda: str, machine: Machine) -> None:
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_LAUNCH_ERROR=700), fake_libcuda)
    errors = [proof.error.name for proof in of(proofs, ProofLayer.DRIVER_JIT) if proof.error]
    assert errors == ["CUDA_ERROR_ILLEGAL_ADDRESS"] * len(QUICK), "each in a context of its own, not a later 700 from the first"


def test_a_crash_is_a_failure_and_a_hang_is_unknown(fake_libcuda: str, machine: Machine) -> None:
    crashed = of(prove(machine(FAKE_CUDA_CRASH="cuLaunchKernel"), fake_libcuda), ProofLayer.DRIVER_JIT)
    assert {proof.outcome for proof in crashed} == {ProofOutcome.FAILED}
    assert all("died of SIGSEGV" in (proof.because or "") for proof in crashed)
    hung = of(prove(machine(FAKE_CUDA_HANG="cuLaunchKernel"), fake_libcuda, 1.5), ProofLayer.DRIVER_JIT)
    assert {proof.outcome for proof in hung} == {ProofOutcome.UNKNOWN}
    assert "no answer within" in (hung[0].because or "")
    assert "not tried" in (hung[1].because or ""), "later kernels do not pay again"


@pytest.mark.parametrize("code", [34, 802, 803, 804, 999])
def test_a_driver_that_does_not_start_fails_the_lowest_layer_only(fake_libcuda: str, machine: Machine, code: int) -> None:
    proofs = prove(machine(FAKE_CUDA_INIT=code), fake_libcuda)
    jit = of(proofs, ProofLayer.DRIVER_JIT)
    assert {(proof.outcome, proof.gpu, proof.error.code if proof.error else 0) for proof in jit} == {
        (ProofOutcome.FAILED, None, code)
    }
    assert outcomes(proofs, ProofLayer.NVRTC) == outcomes(proofs, ProofLayer.NVCC) == {ProofOutcome.SKIPPED}


def test_a_driver_that_hangs_is_unknown(fake_libcuda: str, machine: Machine) -> None:
    proofs = prove(machine(FAKE_CUDA_HANG="cuInit"), fake_libcuda, 0.5)
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) == {ProofOutcome.UNKNOWN}


def test_no_device_and_no_driver_are_skipped_with_the_reason(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    hidden = prove(machine(CUDA_VISIBLE_DEVICES=""), fake_libcuda)
    assert {proof.outcome for proof in hidden} == {ProofOutcome.SKIPPED}
    assert hidden[0].error is not None and hidden[0].error.code == 100
    absent = prove(machine(), str(tmp_path / "libcuda.so.1"))
    assert {proof.outcome for proof in absent} == {ProofOutcome.SKIPPED}
    assert "no CUDA driver library" in (absent[0].because or "")


def test_every_gpu_is_proven_under_the_number_of_the_report(fake_libcuda: str, machine: Machine) -> None:
    env = machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_DEVICES=2)
    proofs = of(prove(env, fake_libcuda, gpu_numbers={0: 1, 1: 0}), ProofLayer.DRIVER_JIT)
    assert [proof.gpu for proof in proofs] == [1, 1, 0, 0]
    assert {proof.outcome for proof in proofs} == {ProofOutcome.PASSED}


def test_a_gpu_for_one_process_at_a_time(fake_libcuda: str, nvrtc_12_4: str, machine: Machine) -> None:
    env = machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_COMPUTE_MODE=3)
    proofs = prove(env, fake_libcuda, nvrtc=(NvrtcChoice(nvrtc_12_4, "NVRTC"),))
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) | outcomes(proofs, ProofLayer.NVRTC) == {ProofOutcome.PASSED}


def test_an_old_gpu_is_skipped_by_name(fake_libcuda: str, machine: Machine) -> None:
    proofs = of(prove(machine(FAKE_CUDA_CC="3.5"), fake_libcuda), ProofLayer.DRIVER_JIT)
    assert {proof.outcome for proof in proofs} == {ProofOutcome.SKIPPED}
    assert all("needs compute capability 5.0, this GPU has 3.5" in (proof.because or "") for proof in proofs)


def test_no_home_and_no_place_for_the_cache(fake_libcuda: str, nvrtc_12_4: str, machine: Machine) -> None:
    for place in ({"XDG_CACHE_HOME": "/proc/nowhere"}, {"XDG_CACHE_HOME": "", "HOME": ""}):
        proofs = prove(machine(FAKE_CUDA_COMPUTE=1, **place), fake_libcuda, nvrtc=(NvrtcChoice(nvrtc_12_4, "NVRTC"),))
        assert outcomes(proofs, ProofLayer.NVRTC) == {ProofOutcome.PASSED}


def test_no_run(fake_libcuda: str, machine: Machine) -> None:
    request = ProofRequest(machine(), describe_driver(machine(), fake_libcuda), fake_libcuda)
    proofs = skip_layers(request, "--no-run")
    assert len(proofs) == 3 * len(QUICK)
    assert {(proof.outcome, proof.because) for proof in proofs} == {(ProofOutcome.SKIPPED, "--no-run")}


def test_code_is_compiled_once_for_gpus_of_one_kind(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    nvcc = compiling_nvcc(tmp_path / "bin", ENTRIES, 90)
    env = machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_DEVICES=3)
    proofs = of(prove(env, fake_libcuda, nvcc=(NvccChoice(str(nvcc), "nvcc"),)), ProofLayer.NVCC)
    assert [(proof.gpu, proof.outcome) for proof in proofs] == [(gpu, ProofOutcome.PASSED) for gpu in range(3) for _ in QUICK]
    assert (tmp_path / "bin" / "runs").read_text().count("run") == len(QUICK)


def test_a_compiler_that_hangs_is_unknown_and_the_other_layers_are_complete(
    fake_libcuda: str, machine: Machine, tmp_path: Path
) -> None:
    nvcc = fake_nvcc(tmp_path / "bin", "sleep 60")
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda, 3.0, nvcc=(NvccChoice(str(nvcc), "nvcc"),))
    assert outcomes(proofs, ProofLayer.DRIVER_JIT) == {ProofOutcome.PASSED}
    assert outcomes(proofs, ProofLayer.NVCC) == {ProofOutcome.UNKNOWN}


def test_what_hangs_is_abandoned_from_another_thread(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    """As on Ctrl-C: long before the deadline, with nothing left running."""
    env = machine(FAKE_CUDA_HANG="cuLaunchKernel")
    nvcc = fake_nvcc(tmp_path / "bin", f'echo $$ > "{tmp_path}/pid"; sleep 600')
    request = ProofRequest(env, describe_driver(env, fake_libcuda), fake_libcuda, nvcc=(NvccChoice(str(nvcc), "nvcc"),))
    run = ProofRun(request, time.monotonic() + 600)
    with ThreadPoolExecutor(1) as pool:
        proofs = pool.submit(run.run)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.02)
        run.abandon()
        assert ProofOutcome.PASSED not in {proof.outcome for proof in proofs.result(60)}
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
