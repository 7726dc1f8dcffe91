"""The compatibility algebra against an explicit table, over all pairs of compute capabilities and all compile targets."""

from __future__ import annotations

from itertools import product

import pytest

from cudadoctor.compat import (
    TEGRA,
    CoverageKind,
    Direction,
    ModuleFit,
    PtxSupport,
    RuntimeSupport,
    ToolchainMatch,
    best_target,
    coverage,
    crosses_tegra_border,
    forward_compat,
    is_tegra,
    module_fit,
    nvcc_for_torch,
    ptx_on_driver,
    ptx_serves,
    runtime_on_driver,
    sass_serves,
    serves,
    toolkit_ptx_on_driver,
)
from cudadoctor.matrices import DriverPlatform, Matrices, WheelPlatform
from cudadoctor.matrices.drivers import DriverProbe, ForwardCompat
from cudadoctor.matrices.gpu_names import Segment
from cudadoctor.matrices.toolkits import Family
from cudadoctor.matrices.torch_builds import CPU
from cudadoctor.model.snapshot import ModuleFlavour
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, DottedVersion, DriverRelease, PtxIsa, SmTarget

MATRICES = Matrices.load()
ALL = MATRICES.capabilities.all_ccs()
LINUX, WINDOWS = DriverPlatform.LINUX, DriverPlatform.WINDOWS

RUNS_ON = {
    "3.0": "3.0 3.5 3.7",
    "3.2": "3.2",
    "3.5": "3.5 3.7",
    "3.7": "3.7",
    "5.0": "5.0 5.2",
    "5.2": "5.2",
    "5.3": "5.3",
    "6.0": "6.0 6.1",
    "6.1": "6.1",
    "6.2": "6.2",
    "7.0": "7.0 7.5",
    "7.2": "7.2",
    "7.5": "7.5",
    "8.0": "8.0 8.6 8.9",
    "8.6": "8.6 8.9",
    "8.7": "8.7",
    "8.8": "8.8",
    "8.9": "8.9",
    "9.0": "9.0",
    "10.0": "10.0 10.3 10.7",
    "10.1": "10.1 11.0",
    "10.3": "10.3 10.7",
    "10.7": "10.7",
    "11.0": "10.1 11.0",
    "12.0": "12.0 12.1",
    "12.1": "12.1",
}
"""Machine code of the key runs on these: CUDA Programming Guide, Binary Compatibility, with the Tegra exceptions that torch's
DEVICE_REQUIREMENT lists."""

THOR = {"10.1", "11.0"}


def cc(text: str) -> ComputeCapability:
    return ComputeCapability.parse(text)


def sm(text: str) -> SmTarget:
    return SmTarget.parse(text)


def sms(text: str) -> tuple[SmTarget, ...]:
    return tuple(sm(word) for word in text.split())


def cuda(text: str) -> CudaVersion:
    return CudaVersion.parse(text)


def driver(text: str) -> DriverRelease:
    return DriverRelease.parse(text)


def test_the_table_covers_every_known_capability() -> None:
    assert {cc(text) for text in RUNS_ON} == set(ALL)


@pytest.mark.parametrize("code", RUNS_ON)
def test_plain_machine_code(code: str) -> None:
    assert [gpu for gpu in RUNS_ON if sass_serves(cc(code).sm, cc(gpu))] == RUNS_ON[code].split()


@pytest.mark.parametrize("kind", [CodeKind.SASS, CodeKind.PTX])
@pytest.mark.parametrize("code", RUNS_ON)
def test_suffix_a_runs_on_exactly_its_chip(code: str, kind: CodeKind) -> None:
    served = {gpu for gpu in RUNS_ON if serves(SmTarget(kind, cc(code), "a"), cc(gpu))}
    assert served == (THOR if code in THOR else {code})


@pytest.mark.parametrize("row", MATRICES.toolkits.all_families, ids=lambda row: str(row.target))
def test_suffix_f_runs_on_its_family(row: Family) -> None:
    code = row.target.compute_capability
    members = set(row.members) | ({cc(gpu) for gpu in THOR} if str(code) in THOR else set())
    assert {gpu for gpu in ALL if sass_serves(row.target, gpu)} == members
    assert {gpu for gpu in ALL if ptx_serves(SmTarget(CodeKind.PTX, code, "f"), gpu)} == members


