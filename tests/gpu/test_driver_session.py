from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import GEMM_F32_NAIVE
from cudadoctor.gpu.child import ChildError, ChildFailure
from cudadoctor.gpu.driver_session import DriverSession, all_devices_environment, describe_driver
from cudadoctor.model.versions import ComputeCapability, CudaVersion
from cudadoctor.resources import kernels_folder

Machine = Callable[..., dict[str, str]]
PTX = kernels_folder() / GEMM_F32_NAIVE.ptx_file
KERNEL = GEMM_F32_NAIVE.request()


def test_a_healthy_driver_is_described(fake_libcuda: str, machine: Machine) -> None:
    env = machine(
        FAKE_CUDA_NAME="NVIDIA GeForce RTX 4090", FAKE_CUDA_CC="8.9", FAKE_CUDA_DRIVER_VERSION=12020, FAKE_CUDA_DEVICES=2
    )
    found = describe_driver(env, fake_libcuda)
    assert found.libcuda == (fake_libcuda,)
    assert found.driver_cuda_version == CudaVersion.of(12, 2)
    assert found.init is not None and found.init.name == "CUDA_SUCCESS"
    assert found.device_count == 2
    assert found.usable
    first = found.devices[0]
    assert (first.name, first.compute_capability) == ("NVIDIA GeForce RTX 4090", ComputeCapability(8, 9))
    assert first.uuid == "GPU-11111111-1111-1111-1111-111111111111"
    assert first.pci_bus_id == "0000:01:00.0"
    assert first.total_memory_bytes == 24 << 30
    assert not first.failures
    assert not first.is_mig


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (34, "CUDA_ERROR_STUB_LIBRARY"),
        (35, "CUDA_ERROR_35"),
        (100, "CUDA_ERROR_NO_DEVICE"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        (999, "CUDA_ERROR_UNKNOWN"),
    ],
)
def test_what_cuinit_answers_is_named(fake_libcuda: str, machine: Machine, code: int, name: str) -> None:
    found = describe_driver(machine(FAKE_CUDA_INIT=code), fake_libcuda)
    assert found.init is not None
    assert (found.init.code, found.init.name) == (code, name)
    assert not found.usable
    assert found.driver_cuda_version == CudaVersion.of(13, 0), "the version is known even if cuInit fails"


def test_a_stub_that_cannot_name_its_own_error_is_named_by_us(fake_libcuda: str, machine: Machine) -> None:
    found = describe_driver(machine(FAKE_CUDA_INIT=34, FAKE_CUDA_NAMELESS=1), fake_libcuda)
    assert found.init is not None
    assert (found.init.name, found.init.message) == ("CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library")


@pytest.mark.parametrize(
    ("function", "step"), [("cuDriverGetVersion", "load"), ("cuInit", "init"), ("cuDeviceGetName", "devices")]
)
def test_a_crash_is_told_with_its_step_and_signal(fake_libcuda: str, machine: Machine, function: str, step: str) -> None:
    found = describe_driver(machine(FAKE_CUDA_CRASH=function), fake_libcuda)
    assert (found.failure, found.stopped_at) == (ChildFailure.CRASHED, step)
    assert found.failure_text == "died of SIGSEGV"
    if step != "load":
        assert found.libcuda == (fake_libcuda,), "what was answered before the crash is kept"


def test_a_hang_is_told_with_its_step(fake_libcuda: str, machine: Machine) -> None:
    found = describe_driver(machine(FAKE_CUDA_HANG="cuInit"), fake_libcuda, timeout_s=0.5)
    assert (found.failure, found.stopped_at) == (ChildFailure.HUNG, "init")
    assert found.driver_cuda_version == CudaVersion.of(13, 0)
    assert not found.usable


def test_hidden_devices_are_seen_by_a_second_session(fake_libcuda: str, machine: Machine) -> None:
    env = machine(CUDA_VISIBLE_DEVICES="-1", FAKE_CUDA_DEVICES=2)
    hidden = describe_driver(env, fake_libcuda)
    assert hidden.visible_devices == "-1"
    assert hidden.init is not None and hidden.init.code == 100
    everything = describe_driver(all_devices_environment(env), fake_libcuda)
    assert everything.visible_devices is None
    assert everything.device_count == 2


def test_no_driver_library(machine: Machine, tmp_path: Path) -> None:
    found = describe_driver(machine(), str(tmp_path / "libcuda.so.1"))
    assert found.load_error is not None and "libcuda.so.1" in found.load_error
    assert found.init is None
    assert found.refusal is not None and found.refusal["outcome"] == "skipped"


def test_a_library_that_is_no_driver(machine: Machine) -> None:
    found = describe_driver(machine(), "libc.so.6")
    assert found.missing_symbol is not None and "cuDriverGetVersion" in found.missing_symbol
    assert found.refusal is not None and found.refusal["outcome"] == "failed"


