"""Answers about PyTorch builds against facts one can look up."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices, WheelPlatform
from cudadoctor.matrices.torch_builds import CPU, TorchVariant
from cudadoctor.model.versions import CudaVersion, DottedVersion

X86, ARM, WINDOWS = WheelPlatform.LINUX_X86_64, WheelPlatform.LINUX_AARCH64, WheelPlatform.WINDOWS


def version(text: str) -> DottedVersion:
    return DottedVersion.parse(text)


def cu(tag: str) -> CudaVersion:
    return CudaVersion.from_tag(tag)


@pytest.mark.parametrize(
    ("torch", "variant", "platform", "targets"),
    [
        ("2.5.1+cu124", "cu124", X86, "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"),
        ("2.9.1", "cu130", X86, "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"),
        ("2.7.0", "cu128", X86, "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"),
        ("2.7.1", "cu128", WINDOWS, "sm_50 sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"),
        ("2.8.0", "cu126", WINDOWS, "sm_61 sm_70 sm_75 sm_80 sm_86 sm_90"),
        ("2.8.0", "cu129", ARM, "sm_80 sm_90 sm_100 sm_120"),
        ("2.14.0", "cu130", ARM, "sm_80 sm_90 sm_100 sm_110 sm_120"),
        ("2.15.0", "cu126", X86, None),
        ("2.8.0", "cu121", X86, None),
        ("3.0.0", "cu130", X86, None),
    ],
)
def test_arch_lists(matrices: Matrices, torch: str, variant: str, platform: WheelPlatform, targets: str | None) -> None:
    row = matrices.torch.arch_list(version(torch), cu(variant), platform)
    assert (" ".join(str(target) for target in row.targets) if row else None) == targets


def test_a_patch_release_that_the_table_lacks_is_of_its_minor(matrices: Matrices) -> None:
    torch = matrices.torch
    assert torch.release(version("2.9.7")) is None
    assert torch.arch_list(version("2.9.7"), cu("cu128"), X86) is not None
    assert not torch.is_newer_than_table(version("2.15.4"))
    assert torch.is_newer_than_table(version("2.16.0"))
    assert [str(row.version) for row in torch.releases_of(version("2.9"))] == ["2.9.1", "2.9.0"]


@pytest.mark.parametrize(
    ("torch", "platform", "variant"),
    [
        ("2.15.0", X86, "cu132"),
        ("2.14.1", X86, "cu130"),
        ("2.10.0", X86, "cu128"),
        ("2.10.0", ARM, "cpu"),
        ("2.11.0", ARM, "cu130"),
        ("2.15.0", WINDOWS, "cpu"),
        ("1.12.1", X86, "cu102"),
        ("1.9.1", ARM, None),
        ("3.0.0", X86, None),
    ],
)
def test_default_variant(matrices: Matrices, torch: str, platform: WheelPlatform, variant: str | None) -> None:
    found = matrices.torch.default_variant(version(torch), platform)
    assert (found.tag if found else None) == variant


def test_variants_and_existence(matrices: Matrices) -> None:
    torch = matrices.torch
    assert [cuda.tag for cuda in torch.variants(version("2.8.0"), X86)] == ["cu126", "cu128", "cu129"]
    assert [cuda.tag for cuda in torch.variants(version("2.8.0"), ARM)] == ["cu129"]
    assert torch.exists(version("2.8.0"), cu("cu121"), X86) is False
    assert torch.exists(version("3.0.0"), cu("cu121"), X86) is None
    assert torch.on_default_index(version("2.10.0"), TorchVariant(cu("cu128")), X86)
    assert not torch.on_default_index(version("2.10.0"), TorchVariant(cu("cu126")), X86)
    assert torch.on_default_index(version("2.10.0"), CPU, WINDOWS)


def test_variant_spelling() -> None:
    assert TorchVariant.parse("cu126").index_url == "https://download.pytorch.org/whl/cu126"
    assert str(TorchVariant.parse("cpu")) == "cpu"


def test_wheels_come_newest_first(matrices: Matrices) -> None:
    wheels = list(matrices.torch.wheels(X86))
    keys = [(wheel.release.version, wheel.variant.cuda) for wheel in wheels]
    assert keys == sorted(keys, reverse=True)
    assert len(keys) == sum(len(row.variants) for row in matrices.torch.releases)
    assert all(wheel.targets for wheel in wheels)


def test_wheels_of_a_python(matrices: Matrices) -> None:
    newest = {python: next(iter(matrices.torch.wheels(X86, python)), None) for python in ("3.8", "3.10", "3.12", "3.15", "2.7")}
    releases = {python: str(wheel.release.version) if wheel else None for python, wheel in newest.items()}
    assert releases == {"3.8": "2.4.1", "3.10": "2.14.1", "3.12": "2.15.0", "3.15": "2.15.0", "2.7": None}


def test_the_last_wheel_for_volta(matrices: Matrices) -> None:
    """torch 2.14 with cu126 is the last for Maxwell, Pascal and Volta on Linux."""
    from cudadoctor.compat import coverage
    from cudadoctor.model.versions import ComputeCapability

    fitting = [wheel for wheel in matrices.torch.wheels(X86) if coverage(wheel.targets, ComputeCapability(7, 0)).runs]
    assert (str(fitting[0].release.version), fitting[0].variant.tag) == ("2.14.1", "cu126")


def test_pins(matrices: Matrices) -> None:
    torch = matrices.torch
    assert str(torch.cudnn(version("2.14.1"), cu("cu130"))) == "9.24.0.43"
    assert str(torch.cudnn(version("2.14.1"), cu("cu126"))) == "9.10.2.21"
    assert str(torch.cudnn(version("2.5.1"), cu("cu124"))) == "9.1.0.70"
    assert torch.cudnn(version("2.5.1"), cu("cu118")) is None
    assert str(torch.nccl(version("2.14.1"), cu("cu130"))) == "2.30.7"
    assert torch.nccl(version("2.5.1"), cu("cu121")) is None


def test_default_pins_and_variant_pins_agree(matrices: Matrices) -> None:
    torch = matrices.torch
    for pin in torch.variant_pins:
        for row in torch.releases:
            default = row.default_linux_x86_64
            if default is not None and default.cuda == pin.variant and pin.torch_first <= row.minor <= pin.torch_last:
                assert row.cudnn == pin.cudnn, row.version


def test_conda_builds(matrices: Matrices) -> None:
    torch = matrices.torch
    row = torch.conda_arch_list(version("2.10.0"), CudaVersion.of(12, 9), "conda-forge", "linux-x86_64")
    assert row is not None
    assert str(row.targets[0]) == "sm_50"
    assert str(row.targets[-1]) == "compute_120"
    assert torch.conda_arch_list(version("2.10.0"), CudaVersion.of(12, 9), "pytorch", "linux-x86_64") is None


def test_arch_names(matrices: Matrices) -> None:
    row = matrices.torch.arch_name("Ampere")
    assert row is not None
    assert ([str(cc) for cc in row.expands_to], row.ptx) == (["8.0", "8.6"], True)
    assert matrices.torch.arch_name("Zen") is None
    assert "9.0a" in matrices.torch.arch_numbers[0].numbers


def test_pythons(matrices: Matrices) -> None:
    assert "3.13t" in matrices.torch.pythons(version("2.9.1"))
    assert matrices.torch.pythons(version("3.0.0")) == ()