@pytest.mark.parametrize("code", RUNS_ON)
def test_plain_ptx_compiles_for_its_own_capability_and_every_higher_one(code: str) -> None:
    target = SmTarget(CodeKind.PTX, cc(code), "")
    for gpu in RUNS_ON:
        assert ptx_serves(target, cc(gpu)) is (cc(gpu) >= cc(code) or {code, gpu} == THOR)
        assert not sass_serves(target, cc(gpu))


def test_link_time_code_serves_nothing_at_run_time() -> None:
    assert not any(serves(SmTarget(CodeKind.LTO, code, ""), gpu) for code, gpu in product(ALL, ALL))


@pytest.mark.parametrize("gpu", ["13.0", "9.9", "12.9", "20.1"])
def test_unknown_newer_gpus_follow_the_same_rule(gpu: str) -> None:
    for code in ALL:
        expected = code.major == cc(gpu).major and code.minor <= cc(gpu).minor and code not in TEGRA
        assert sass_serves(code.sm, cc(gpu)) is expected
        assert ptx_serves(SmTarget(CodeKind.PTX, code, ""), cc(gpu)) is (code <= cc(gpu))


def test_only_code_from_outside_tegra_crosses_the_border() -> None:
    for code, gpu in product(ALL, ALL):
        crosses = crosses_tegra_border(code.sm, gpu)
        assert crosses is (is_tegra(gpu) and not is_tegra(code) and code.major == gpu.major and code.minor <= gpu.minor)
        assert not (crosses and sass_serves(code.sm, gpu))
    assert not crosses_tegra_border(sm("sm_80a"), cc("8.7"))
    assert not crosses_tegra_border(sm("compute_80"), cc("8.7"))


def test_coverage_agrees_with_the_single_rules_for_every_pair_of_targets() -> None:
    """Two targets each: what covers is one of them that serves, and nothing covers only where neither does."""
    targets = [row.target for row in MATRICES.toolkits.all_targets if row.target.suffix == ""]
    ptx = [SmTarget(CodeKind.PTX, target.compute_capability, "") for target in targets]
    for first, second, gpu in product(targets, ptx, ALL):
        answer = coverage((first, second), gpu)
        assert answer.oldest == min(first, second)
        assert answer.newest == max(first, second)
        if sass_serves(first, gpu):
            assert (answer.kind, answer.by) == (CoverageKind.SASS, first)
        elif ptx_serves(second, gpu):
            assert (answer.kind, answer.by) == (CoverageKind.PTX_ONLY, second)
        elif crosses_tegra_border(first, gpu):
            assert (answer.kind, answer.by) == (CoverageKind.UNCERTAIN, first)
        else:
            assert (answer.kind, answer.by) == (CoverageKind.NONE, None)
        assert answer.runs is (sass_serves(first, gpu) or ptx_serves(second, gpu))


TORCH_25 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
TORCH_29_CU130 = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"


@pytest.mark.parametrize(
    ("targets", "gpu", "kind", "by", "direction"),
    [
        (TORCH_25, "8.9", CoverageKind.SASS, "sm_86", Direction.GAP),
        (TORCH_25, "6.1", CoverageKind.SASS, "sm_60", Direction.GAP),
        (TORCH_25, "12.0", CoverageKind.NONE, None, Direction.GPU_NEWER),
        (TORCH_25, "3.7", CoverageKind.NONE, None, Direction.GPU_OLDER),
        (TORCH_29_CU130, "12.1", CoverageKind.SASS, "sm_120", Direction.GPU_NEWER),
        (TORCH_29_CU130, "7.0", CoverageKind.NONE, None, Direction.GPU_OLDER),
        (TORCH_29_CU130, "10.3", CoverageKind.SASS, "sm_100", Direction.GAP),
        (TORCH_29_CU130, "10.7", CoverageKind.SASS, "sm_100", Direction.GAP),
        (TORCH_29_CU130, "13.0", CoverageKind.PTX_ONLY, "compute_120", Direction.GPU_NEWER),
        (TORCH_29_CU130, "11.0", CoverageKind.NONE, None, Direction.GAP),
        ("sm_80 sm_90", "8.7", CoverageKind.UNCERTAIN, "sm_80", Direction.GAP),
        ("sm_87", "8.9", CoverageKind.NONE, None, Direction.GPU_NEWER),
        ("sm_87", "8.7", CoverageKind.SASS, "sm_87", Direction.GAP),
        ("sm_90a", "10.0", CoverageKind.NONE, None, Direction.GPU_NEWER),
        ("", "8.0", CoverageKind.NONE, None, Direction.NO_CODE),
    ],
)
def test_coverage_of_real_builds(targets: str, gpu: str, kind: CoverageKind, by: str | None, direction: Direction) -> None:
    answer = coverage(sms(targets), cc(gpu))
    assert (answer.kind, answer.by, answer.direction) == (kind, sm(by) if by else None, direction)