def test_one_attribute_that_fails_leaves_the_others(fake_libcuda: str, machine: Machine) -> None:
    found = describe_driver(machine(FAKE_CUDA_FAIL="cuDeviceGetUuid=801,cuDeviceTotalMem_v2=999"), fake_libcuda)
    device = found.devices[0]
    assert device.uuid is None and device.total_memory_bytes is None
    assert {name: error.code for name, error in device.failures.items()} == {"uuid": 801, "total_memory_bytes": 999}
    assert device.name == "NVIDIA Fake GPU"


def test_right_numbers_pass(fake_libcuda: str, machine: Machine) -> None:
    with DriverSession(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda) as session:
        answer = session.prove(PTX, KERNEL, 0, 1, 30)
    assert answer["outcome"] == "passed"
    assert 0 < answer["max_error"] <= answer["tolerance"]
    assert answer["run_ms"] > 0 and answer["tflops"] > 0


def test_a_launch_that_does_nothing_fails_as_the_output_stays_nan(fake_libcuda: str, machine: Machine) -> None:
    with DriverSession(machine(), fake_libcuda) as session:
        answer = session.prove(PTX, KERNEL, 0, 1, 30)
    assert answer["outcome"] == "failed"
    assert "wrong numbers" in answer["because"] and "seed 1" in answer["because"]
    assert answer["max_error"] is None, "NaN is no number in JSON"


def test_a_write_behind_the_end_fails(fake_libcuda: str, machine: Machine) -> None:
    with DriverSession(machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_WRITE_PAST=1), fake_libcuda) as session:
        answer = session.prove(PTX, KERNEL, 0, 1, 30)
    assert answer["outcome"] == "failed"
    assert "behind the end" in answer["because"]


@pytest.mark.parametrize(
    ("faults", "code", "call"),
    [
        ({"FAKE_CUDA_FAIL": "cuDevicePrimaryCtxRetain=2"}, 2, "cuDevicePrimaryCtxRetain"),
        ({"FAKE_CUDA_COMPUTE_MODE": 2}, 46, "cuDevicePrimaryCtxRetain"),
        ({"FAKE_CUDA_FAIL": "cuModuleLoadDataEx=222"}, 222, "cuModuleLoadDataEx"),
        ({"FAKE_CUDA_FAIL": "cuModuleGetFunction=500"}, 500, "cuModuleGetFunction"),
        ({"FAKE_CUDA_FAIL": "cuMemAlloc_v2=2"}, 2, "cuMemAlloc_v2"),
        ({"FAKE_CUDA_FAIL": "cuLaunchKernel=701"}, 701, "cuLaunchKernel"),
        ({"FAKE_CUDA_LAUNCH_ERROR": 700}, 700, "cuEventSynchronize"),
    ],
)
def test_each_step_that_fails_names_the_call(
    fake_libcuda: str, machine: Machine, faults: dict[str, object], code: int, call: str
) -> None:
    with DriverSession(machine(**faults), fake_libcuda) as session:
        answer = session.prove(PTX, KERNEL, 0, 1, 30)
    assert answer["outcome"] == "failed"
    assert answer["error"]["code"] == code
    assert call in answer["because"]


def test_images_that_the_driver_rejects(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    garbage, newer = tmp_path / "garbage.ptx", tmp_path / "newer.ptx"
    garbage.write_text("this is no PTX")
    newer.write_text(PTX.read_text().replace(".version 6.0", ".version 9.9"))
    with DriverSession(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda) as session:
        rejected = session.prove(garbage, KERNEL, 0, 1, 30)
        too_new = session.prove(newer, KERNEL, 0, 1, 30)
        right = session.prove(PTX, KERNEL, 0, 1, 30)
    assert (rejected["error"]["code"], too_new["error"]["code"], right["outcome"]) == (218, 222, "passed")
    assert "Ptx assembly aborted" in rejected["because"], "what the driver's compiler said is kept"


def test_a_child_that_hung_is_replaced(fake_libcuda: str, machine: Machine) -> None:
    with DriverSession(machine(FAKE_CUDA_HANG="cuLaunchKernel"), fake_libcuda) as session:
        for _ in range(2):
            with pytest.raises(ChildError, match="no answer within") as caught:
                session.prove(PTX, KERNEL, 0, 1, 1.0)
            assert caught.value.failure is ChildFailure.HUNG


def test_the_same_seed_gives_the_same_figures(fake_libcuda: str, machine: Machine) -> None:
    with DriverSession(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda) as session:
        one, same, other = (session.prove(PTX, KERNEL, 0, seed, 30)["max_error"] for seed in (7, 7, 8))
    assert one == same != other
