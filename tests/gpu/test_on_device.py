"""The proofs on a real GPU, and real faults named as what they are. Skipped, with the reason, where no device answers."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import GEMM_F32_NAIVE, GEMM_F32_TILED, PORTABLE, KernelSpec
from cudadoctor.gpu.compile_cache import CompileCache
from cudadoctor.gpu.compiler import NvrtcCompiler, Workshop
from cudadoctor.gpu.description import DriverDescription
from cudadoctor.gpu.driver_session import DriverSession, all_devices_environment, describe_driver
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice, ProofRequest, prove_layers
from cudadoctor.model.proof import ProofLayer, ProofOutcome
from cudadoctor.resources import kernels_folder

pytestmark = pytest.mark.gpu
PTX = kernels_folder() / GEMM_F32_NAIVE.ptx_file
every_kernel = pytest.mark.parametrize("kernel", PORTABLE, ids=lambda kernel: kernel.name)


@pytest.fixture(scope="module")
def driver() -> DriverDescription:
    found = describe_driver(os.environ, timeout_s=30)
    if not found.usable:
        pytest.skip(f"no CUDA device: {found.refusal or found.failure_text}")
    return found


@pytest.fixture(scope="module")
def nvrtc(driver: DriverDescription) -> str:
    """A libnvrtc of this machine: a toolkit's or a wheel's."""
    roots = [*Path("/usr/local").glob("cuda*"), *(Path(entry) / "nvidia" for entry in sys.path if entry)]
    found = sorted(path for root in roots for path in root.rglob("libnvrtc.so.*") if "alt" not in path.name and path.is_file())
    if not found:
        pytest.skip("no libnvrtc in /usr/local/cuda* or in the nvidia wheels of this Python")
    return str(found[-1])


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(kernels_folder(), tmp_path, CompileCache(None))


def test_the_driver_describes_itself(driver: DriverDescription) -> None:
    assert driver.libcuda and driver.driver_cuda_version is not None
    for device in driver.devices:
        assert device.name and device.uuid and device.pci_bus_id and device.compute_capability
        assert device.total_memory_bytes and device.multiprocessor_count


@every_kernel
def test_the_driver_alone_runs_every_kernel(kernel: KernelSpec, driver: DriverDescription) -> None:
    with DriverSession(os.environ) as session:
        answer = session.prove(kernels_folder() / kernel.ptx_file, kernel.request(), 0, 1, 60)
    assert answer["outcome"] == "passed", answer


def test_all_layers_pass(driver: DriverDescription, nvrtc: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    choices = (NvccChoice(nvcc, "nvcc"),) if nvcc else ()
    request = ProofRequest(env, driver, nvrtc=(NvrtcChoice(nvrtc, "NVRTC"),), nvcc=choices, kernels=PORTABLE)
    proofs = prove_layers(request, time.monotonic() + 300)
    for proof in proofs:
        print(proof)
        wanted = ProofOutcome.SKIPPED if proof.layer is ProofLayer.NVCC and not nvcc else ProofOutcome.PASSED
        assert proof.outcome is wanted, proof


def test_code_for_another_architecture_gives_209(driver: DriverDescription, nvrtc: str, workshop: Workshop) -> None:
    compiler = NvrtcCompiler(nvrtc, os.environ, workshop)
    compiler.load(60)
    own = driver.devices[0].compute_capability
    foreign = [target for target in compiler.targets or () if own and target.compute_capability.major != own.major]
    compiled = compiler.compile(GEMM_F32_TILED, foreign[-1], 60)
    compiler.close()
    with DriverSession(os.environ) as session:
        answer = session.prove(compiled.path, GEMM_F32_TILED.request(), 0, 1, 60)
    assert (answer["outcome"], answer["error"]["name"]) == ("failed", "CUDA_ERROR_NO_BINARY_FOR_GPU")


def test_ptx_of_the_future_gives_222_and_garbage_218(driver: DriverDescription, tmp_path: Path) -> None:
    newer, garbage = tmp_path / "newer.ptx", tmp_path / "garbage.ptx"
    newer.write_text(PTX.read_text().replace(".version 6.0", ".version 15.9"))
    garbage.write_text(PTX.read_text().replace("fma.rn.f32", "fma.rn.nonsense"))
    with DriverSession(os.environ) as session:
        too_new = session.prove(newer, GEMM_F32_NAIVE.request(), 0, 1, 60)
        invalid = session.prove(garbage, GEMM_F32_NAIVE.request(), 0, 1, 60)
        right = session.prove(PTX, GEMM_F32_NAIVE.request(), 0, 1, 60)
    assert too_new["error"]["name"] == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    assert invalid["error"]["name"] == "CUDA_ERROR_INVALID_PTX"
    assert right["outcome"] == "passed", "a rejected image leaves the context usable"


def test_a_launch_that_the_device_refuses_is_named_and_the_next_one_works(driver: DriverDescription) -> None:
    too_many_threads = {**GEMM_F32_NAIVE.request(), "block": [1024, 2, 1]}
    with DriverSession(os.environ) as session:
        refused = session.prove(PTX, too_many_threads, 0, 1, 60)
        right = session.prove(PTX, GEMM_F32_NAIVE.request(), 0, 1, 60)
    assert (refused["outcome"], refused["because"]) == ("failed", "cuLaunchKernel failed")
    assert right["outcome"] == "passed"


def test_a_wrong_tile_gives_wrong_numbers(driver: DriverDescription) -> None:
    """A grid that covers half of the output: what is not written stays NaN."""
    half = {**GEMM_F32_TILED.request(), "tile": [256, 128]}
    with DriverSession(os.environ) as session:
        answer = session.prove(kernels_folder() / GEMM_F32_TILED.ptx_file, half, 0, 1, 60)
    assert (answer["outcome"], answer["step"]) == ("failed", "verify")


def test_hidden_devices(driver: DriverDescription) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    hidden = describe_driver(env, timeout_s=30)
    assert hidden.init is not None and hidden.init.name == "CUDA_ERROR_NO_DEVICE"
    assert describe_driver(all_devices_environment(env), timeout_s=30).usable