def test_coverage_by_ptx_that_the_driver_does_not_know() -> None:
    answer = coverage(sms("sm_80 compute_90"), cc("12.0"), PtxSupport.TOO_NEW)
    assert (answer.kind, answer.by, answer.runs) == (CoverageKind.PTX_TOO_NEW, sm("compute_90"), False)
    assert coverage(sms("sm_80 compute_90"), cc("12.0"), PtxSupport.LOADS).kind is CoverageKind.PTX_ONLY
    assert coverage(sms("sm_80 compute_80"), cc("8.9"), PtxSupport.TOO_NEW).kind is CoverageKind.SASS


def test_best_target_is_the_gpus_own_or_the_nearest_that_serves_it() -> None:
    for toolkit in MATRICES.toolkits.toolkits:
        for gpu in ALL:
            best = best_target(toolkit.targets, gpu)
            if gpu.sm in toolkit.targets:
                assert best is not None
                assert best == gpu.sm or (str(gpu) in THOR)
            elif best is not None:
                assert sass_serves(best, gpu)
    twelve_six = MATRICES.toolkits.targets(cuda("12.6"))
    assert twelve_six is not None
    assert best_target(twelve_six, cc("12.0")) is None
    assert best_target(twelve_six, cc("8.8")) is None
    assert best_target(sms("sm_80 sm_86"), cc("8.9")) == sm("sm_86")


def test_ptx_is_compiled_up_to_the_drivers_own_version() -> None:
    toolkits = MATRICES.toolkits
    for ptx, reports in product(toolkits.ptx_releases, toolkits.ptx_releases):
        expected = PtxSupport.LOADS if ptx.ptx <= reports.ptx else PtxSupport.TOO_NEW
        assert ptx_on_driver(ptx.ptx, reports.cuda, toolkits) is expected
        newer = ptx.cuda > reports.cuda and ptx.ptx > reports.ptx
        assert toolkit_ptx_on_driver(ptx.cuda, reports.cuda, toolkits) is (PtxSupport.TOO_NEW if newer else PtxSupport.LOADS)


def test_ptx_beyond_the_table_is_judged_by_what_is_known() -> None:
    toolkits = MATRICES.toolkits
    assert ptx_on_driver(PtxIsa.parse("8.5"), cuda("15.0"), toolkits) is PtxSupport.LOADS
    assert ptx_on_driver(PtxIsa.parse("12.0"), cuda("12.4"), toolkits) is PtxSupport.TOO_NEW
    assert ptx_on_driver(PtxIsa.parse("12.0"), cuda("15.0"), toolkits) is PtxSupport.UNKNOWN
    assert ptx_on_driver(None, cuda("12.4"), toolkits) is PtxSupport.UNKNOWN
    assert ptx_on_driver(PtxIsa.parse("8.5"), None, toolkits) is PtxSupport.UNKNOWN
    assert ptx_on_driver(PtxIsa.parse("8.5"), cuda("11.9"), toolkits) is PtxSupport.TOO_NEW
    assert toolkit_ptx_on_driver(cuda("15.0"), cuda("15.1"), toolkits) is PtxSupport.LOADS
    assert toolkit_ptx_on_driver(cuda("15.0"), cuda("15.0"), toolkits) is PtxSupport.LOADS
    assert toolkit_ptx_on_driver(cuda("15.1"), cuda("13.0"), toolkits) is PtxSupport.UNKNOWN


