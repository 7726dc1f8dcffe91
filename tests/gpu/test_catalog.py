from __future__ import annotations

import re

import pytest

from cudadoctor.gpu.catalog import CATALOG, FULL, QUICK, KernelSpec, Operation, choose_target
from cudadoctor.model.versions import ComputeCapability, SmTarget
from cudadoctor.resources import kernels_folder


def test_every_source_file_is_in_the_catalogue() -> None:
    folder = kernels_folder()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.cu")}
    assert files == {kernel.file for kernel in CATALOG}


def test_names_are_unique_and_the_sets_cover_both_operations() -> None:
    assert len({kernel.name for kernel in CATALOG}) == len(CATALOG)
    for chosen in (QUICK, FULL):
        assert {kernel.op for kernel in chosen} == {Operation.GEMM, Operation.ATTENTION}
        assert set(chosen) <= set(CATALOG)


@pytest.mark.parametrize("kernel", CATALOG, ids=lambda kernel: kernel.name)
def test_the_head_of_the_file_states_the_budget(kernel: KernelSpec) -> None:
    text = (kernels_folder() / kernel.file).read_text()
    head = text.split("#include", 1)[0]
    assert head.startswith(f"// {kernel.entry}:")
    assert re.search(rf"at most {kernel.max_registers} a thread", head.split("Regs:", 1)[1])
    if kernel.smem_bytes or kernel.dynamic_smem_bytes:
        assert f"{kernel.smem_bytes or kernel.dynamic_smem_bytes:,} B" in head
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    assert re.search(rf"THREADS = (.* )?{threads}( :.*)?;", text)


@pytest.mark.parametrize(
    ("device", "offered", "chosen"),
    [
        ("9.0", "sm_80 sm_90 sm_90a", "sm_90"),
        ("8.9", "sm_80 sm_86", "sm_86"),
        ("8.6", "sm_80 sm_89", "sm_80"),
        ("12.1", "sm_90 sm_120", "sm_120"),
        ("12.0", "sm_80 sm_90", None),
        ("7.0", "sm_75 sm_80", None),
        ("8.7", "sm_80 sm_86", None),
        ("8.9", "sm_87", None),
        ("8.7", "sm_80 sm_87", "sm_87"),
        ("9.0", "sm_90a compute_90", None),
        ("10.3", "", None),
    ],
)
def test_choose_target(device: str, offered: str, chosen: str | None) -> None:
    targets = tuple(SmTarget.parse(text) for text in offered.split())
    found = choose_target(ComputeCapability.parse(device), targets)
    assert found == (SmTarget.parse(chosen) if chosen else None)
