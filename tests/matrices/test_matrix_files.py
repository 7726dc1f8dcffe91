"""All shipped matrices: every row has its source and date, and the files agree with each other."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import date
from pathlib import Path

import pytest

from cudadoctor import compat
from cudadoctor.matrices import Matrices, MatrixError, WheelPlatform
from cudadoctor.matrices.listing import MatrixName, lines, matrix_of
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, SmTarget
from cudadoctor.resources import matrices_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.mark.parametrize("name", MatrixName)
def test_every_row_ends_with_a_source_and_a_date(matrices: Matrices, name: MatrixName) -> None:
    rows = lines(matrices, name)
    assert rows
    for line in rows:
        assert len(line.origin.source) > 4, line.text
        assert date(2024, 1, 1) <= line.origin.as_of <= date(2100, 1, 1), line.text


@pytest.mark.parametrize("name", MatrixName)
def test_a_table_that_says_rows_name_their_own_means_it(matrices: Matrices, name: MatrixName) -> None:
    assert [line.text for line in lines(matrices, name) if "rows name their own" in line.origin.source] == []


def test_every_field_of_a_file_reaches_the_loader(matrices: Matrices) -> None:
    """The loader refuses unknown fields, so one made-up field anywhere must be found."""
    for name in MatrixName:
        matrix_of(matrices, name)


@pytest.mark.parametrize("path", sorted(matrices_folder().glob("*.toml")), ids=lambda path: path.name)
def test_one_unknown_field_in_any_file_is_refused(tmp_path: Path, path: Path) -> None:
    if path.name == "error_patterns.toml":
        pytest.skip("belongs to the readers, which have their own tests")
    shutil.copytree(matrices_folder(), tmp_path / "matrices")
    copy = tmp_path / "matrices" / path.name
    copy.write_text(copy.read_text(encoding="utf-8") + '\ninvented_field = "x"\n', encoding="utf-8")
    broken = Matrices.load(tmp_path / "matrices")
    with pytest.raises(MatrixError, match=path.name):
        for name in MatrixName:
            matrix_of(broken, name)


def test_the_pci_list_is_refused_with_a_bad_capability(tmp_path: Path) -> None:
    shutil.copytree(matrices_folder(), tmp_path / "matrices")
    copy = tmp_path / "matrices" / "gpu_pci_ids.json"
    data = json.loads(copy.read_text(encoding="utf-8"))
    data["devices"]["2684"]["cc"] = "8,9,0"
    copy.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(MatrixError, match=r"gpu_pci_ids\.json"):
        _ = Matrices.load(tmp_path / "matrices").gpus


def test_the_files_are_read_only_when_asked(tmp_path: Path) -> None:
    shutil.copy(matrices_folder() / "sonames.toml", tmp_path)
    partial = Matrices.load(tmp_path)
    assert partial.sonames.soname("libcudart", 12) == "libcudart.so.12"
    with pytest.raises(MatrixError, match=r"cuda_driver\.toml: cannot be read"):
        _ = partial.drivers


def test_every_gpu_has_limits_and_its_chips_capability(matrices: Matrices) -> None:
    gpus = matrices.gpus
    for model in gpus.models:
        assert gpus.limits(model.compute_capability) is not None, model.name
        chip = gpus.chip(model.chip)
        if chip is not None:
            assert chip.compute_capability == model.compute_capability, model.name
    for chip in gpus.chips:
        assert gpus.limits(chip.compute_capability) is not None, chip.name


def test_every_pci_device_has_limits_and_its_chips_capability(matrices: Matrices) -> None:
    for device, entry in matrices.gpus.pci.devices.items():
        cc = ComputeCapability.parse(entry.cc)
        assert matrices.gpus.limits(cc) is not None, device
        chip = matrices.gpus.chip(entry.chip)
        assert chip is None or chip.compute_capability == cc, device


def test_every_capability_has_a_driver_row_and_a_compile_target(matrices: Matrices) -> None:
    for cc in matrices.capabilities.all_ccs():
        assert matrices.drivers.architecture(cc) is not None, cc
        assert matrices.toolkits.target(cc) is not None, cc


def test_every_compile_target_is_of_a_known_capability(matrices: Matrices) -> None:
    known = set(matrices.capabilities.all_ccs())
    assert {row.target.compute_capability for row in matrices.toolkits.all_targets} <= known


def test_target_lives_agree_with_the_toolkits_lists(matrices: Matrices) -> None:
    toolkits = matrices.toolkits
    for row in toolkits.all_targets:
        listed = toolkits.toolkits_for(row.target)
        assert listed, row.target
        expected = tuple(
            toolkit.cuda
            for toolkit in toolkits.toolkits
            if toolkit.cuda >= row.first_cuda and (row.last_cuda is None or toolkit.cuda <= row.last_cuda)
        )
        assert listed == expected, row.target
    assert {target for row in toolkits.toolkits for target in row.targets} == {row.target for row in toolkits.all_targets}


def test_every_toolkit_has_drivers_ptx_and_compiler_rows(matrices: Matrices) -> None:
    for row in matrices.toolkits.toolkits:
        assert matrices.drivers.toolkit_branch(row.cuda) is not None, row.cuda
        assert matrices.toolkits.ptx_isa(row.cuda) == row.ptx_isa
        assert matrices.compilers.bounds(row.cuda) is not None, row.cuda
        assert matrices.sonames.sonames(row.cuda.major) or row.cuda.major < 11


def test_a_toolkits_driver_branch_reports_its_cuda(matrices: Matrices) -> None:
    for row in matrices.drivers.toolkits:
        branch = matrices.drivers.branch(row.driver_branch)
        assert branch is not None, row.cuda
        assert branch.max_cuda == row.cuda


def test_a_bundled_driver_is_of_its_branch_and_above_the_floor(matrices: Matrices) -> None:
    for row in matrices.drivers.toolkits:
        if row.linux_driver is not None and row.stage != "RC":
            assert row.linux_driver.branch == row.driver_branch
            floor = matrices.drivers.floor(row.cuda)
            assert floor is None or row.linux_driver >= floor.linux_minimum or row.cuda.minor == 1, row.cuda
        if row.windows_driver is not None:
            branch = matrices.drivers.branch(row.windows_driver)
            assert branch is not None, row.cuda
            assert branch.number == row.driver_branch or row.cuda == CudaVersion.of(11, 8)


def test_ptx_rows_name_the_branch_whose_max_cuda_is_theirs(matrices: Matrices) -> None:
    for row in matrices.toolkits.ptx_releases:
        branch = matrices.drivers.branch(row.driver_branch)
        assert branch is not None
        assert branch.max_cuda == row.cuda


def test_every_torch_variant_has_a_toolkit_that_can_build_its_list(matrices: Matrices) -> None:
    for row in matrices.torch.arch_lists:
        targets = matrices.toolkits.targets(row.variant)
        assert targets is not None, row.variant
        for target in row.targets:
            assert SmTarget(CodeKind.SASS, target.compute_capability, target.suffix) in targets, (row.variant, target)


@pytest.mark.parametrize("kind", ["conda_arch_lists", "other_builds"])
def test_other_torch_builds_name_known_targets(matrices: Matrices, kind: str) -> None:
    known = {row.target for row in matrices.toolkits.all_targets}
    for row in getattr(matrices.torch, kind):
        assert set(row.sass) <= known, row


def test_conda_builds_can_be_built_by_their_toolkit(matrices: Matrices) -> None:
    for row in matrices.torch.conda_arch_lists:
        for cuda in row.cuda:
            targets = matrices.toolkits.targets(cuda)
            assert targets is None or set(row.sass) <= set(targets), row


def test_release_rows_and_arch_lists_name_the_same_linux_variants(matrices: Matrices) -> None:
    for row in matrices.torch.releases:
        assert matrices.torch.variants(row.version, WheelPlatform.LINUX_X86_64) == row.variants, row.version


def test_default_variants_exist_as_wheels(matrices: Matrices) -> None:
    torch = matrices.torch
    for row in torch.releases:
        for platform in WheelPlatform:
            variant = torch.default_variant(row.version, platform)
            if variant is not None and variant.cuda is not None:
                assert torch.exists(row.version, variant.cuda, platform), (row.version, platform)


def test_arch_lists_of_a_variant_do_not_overlap(matrices: Matrices) -> None:
    torch = matrices.torch
    for release in torch.releases:
        for row in torch.arch_lists:
            same = [
                other
                for other in torch.arch_lists
                if (other.variant, other.platform) == (row.variant, row.platform) and other.covers_minor(release.minor)
            ]
            assert len(same) <= 1, same


def test_torch_cudnn_pins_are_known_series(matrices: Matrices) -> None:
    for row in matrices.torch.releases:
        if row.cudnn is None or row.default_linux_x86_64 is None or row.default_linux_x86_64.cuda is None:
            continue
        major = row.default_linux_x86_64.cuda.major
        assert matrices.cudnn.min_cc(row.cudnn, major) is not None, row.version


def test_triton_pins_of_torch_are_known_and_name_it_back(matrices: Matrices) -> None:
    from packaging.version import Version

    for row in matrices.torch.releases:
        if row.triton is None:
            continue
        triton = matrices.ecosystem.triton_release(Version(row.triton.text))
        assert triton is not None, row.version
        assert str(triton.version) == row.triton.text
        assert Version(row.version.text) in triton.torch


def test_cudnn_wheels_agree_with_their_series(matrices: Matrices) -> None:
    for wheel in matrices.cudnn.wheels:
        assert matrices.cudnn.min_cc(wheel.version, wheel.cuda_major) == wheel.min_cc, wheel.package
        soname = matrices.cudnn.soname(wheel.version)
        assert soname in wheel.libraries
        sass = [target for target in wheel.ops if target.kind is CodeKind.SASS]
        assert min(sass).compute_capability == wheel.min_cc


def test_triton_assemblers_are_toolkits_of_the_table(matrices: Matrices) -> None:
    for row in matrices.ecosystem.triton:
        targets = matrices.toolkits.targets(row.ptxas)
        assert targets is not None
        plain = {target for target in targets if target >= min(row.ptxas_newest)}
        assert set(row.ptxas_newest) == plain, row.version


def test_scanned_binaries_name_known_targets_and_one_cuda_major(matrices: Matrices) -> None:
    known = {row.target for row in matrices.toolkits.all_targets}
    for row in matrices.ecosystem.binaries:
        assert {SmTarget(CodeKind.SASS, target.compute_capability, target.suffix) for target in row.targets} <= known
        majors = {matrices.sonames.cuda_major_of(name) for name in row.needed} - {None}
        assert len(majors) <= 1, row.package


def test_the_tegra_set_of_the_algebra_is_that_of_the_table(matrices: Matrices) -> None:
    assert {row.cc for row in matrices.capabilities.rows if row.tegra} == compat.TEGRA


def test_no_file_of_the_folder_is_left_out(matrices: Matrices) -> None:
    files = {path.name for path in matrices_folder().iterdir()}
    read_here = {
        "cuda_driver.toml",
        "toolkit_arch.toml",
        "host_compiler.toml",
        "compute_capabilities.toml",
        "gpus.toml",
        "gpu_pci_ids.json",
        "torch_builds.toml",
        "cudnn.toml",
        "ecosystem.toml",
        "cuda_errors.toml",
        "env_vars.toml",
        "sonames.toml",
        "images.toml",
        "expected_speed.toml",
    }
    assert files - read_here <= {"error_patterns.toml"}
    assert read_here <= files


def test_the_files_are_plain_text_that_diffs_row_by_row() -> None:
    for path in matrices_folder().glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        assert tomllib.loads(text)["meta"]["as_of"]
        assert "\t" not in text
        assert "\r" not in text