@pytest.mark.parametrize("probe", MATRICES.drivers.probes, ids=lambda row: f"{row.library}-{row.driver}")
def test_runtime_on_driver_says_what_real_libraries_did(probe: DriverProbe) -> None:
    """cudaGetDeviceCount of three runtimes with four real drivers: 35 is too old, 100 (no GPU there) is accepted."""
    answer = runtime_on_driver(probe.runtime, probe.driver, None, MATRICES.drivers, LINUX)
    if probe.driver is None:
        assert answer.support is RuntimeSupport.UNKNOWN
    else:
        assert (answer.support is RuntimeSupport.TOO_OLD) is (probe.device_count_error == 35)


def expected_support(runtime: CudaVersion, reports: CudaVersion) -> RuntimeSupport:
    if reports >= runtime:
        return RuntimeSupport.NATIVE
    same_major = reports.major == runtime.major and runtime.major >= 11
    return RuntimeSupport.MINOR_VERSION if same_major else RuntimeSupport.TOO_OLD


def test_runtime_on_driver_for_every_toolkit_and_branch() -> None:
    drivers = MATRICES.drivers
    runtimes = {row.cuda for row in drivers.toolkits}
    for runtime, branch in product(runtimes, drivers.branches):
        expected = expected_support(runtime, branch.max_cuda)
        by_api = runtime_on_driver(runtime, None, branch.max_cuda, drivers, LINUX)
        by_release = runtime_on_driver(runtime, branch.last_release, None, drivers, LINUX)
        assert by_api.support is by_release.support is expected, (str(runtime), branch.number)
        assert by_api.because
        assert by_api.minimum == drivers.minimum_driver(runtime, LINUX)


@pytest.mark.parametrize(
    ("runtime", "release", "reports", "platform", "expected"),
    [
        ("12.4", "535.104.05", None, LINUX, RuntimeSupport.MINOR_VERSION),
        ("12.2", "535.104.05", None, LINUX, RuntimeSupport.NATIVE),
        ("13.0", "525.60.13", None, LINUX, RuntimeSupport.TOO_OLD),
        ("11.8", "450.51.06", "11.0", LINUX, RuntimeSupport.TOO_OLD),
        ("11.0", "450.51.06", "11.0", LINUX, RuntimeSupport.NATIVE),
        ("11.8", "450.80.02", "11.0", LINUX, RuntimeSupport.MINOR_VERSION),
        ("12.0", "525.53", "12.0", LINUX, RuntimeSupport.NATIVE),
        ("12.9", "527.40", None, WINDOWS, RuntimeSupport.TOO_OLD),
        ("12.9", "527.41", None, WINDOWS, RuntimeSupport.MINOR_VERSION),
        ("12.7", "566.36", None, WINDOWS, RuntimeSupport.NATIVE),
        ("13.0", "566.36", None, WINDOWS, RuntimeSupport.TOO_OLD),
        ("13.0", "581.15", None, WINDOWS, RuntimeSupport.NATIVE),
        ("10.1", "418.39", None, LINUX, RuntimeSupport.NATIVE),
        ("10.2", "418.39", None, LINUX, RuntimeSupport.TOO_OLD),
        ("10.0", "396.37", None, LINUX, RuntimeSupport.TOO_OLD),
        ("13.5", "700.10", None, LINUX, RuntimeSupport.NATIVE),
        ("14.0", "700.10", None, LINUX, RuntimeSupport.UNKNOWN),
        ("14.0", "700.10", "14.2", LINUX, RuntimeSupport.NATIVE),
        ("14.2", "700.10", "14.0", LINUX, RuntimeSupport.MINOR_VERSION),
        ("12.4", None, None, LINUX, RuntimeSupport.UNKNOWN),
    ],
)
def test_runtime_on_driver(
    runtime: str, release: str | None, reports: str | None, platform: DriverPlatform, expected: RuntimeSupport
) -> None:
    answer = runtime_on_driver(
        cuda(runtime), driver(release) if release else None, cuda(reports) if reports else None, MATRICES.drivers, platform
    )
    assert answer.support is expected, answer.because


