"""Timed launches, through the driver child and the stand-in for libcuda, with the kernels compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.gpu.catalog import CHASE_U32_CYCLE, CLOCK_U32_WINDOW, COPY_U32_VECTORS, GEMM_F32_NAIVE, KernelSpec
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.resources import kernels_folder
from tests.fakes.build import build_kernel_on_cpu

Machine = Callable[..., dict[str, str]]
GEMM = {"m": 64, "n": 48, "k": 32}


def memory(elems: int, first: int = 0, second: int = 0, third: int = 0) -> dict[str, int]:
    return {"elems": elems, "first": first, "second": second, "third": third}


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    for kernel in (GEMM_F32_NAIVE, COPY_U32_VECTORS, CHASE_U32_CYCLE, CLOCK_U32_WINDOW):
        build_kernel_on_cpu(kernel, folder)
    return folder


@pytest.fixture
def session(on_cpu: Path, fake_libcuda: str, machine: Machine) -> Iterator[DriverSession]:
    with DriverSession(machine(FAKE_CUDA_KERNELS=on_cpu), fake_libcuda) as opened:
        assert opened.open(0, 20) is None
        yield opened


def ask(session: DriverSession, step: str, **fields: Any) -> dict[str, Any]:
    return session.measure({"step": step, **fields}, 0, 60)


def prepare(session: DriverSession, kernel: KernelSpec, shape: dict[str, int], name: str = "it") -> dict[str, Any]:
    image = str(kernels_folder() / kernel.ptx_file)
    return ask(session, "prepare", name=name, image=image, kernel=kernel.request(), shape=shape, seed=7)


def test_a_kernel_is_checked_and_then_timed(session: DriverSession) -> None:
    facts = prepare(session, GEMM_F32_NAIVE, GEMM)
    assert facts["right"] is True
    assert facts["flops"] == 2.0 * 64 * 48 * 32
    assert facts["bytes"] == 4 * (64 * 32 + 48 * 32 + 64 * 48)
    assert facts["registers"] == 32
    times = ask(session, "burst", name="it", launches=3)["ms"]
    assert len(times) == 3
    assert all(0.0 < each < 1e4 for each in times)
    assert ask(session, "drop", name="it") == {}


def test_the_chase_counts_its_links_and_only_its_walk_is_timed(session: DriverSession) -> None:
    facts = prepare(session, CHASE_U32_CYCLE, memory(4096, 10, 2, 3))
    assert facts["right"] is True
    assert facts["bytes"] == 4 * 3 * 2 * 10
    assert ask(session, "burst", name="it", launches=1)["ms"][0] < facts["first_ms"]


def test_a_wrong_kernel_is_not_right(fake_libcuda: str, machine: Machine) -> None:
    """Without FAKE_CUDA_KERNELS launches do nothing: the output stays NaN."""
    with DriverSession(machine(), fake_libcuda) as session:
        assert session.open(0, 20) is None
        assert prepare(session, GEMM_F32_NAIVE, GEMM)["right"] is False
        assert prepare(session, COPY_U32_VECTORS, memory(4096))["right"] is False


def test_the_clock_is_read_during_launches(session: DriverSession) -> None:
    prepare(session, CLOCK_U32_WINDOW, memory(2, 500_000), "window")
    prepare(session, COPY_U32_VECTORS, memory(4096))
    found = ask(session, "clock", name="it", window="window", ms=1.0)
    assert found["nanoseconds"] >= 500_000
    assert found["cycles"] / found["nanoseconds"] == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("size", [1 << 20, (3 << 20) + 4096])
def test_copies_to_and_from_the_host_arrive(session: DriverSession, pinned: bool, size: int) -> None:
    found = ask(session, "transfer", bytes=size, pinned=pinned, repeats=2, seed=3)
    assert found["right"] is True
    assert len(found["to_device_ms"]) == len(found["to_host_ms"]) == 2


@pytest.mark.parametrize("step", ["burst", "clock", "drop"])
def test_what_is_not_prepared_is_told(session: DriverSession, step: str) -> None:
    assert "not prepared" in ask(session, step, name="it", window="window", launches=1, ms=1.0)["because"]


def test_free_memory_and_the_drivers_own_copy(session: DriverSession) -> None:
    assert ask(session, "memory")["free"] == 12 << 30
    assert len(ask(session, "driver_copy", bytes=4096, repeats=3)["ms"]) == 3


@pytest.mark.parametrize(("failing", "code"), [("cuMemHostAlloc", 2), ("cuMemAlloc_v2", 2)])
def test_a_driver_that_refuses_is_quoted(fake_libcuda: str, machine: Machine, failing: str, code: int) -> None:
    with DriverSession(machine(FAKE_CUDA_FAIL=f"{failing}={code}"), fake_libcuda) as session:
        assert session.open(0, 20) is None
        answer = ask(session, "transfer", bytes=1 << 20, pinned=True, repeats=1, seed=1)
    assert answer["error"]["code"] == code
    assert failing in answer["because"]
