"""GPU names as people, catalogues and drivers write them; limits, peaks, PCI ids."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.capabilities import Feature
from cudadoctor.matrices.gpu_names import Segment, is_shortened, segment_of, words
from cudadoctor.model.versions import ComputeCapability

SHIPPED = Matrices.load()


def cc(text: str) -> ComputeCapability:
    return ComputeCapability.parse(text)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("A100", "8.0"),
        ("a100", "8.0"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("NVIDIA A100 80GB PCIe", "8.0"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
        ("GRID A100-10C", "8.0"),
        ("A10", "8.6"),
        ("NVIDIA A40-48Q", "8.6"),
        ("4090", "8.9"),
        ("RTX 4090", "8.9"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9"),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", "7.5"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", "8.6"),
        ("NVIDIA GeForce RTX 308...", "8.6"),
        ("NVIDIA A100-SXM...", "8.0"),
        ("GeForce(R) GTX 1080 Ti", "6.1"),
        ("2080 ti", "7.5"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("V100", "7.0"),
        ("P100", "6.0"),
        ("Tesla T4", "7.5"),
        ("T4", "7.5"),
        ("K80", "3.7"),
        ("L4", "8.9"),
        ("L40S", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA H200", "9.0"),
        ("H20", "9.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("B200", "10.0"),
        ("NVIDIA B300 SXM6 AC", "10.3"),
        ("NVIDIA GB300", "10.3"),
        ("NVIDIA GB10", "12.1"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU", "12.0"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX 4000 Ada Generation Laptop GPU", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("Orin (nvgpu)", "8.7"),
        ("Jetson Xavier", "7.2"),
        ("Jetson Nano", "5.3"),
        ("NVIDIA Thor", "11.0"),
        ("Rubin", "10.7"),
    ],
)
def test_a_name_means_one_capability(matrices: Matrices, name: str, capability: str) -> None:
    assert matrices.gpus.compute_capability_of(name) == cc(capability)


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        ("RTX 6000", ["7.5", "8.9"]),
        ("TITAN X", ["5.2", "6.1"]),
        ("GeForce GTX 860M", ["3.0", "5.0"]),
        ("GeForce GT 730", ["3.0", "3.5"]),
        ("NVIDIA Graphics Device", []),
        ("GeForce RTX 9090", []),
        ("", []),
        ("...", []),
        ("AMD Instinct MI300X", []),
    ],
)
def test_an_unclear_name_says_what_it_leaves(matrices: Matrices, name: str, capabilities: list[str]) -> None:
    assert [str(found) for found in matrices.gpus.compute_capabilities_of(name)] == capabilities
    assert matrices.gpus.compute_capability_of(name) is None


def test_a_cut_name_leaves_all_products_that_begin_so(matrices: Matrices) -> None:
    assert len(matrices.gpus.compute_capabilities_of("NVIDIA GeForce ...")) > 5
    assert is_shortened("NVIDIA GeForce RTX 308... ")


def test_every_string_that_drivers_print_is_understood(matrices: Matrices) -> None:
    for name, ccs in matrices.gpus.pci.driver_products.items():
        assert {cc(text) for text in ccs} <= set(matrices.gpus.compute_capabilities_of(name)), name
        if len(ccs) == 1 and name != "NVIDIA GeForce RTX 3050 A Laptop GPU":
            assert matrices.gpus.compute_capability_of(name) == cc(ccs[0]), name


def test_every_catalogue_name_finds_itself(matrices: Matrices) -> None:
    for model in matrices.gpus.models:
        assert model in matrices.gpus.by_name(model.name), model.name
        assert model in matrices.gpus.by_name(f"NVIDIA {model.name}".upper()), model.name


@pytest.mark.parametrize(
    ("device", "name", "capability"),
    [
        ("10de:2684", "GeForce RTX 4090", "8.9"),
        ("0x2335", "H200 SXM 141 GB", "9.0"),
        ("1EB8", "Tesla T4", "7.5"),
        ("31c2", "GB300", "10.3"),
    ],
)
def test_pci_ids(matrices: Matrices, device: str, name: str, capability: str) -> None:
    model = matrices.gpus.by_pci_id(device)
    assert model is not None
    assert (model.name, model.compute_capability) == (name, cc(capability))


def test_an_unnamed_or_unknown_pci_device(matrices: Matrices) -> None:
    nameless = matrices.gpus.by_pci_id("3184")
    assert nameless is not None
    assert (nameless.name, nameless.chip, nameless.compute_capability) == ("", "GB110", cc("10.3"))
    assert matrices.gpus.by_pci_id("ffff") is None


def test_peaks(matrices: Matrices) -> None:
    sxm = matrices.gpus.peaks("NVIDIA H200")
    assert sxm is not None
    assert (sxm.fp16_tensor, sxm.bandwidth_gb_s) == (989, 4800)
    assert matrices.gpus.peaks("NVIDIA A100") is None
    assert matrices.gpus.peaks("GeForce RTX 9090") is None


def test_roofline_rows_have_the_figures_that_a_roofline_needs(matrices: Matrices) -> None:
    for model in matrices.gpus.models:
        if model.good_for_roofline:
            assert model.peaks.fp32, model.name
            assert model.peaks.bandwidth_gb_s, model.name


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ("3.7", "Kepler"),
        ("6.1", "Pascal"),
        ("7.0", "Volta"),
        ("7.5", "Turing"),
        ("8.7", "Ampere"),
        ("8.9", "Ada Lovelace"),
        ("9.0", "Hopper"),
        ("12.1", "Blackwell"),
        ("10.7", "Rubin"),
    ],
)
def test_architecture_names(matrices: Matrices, capability: str, architecture: str) -> None:
    assert matrices.gpus.architecture_name(cc(capability)) == architecture


def test_unknown_capabilities_have_no_answer(matrices: Matrices) -> None:
    strange = cc("20.0")
    assert matrices.gpus.limits(strange) is None
    assert matrices.gpus.architecture_name(strange) is None
    assert matrices.capabilities.is_tegra(strange) is None
    assert matrices.capabilities.is_integrated(strange) is None
    assert matrices.capabilities.is_integrated(cc("12.1")) is True
    assert matrices.capabilities.is_tegra(cc("12.1")) is False
    assert matrices.capabilities.has(strange, Feature.BF16) is None


def test_features(matrices: Matrices) -> None:
    has = matrices.capabilities.has
    bf16 = [str(row.cc) for row in matrices.capabilities.rows if has(row.cc, Feature.BF16)]
    assert bf16[0] == "8.0"
    assert not has(cc("7.5"), Feature.BF16)
    assert [str(row.cc) for row in matrices.capabilities.rows if has(row.cc, Feature.WGMMA)] == ["9.0"]
    assert has(cc("8.9"), Feature.FP8)
    assert not has(cc("12.0"), Feature.TCGEN05)
    assert has(cc("12.0"), Feature.BLOCK_SCALED_MMA_SYNC)


def test_limits_are_coherent(matrices: Matrices) -> None:
    for row in matrices.capabilities.rows:
        have = row.limits
        assert have.max_threads_per_sm == have.max_warps_per_sm * 32
        assert have.smem_per_block <= have.smem_per_block_optin <= have.smem_per_sm
        assert have.smem_per_block_optin + have.smem_reserved_per_block <= have.smem_per_sm
        assert have.max_registers_per_block <= have.registers_per_sm
        if have.smem_carveout_kib:
            oversized = have.smem_per_sm_oversized or have.smem_per_sm
            assert max(have.smem_carveout_kib) * 1024 == oversized, row.cc


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("NVIDIA GeForce RTX 4090", Segment.GEFORCE),
        ("4090", Segment.UNKNOWN),
        ("RTX 3080", Segment.GEFORCE),
        ("NVIDIA TITAN RTX", Segment.GEFORCE),
        ("Tesla T4", Segment.DATA_CENTER),
        ("NVIDIA A10G", Segment.DATA_CENTER),
        ("NVIDIA H200", Segment.DATA_CENTER),
        ("NVIDIA L40S", Segment.DATA_CENTER),
        ("NVIDIA GB200", Segment.DATA_CENTER),
        ("Quadro RTX 6000", Segment.WORKSTATION),
        ("NVIDIA RTX A6000", Segment.WORKSTATION),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", Segment.WORKSTATION),
        ("NVIDIA T1000", Segment.WORKSTATION),
        ("Orin (nvgpu)", Segment.JETSON),
        ("NVIDIA Thor", Segment.JETSON),
        ("NVIDIA Graphics Device", Segment.UNKNOWN),
    ],
)
def test_segments(name: str, segment: Segment) -> None:
    assert segment_of(name) is segment


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_text_is_answered(text: str) -> None:
    assert len(words(text)) <= 120
    assert set(SHIPPED.gpus.compute_capabilities_of(text)) <= set(SHIPPED.gpus.all_ccs())


def test_words() -> None:
    assert words("NVIDIA GeForce RTX 4090 Laptop GPU") == ("geforce", "rtx", "4090", "mobile")
    assert words("NVIDIA A100-SXM4-40GB") == words("A100 SXM4 40 GB") == ("a100", "sxm4", "40gb")