def test_a_driver_without_a_version_is_said_to_be_unknown() -> None:
    assert runtime_on_driver(cuda("12.4"), None, None, MATRICES.drivers, LINUX).because == "the driver's version is not known"


def test_a_compat_library_lifts_an_old_kernel_driver() -> None:
    """470 with the compat libcuda of 12.4 reports 12.4: the kernel driver's own floor does not count then."""
    lifted = runtime_on_driver(cuda("12.6"), driver("470.256.02"), cuda("12.4"), MATRICES.drivers, LINUX)
    assert lifted.support is RuntimeSupport.MINOR_VERSION


@pytest.mark.parametrize(
    ("package", "host", "segment", "expected"),
    [
        ("13.0", "535.104.05", Segment.DATA_CENTER, ForwardCompat.SUPPORTED),
        ("13.0", "550.54.15", Segment.DATA_CENTER, ForwardCompat.TOLERATED),
        ("13.0", "560.28.03", Segment.DATA_CENTER, ForwardCompat.UNSUPPORTED),
        ("13.0", "580.65.06", Segment.DATA_CENTER, ForwardCompat.NOT_NEEDED),
        ("12.4", "580.65.06", Segment.GEFORCE, ForwardCompat.NOT_NEEDED),
        ("13.0", "535.104.05", Segment.GEFORCE, ForwardCompat.UNSUPPORTED),
        ("13.0", "535.104.05", Segment.WORKSTATION, ForwardCompat.UNKNOWN),
        ("13.0", "535.104.05", Segment.UNKNOWN, ForwardCompat.UNKNOWN),
        ("13.5", "580.65.06", Segment.DATA_CENTER, ForwardCompat.UNKNOWN),
        ("14.0", "580.65.06", Segment.DATA_CENTER, ForwardCompat.UNKNOWN),
        ("11.8", "470.57.02", Segment.DATA_CENTER, ForwardCompat.SUPPORTED),
    ],
)
def test_forward_compatibility(package: str, host: str, segment: Segment, expected: ForwardCompat) -> None:
    answer = forward_compat(cuda(package), driver(host), segment, MATRICES.drivers)
    assert answer.support is expected, answer.because
    assert answer.because


@pytest.mark.parametrize(
    ("host", "segment", "because"),
    [
        ("580.65.06", Segment.DATA_CENTER, "driver branch 580 is not older than the compat package of CUDA 13.0"),
        ("560.28.03", Segment.DATA_CENTER, "driver branch 560 is not listed for the compat package of CUDA 13.0"),
        ("535.104.05", Segment.GEFORCE, "cuda-compat is not for GeForce GPUs: cuInit fails with error 804"),
        (
            "535.104.05",
            Segment.WORKSTATION,
            "cuda-compat serves data centre GPUs and only some NGC-ready workstation boards",
        ),
        ("535.104.05", Segment.DATA_CENTER, "driver branch 535: supported by the compat package of CUDA 13.0"),
    ],
)
def test_forward_compatibility_says_why(host: str, segment: Segment, because: str) -> None:
    assert forward_compat(cuda("13.0"), driver(host), segment, MATRICES.drivers).because == because


def test_nvcc_for_torch() -> None:
    minors = [cuda(f"{major}.{minor}") for major in (11, 12, 13) for minor in range(10)]
    for nvcc, built in product(minors, minors):
        match = nvcc_for_torch(nvcc, built)
        if nvcc == built:
            assert match is ToolchainMatch.SAME
        else:
            assert match is (ToolchainMatch.MINOR_DIFFERS if nvcc.major == built.major else ToolchainMatch.MAJOR_DIFFERS)
    assert nvcc_for_torch(cuda("12.6.85"), cuda("12.6")) is ToolchainMatch.SAME


def test_kernel_modules_for_every_capability() -> None:
    for gpu in ALL:
        opened = module_fit(ModuleFlavour.OPEN, gpu, MATRICES.drivers)
        closed = module_fit(ModuleFlavour.PROPRIETARY, gpu, MATRICES.drivers)
        assert opened is (ModuleFit.NEEDS_PROPRIETARY if gpu < cc("7.5") else ModuleFit.FITS)
        assert closed is (ModuleFit.NEEDS_OPEN if gpu >= cc("10.0") else ModuleFit.FITS)
    assert module_fit(ModuleFlavour.OPEN, cc("20.0"), MATRICES.drivers) is ModuleFit.UNKNOWN


