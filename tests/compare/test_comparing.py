"""What is said to differ, how much it matters, and what is not said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct, structs

from cudadoctor.compare.comparing import FOLLOWS, HARMLESS
from cudadoctor.compare.comparison import Rank, Side
from cudadoctor.compare.facts import COMPARED, NOISE
from cudadoctor.model.fact import maybe
from cudadoctor.model.snapshot import Driver, Gpu, HostCompiler, Package, PythonEnvironment, Snapshot, Toolkit, Torch
from cudadoctor.model.versions import CudaVersion, DottedVersion, DriverRelease
from tests.compare.machines import compared, ranks
from tests.fleet.generated import cpu_torch, with_software
from tests.report.sample_reports import SAMPLES
from tests.rules.builders import TIMED_OUT, healthy, known, with_driver, with_environment, with_host

BASE = with_software(healthy())
B_OF_THE_CONTRACT = with_software(
    healthy("NVIDIA GeForce RTX 5090", "12.0", "580.95.05", "13.0", "2.5.1+cu124", "sm_50 sm_80 sm_86 sm_90", "2b85")
)
RULES_FOLDER = Path(__file__).parents[2] / "cudadoctor" / "rules"


def with_python(snapshot: Snapshot, **facts: object) -> Snapshot:
    return structs.replace(snapshot, python=structs.replace(snapshot.python, **facts))


def with_gpu(snapshot: Snapshot, **facts: object) -> Snapshot:
    (gpu,) = maybe(snapshot.gpus) or ()
    return structs.replace(snapshot, gpus=known((structs.replace(gpu, **facts),)))


def moved_toolkit(snapshot: Snapshot) -> Snapshot:
    (toolkit,) = maybe(snapshot.toolkits) or ()
    return structs.replace(
        snapshot, toolkits=known((structs.replace(toolkit, root="/opt/cuda", nvcc=known("/opt/cuda/bin/nvcc")),))
    )


NOISY: dict[str, Callable[[Snapshot], Snapshot]] = {
    "nothing": lambda snapshot: snapshot,
    "serials": lambda snapshot: with_gpu(snapshot, uuid=known("GPU-uuid-7"), pci_bus_id=known("00000000:41:00.0")),
    "load": lambda snapshot: with_gpu(snapshot, temperature_c=known(70), power_w=known(300.0), utilization_percent=known(99)),
    "place of Python": lambda snapshot: with_python(snapshot, executable=known("/opt/other/bin/python")),
    "place of the toolkit": moved_toolkit,
    "order": lambda snapshot: with_python(snapshot, packages=known(tuple(reversed(maybe(snapshot.python.packages) or ())))),
}


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_no_difference(name: str, tmp_path: Path) -> None:
    report = compared(tmp_path, BASE, NOISY[name](BASE))
    (comparison,) = report.comparisons
    assert (comparison.findings, comparison.differences, comparison.matters) == ((), (), False)
    assert report.summary == "No difference from A that matters."


def test_pseudonyms_of_two_reports_are_no_names(tmp_path: Path) -> None:
    mine, theirs = (with_environment(BASE, CUDA_CACHE_PATH=f"/home/user-{number}/cache") for number in (1, 2))
    assert compared(tmp_path, mine, theirs).comparisons[0].differences == ()


def test_works_on_theirs_not_on_mine(tmp_path: Path) -> None:
    theirs = with_software(
        healthy("NVIDIA GeForce RTX 5090", "12.0", "580.95.05", "13.0", "2.9.1+cu130", "sm_80 sm_90 sm_120", "2b85")
    )
    (comparison,) = compared(tmp_path, B_OF_THE_CONTRACT, theirs).comparisons
    (one_sided,) = [each for each in comparison.findings if each.finding.name == "arch-missing-in-wheel"]
    assert (one_sided.on, one_sided.is_known_of_both) == (Side.REFERENCE, True)
    assert "python.torch.arch_list" in one_sided.facts
    assert one_sided.gone_with == ("python.torch",)
    assert comparison.differences[0].rank is Rank.FINDING
    assert ranks(comparison)["python.torch.torch_cuda_version"] is Rank.BENIGN


def test_the_same_the_other_way_round(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, BASE, cpu_torch(BASE)).comparisons
    assert [(each.on, each.finding.name) for each in comparison.findings if each.finding.root] == [(Side.OTHER, "cpu-only-torch")]


def test_what_both_suffer_from_is_no_difference(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, cpu_torch(BASE), cpu_torch(BASE)).comparisons
    assert comparison.in_common == ("CD401 cpu-only-torch",)
    assert not comparison.matters


def test_a_version_to_which_no_rule_objects_differs(tmp_path: Path) -> None:
    (comparison,) = compared(
        tmp_path, BASE, with_driver(BASE, driver_release=known(DriverRelease.parse("580.95.05")))
    ).comparisons
    assert ranks(comparison) == {"driver.driver_release": Rank.DIFFERS}
    assert comparison.matters


def test_what_nvidia_smi_calls_cuda_version_is_benign(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, BASE, with_driver(BASE, driver_cuda_version=known(CudaVersion.of(13, 1)))).comparisons
    (difference,) = comparison.differences
    assert (difference.rank, comparison.matters) == (Rank.BENIGN, False)
    assert "not what is installed" in difference.because


@pytest.mark.parametrize(("mine", "theirs", "differ"), [("2.39", "2.39.1", False), ("2.39", "2.3", True), ("2.39", "2.35", True)])
def test_a_coarser_statement_is_no_difference(mine: str, theirs: str, differ: bool, tmp_path: Path) -> None:
    one, other = (with_host(BASE, glibc=known(DottedVersion.parse(text))) for text in (mine, theirs))
    assert compared(tmp_path, one, other).comparisons[0].matters is differ


def test_unknown_against_known_never_matters(tmp_path: Path) -> None:
    unknown = structs.replace(BASE, gpus=TIMED_OUT, toolkits=TIMED_OUT, environment=TIMED_OUT)
    comparison = compared(tmp_path, BASE, unknown).comparisons[0]
    assert set(ranks(comparison).values()) == {Rank.UNKNOWN}
    assert ranks(comparison)["gpus.name"] is Rank.UNKNOWN
    assert any(each.because.startswith("timeout") for each in comparison.differences)


def test_absence_is_known(tmp_path: Path) -> None:
    comparison = compared(tmp_path, BASE, structs.replace(BASE, toolkits=known(()))).comparisons[0]
    (difference,) = [each for each in comparison.differences if each.fact == "toolkits.toolkit_version"]
    assert (difference.rank, difference.reference, difference.other) == (Rank.DIFFERS, "13.0.88", "none")


def test_packages_and_variables_are_compared_by_name(tmp_path: Path) -> None:
    packages = maybe(BASE.python.packages) or ()
    other = with_python(BASE, packages=known((*packages[1:], Package(name="xformers", package_version="0.0.30"))))
    comparison = compared(tmp_path, BASE, with_environment(other, CUDA_LAUNCH_BLOCKING="1")).comparisons[0]
    values = {each.fact: (each.reference, each.other) for each in comparison.differences}
    assert values["python.packages.xformers"] == ("none", "0.0.30")
    assert values["python.packages.a-package-0"] == ("1.0.0", "none")
    assert values["environment.CUDA_LAUNCH_BLOCKING"] == ("none", "1")
    assert "environment" not in values


TICKET = """PyTorch version: 2.9.1+cpu
CUDA used to build PyTorch: None
Python version: 3.12.3
Is CUDA available: False
Nvidia driver version: 580.65.06
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4090
"""


def test_a_pasted_text_is_a_machine_of_which_little_is_known(tmp_path: Path) -> None:
    report = compared(tmp_path, BASE, TICKET)
    (comparison,) = report.comparisons
    assert comparison.machines[0].kind == "text"
    assert "cpu-only-torch" in [each.finding.name for each in comparison.findings]
    assert ranks(comparison)["python.torch.torch_version"] in (Rank.FINDING, Rank.DIFFERS)
    assert not any(fact.startswith(("python.packages.", "libraries.copies.")) for fact in ranks(comparison))


def test_what_a_text_does_not_list_is_not_absent(tmp_path: Path) -> None:
    mine = with_environment(BASE, CUDA_LAUNCH_BLOCKING="1", CUDA_HOME="/usr/local/cuda-13.0")
    comparison = compared(tmp_path, mine, "$ env | grep CUDA\nCUDA_HOME=/usr/local/cuda-12.4\n").comparisons[0]
    assert "environment.CUDA_HOME" in ranks(comparison)
    assert "environment.CUDA_LAUNCH_BLOCKING" not in ranks(comparison)


def test_a_toolkit_that_builds_do_not_use_is_no_difference(tmp_path: Path) -> None:
    (toolkit,) = maybe(BASE.toolkits) or ()
    idle = structs.replace(toolkit, root="/opt/old", toolkit_version=known(CudaVersion.of(12, 4)), chosen_for_builds=False)
    comparison = compared(tmp_path, BASE, structs.replace(BASE, toolkits=known((toolkit, idle)))).comparisons[0]
    assert comparison.differences == ()


def test_a_finding_that_a_text_cannot_tell_does_not_matter(tmp_path: Path) -> None:
    (comparison,) = compared(
        tmp_path, cpu_torch(BASE), "NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0\n"
    ).comparisons
    (one_sided,) = [each for each in comparison.findings if each.finding.name == "cpu-only-torch"]
    assert not one_sided.is_known_of_both
    assert not comparison.matters


def test_machines_that_differ_alike_are_told_once(tmp_path: Path) -> None:
    other = cpu_torch(BASE)
    report = compared(tmp_path, BASE, other, BASE, other)
    assert [[machine.name for machine in each.machines] for each in report.comparisons] == [["B", "D"], ["C"]]


def test_proofs_that_failed_on_one_side_only(tmp_path: Path) -> None:
    comparison = compared(tmp_path, SAMPLES["healthy_h100"](), SAMPLES["sick_node"]()).comparisons[0]
    values = {each.fact: (each.reference, each.other) for each in comparison.differences if each.rank is Rank.FINDING}
    assert values["proofs.driver-jit.gemm_f32_naive_sm50"] == ("passed", "failed with error 999")


PARTS: dict[str, type[Struct]] = {
    "gpus": Gpu,
    "driver": Driver,
    "toolkits": Toolkit,
    "host_compilers": HostCompiler,
    "python": PythonEnvironment,
    "python.torch": Torch,
    **{name: type(getattr(Snapshot(), name)) for name in ("libraries", "container", "wsl", "host")},
}
LISTED = {"python": {"torch", "packages"}, "libraries": {"copies"}}


@pytest.mark.parametrize("part", PARTS)
def test_every_field_is_compared_or_named_as_noise(part: str) -> None:
    fields = {field.name for field in structs.fields(PARTS[part])}
    mine = {path.rpartition(".")[2] for path in COMPARED if path.rpartition(".")[0] == part}
    assert fields == mine | set(NOISE.get(part, "").split()) | LISTED.get(part, set())


@pytest.mark.parametrize("path", [path for path in COMPARED if path not in HARMLESS and path not in FOLLOWS])
def test_what_is_said_to_matter_is_read_by_a_rule(path: str) -> None:
    field = path.rpartition(".")[2]
    assert any(re.search(rf"\b{field}\b", file.read_text(encoding="utf-8")) for file in RULES_FOLDER.glob("*.py"))