class TestFolkClaims:
    """The eight wrong claims of the contract, each refuted by the algebra or the matrices."""

    def test_sm_89_does_not_need_sm_89_in_the_wheel(self) -> None:
        wheel = MATRICES.torch.arch_list(DottedVersion.parse("2.5.1"), cuda("12.4"), WheelPlatform.LINUX_X86_64)
        assert wheel is not None
        assert sm("sm_89") not in wheel.targets
        assert coverage(wheel.targets, cc("8.9")).by == sm("sm_86")
        assert not sass_serves(sm("sm_89"), cc("8.6"))

    @pytest.mark.parametrize("version", [str(row.version) for row in MATRICES.torch.releases])
    def test_pip_install_torch_is_not_always_cpu_only(self, version: str) -> None:
        release = DottedVersion.parse(version)
        torch = MATRICES.torch
        linux = torch.default_variant(release, WheelPlatform.LINUX_X86_64)
        assert linux is not None
        assert linux.cuda is not None
        assert torch.default_variant(release, WheelPlatform.WINDOWS) == CPU
        arm = torch.default_variant(release, WheelPlatform.LINUX_AARCH64)
        assert (arm is not None and arm.cuda is not None) is (release >= DottedVersion.parse("2.11"))

    def test_driver_550_does_not_stop_at_cuda_11_8(self) -> None:
        assert MATRICES.drivers.max_cuda(driver("550.54.15")) == cuda("12.4")
        for minor in range(10):
            support = runtime_on_driver(cuda(f"12.{minor}"), driver("550.54.15"), None, MATRICES.drivers, LINUX).support
            assert support in (RuntimeSupport.NATIVE, RuntimeSupport.MINOR_VERSION)

    def test_48_kib_of_shared_memory_is_not_the_end(self) -> None:
        for gpu in ALL:
            limits = MATRICES.gpus.limits(gpu)
            assert limits is not None
            assert limits.smem_per_block == 48 * 1024
            assert (limits.smem_per_block_optin > 48 * 1024) is (gpu >= cc("7.0"))

    def test_a_torch_release_does_not_exist_for_every_cuda(self) -> None:
        torch = MATRICES.torch
        assert torch.exists(DottedVersion.parse("2.8.0"), cuda("12.1"), WheelPlatform.LINUX_X86_64) is False
        assert torch.exists(DottedVersion.parse("2.8.0"), cuda("12.8"), WheelPlatform.LINUX_X86_64) is True
        assert torch.exists(DottedVersion.parse("9.0.0"), cuda("12.8"), WheelPlatform.LINUX_X86_64) is None

    def test_the_two_version_numbers_need_not_agree(self) -> None:
        """nvidia-smi says 13.0 on driver 580 while toolkit and torch are of CUDA 12: both run."""
        for runtime in ("12.1", "12.6", "11.8"):
            answer = runtime_on_driver(cuda(runtime), driver("580.65.06"), cuda("13.0"), MATRICES.drivers, LINUX)
            assert answer.support is RuntimeSupport.NATIVE

    def test_a_pip_installed_torch_brings_its_libraries_itself(self) -> None:
        """Its CUDA comes in wheels with their own layout, so that LD_LIBRARY_PATH has no part in it."""
        layouts = [row.path for row in MATRICES.sonames.layouts if "site-packages/nvidia" in row.path]
        assert len(layouts) == 2
        variable = MATRICES.env.variable("LD_LIBRARY_PATH")
        assert variable is not None
        assert variable.mistakes

    def test_156_tflops_of_an_a100_are_tf32_on_tensor_cores(self) -> None:
        peaks = MATRICES.gpus.peaks("NVIDIA A100-SXM4-40GB")
        assert peaks is not None
        assert peaks.fp32 == 19.5
        assert peaks.fp16_tensor == 312
        assert 156 not in (peaks.fp32, peaks.fp16_tensor, peaks.bf16_tensor)
