"""Snapshots for the tests of rules: healthy machines of several generations, and small changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import from_builtins, to_builtins
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.snapshot import (
    ApiStatus,
    Container,
    DeviceNode,
    Driver,
    EnvironmentKind,
    ErrorSeen,
    Gpu,
    Host,
    KernelModule,
    Libraries,
    LibraryCopy,
    LibraryOrigin,
    ModuleFlavour,
    PciDevice,
    Platform,
    PythonEnvironment,
    Snapshot,
    Torch,
    TorchBuild,
    TorchDevice,
    Wsl,
)
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, SmTarget
from cudadoctor.rules.engine import Case, Outcome, Results, evaluate
from cudadoctor.rules.registry import RULES

Table = Mapping[str, tuple[tuple[str, Snapshot, Outcome], ...]]
"""Rule -> rows of: what is special, the machine, the outcome."""
FAIL, PASS, UNKNOWN, NOT_APPLICABLE = Outcome.FAIL, Outcome.PASS, Outcome.UNKNOWN, Outcome.NOT_APPLICABLE
MATRICES = Matrices.load()
OUTSIDE = Missing(MissingReason.NOT_APPLICABLE, "outside of containers")
NOT_WSL = Missing(MissingReason.NOT_APPLICABLE, "not WSL")
ABSENT = Missing(MissingReason.NOT_FOUND, "not found", "test")
TIMED_OUT = Missing(MissingReason.TIMEOUT, "no answer within 4 s", "test")
REFUSED = Missing(MissingReason.FAILED, "nvmlInit failed", "NVML")


def known(value: Any, source: str = "test") -> Known[Any]:
    """A fact with a value."""
    return Known(value, source)


def healthy(
    name: str = "NVIDIA GeForce RTX 4090",
    cc: str = "8.9",
    driver: str = "580.65.06",
    cuda: str = "13.0",
    torch: str = "2.9.1+cu128",
    archs: str = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    pci_id: str = "2684",
    flavour: ModuleFlavour = ModuleFlavour.OPEN,
    count: int = 1,
) -> Snapshot:
    """A Linux machine on which everything works."""
    return Snapshot(
        host=Host(
            platform=known(Platform.LINUX),
            architecture=known("x86_64"),
            os_name=known("Ubuntu 24.04.1 LTS"),
            os_id=known("ubuntu"),
            kernel_release=known("6.8.0-45-generic", "uname"),
            glibc=known(DottedVersion.parse("2.39")),
            secure_boot=known(False),
            jetson=Missing(MissingReason.NOT_APPLICABLE, "no Jetson"),
        ),
        driver=working_driver(driver, cuda, pci_id, flavour, count),
        gpus=known(tuple(gpu(name, cc, index) for index in range(count)), "NVML"),
        toolkits=known(()),
        host_compilers=known(()),
        python=python_with(torch, archs, name, cc, count),
        libraries=Libraries(copies=known(()), cudnn_headers=known(()), ld_library_path=known(())),
        container=Container(kind=OUTSIDE, nvidia_toolkit=ABSENT, docker_snap=OUTSIDE, injected_libraries=OUTSIDE),
        wsl=Wsl(wsl_version=NOT_WSL, windows_build=NOT_WSL, library_folder=NOT_WSL, linux_driver_packages=NOT_WSL),
        environment=known({}, "environment"),
    )


def working_driver(driver: str, cuda: str, pci_id: str, flavour: ModuleFlavour, count: int) -> Driver:
    """A driver that answers everything."""
    release = DriverRelease.parse(driver)
    nodes = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{index}" for index in range(count)))
    copy = LibraryCopy(
        soname="libcuda.so.1",
        path="/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        real_path=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}",
        origin=LibraryOrigin.DRIVER,
        via="ld.so.cache",
        wins=True,
    )
    return Driver(
        driver_release=known(release, "procfs"),
        driver_cuda_version=known(CudaVersion.parse(cuda), "cuDriverGetVersion"),
        kernel_module=known(KernelModule(driver_release=release, flavour=flavour), "procfs"),
        loaded_modules=known(("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"), "/proc/modules"),
        module_file=known("/lib/modules/6.8.0-45-generic/updates/dkms/nvidia.ko.zst", "modules.dep"),
        nvml=known(ApiStatus(code=0), "NVML"),
        nvidia_smi=known(ApiStatus(code=0), "nvidia-smi"),
        cu_init=known(ApiStatus(code=0, name="CUDA_SUCCESS"), "cuInit"),
        visible_device_count=known(count, "cuDeviceGetCount"),
        device_nodes=known(tuple(DeviceNode(path=path, accessible=True, mode="crw-rw-rw-") for path in nodes), "/dev"),
        pci_devices=known(
            tuple(
                PciDevice(bus_id=f"0000:0{index + 1}:00.0", vendor_id="10de", device_id=pci_id, kernel_driver="nvidia")
                for index in range(count)
            ),
            "/sys/bus/pci",
        ),
        libcuda_loaded=known(copy.real_path),
        libcuda_copies=known((copy,)),
        profiling_restricted=known(False),
        fabric_manager=Missing(MissingReason.NOT_SUPPORTED, "no NVSwitch"),
    )


def gpu(name: str, cc: str, index: int = 0) -> Gpu:
    """A GPU as NVML lists it."""
    return Gpu(
        index=index,
        name=known(name, "NVML"),
        compute_capability=known(ComputeCapability.parse(cc), "NVML"),
        pci_bus_id=known(f"00000000:0{index + 1}:00.0", "NVML"),
        persistence=known(True, "NVML"),
        mig_enabled=known(False, "NVML"),
    )


def python_with(torch: str, archs: str, name: str, cc: str, count: int) -> PythonEnvironment:
    """A virtual environment with a torch that sees the GPUs."""
    tag = torch.partition("+")[2]
    devices = tuple(TorchDevice(index=i, name=name, compute_capability=ComputeCapability.parse(cc)) for i in range(count))
    return PythonEnvironment(
        executable=known("/home/user/venv/bin/python"),
        python_version=known(DottedVersion.parse("3.12.3")),
        kind=known(EnvironmentKind.VENV),
        installer=known("pip"),
        torch=known(
            Torch(
                imports=known(True),
                torch_version=known(torch),
                build=known(TorchBuild.CUDA),
                torch_cuda_version=known(CudaVersion.from_tag(tag)),
                arch_list=known(tuple(SmTarget.parse(arch) for arch in archs.split())),
                is_available=known(True),
                cuda_error=Missing(MissingReason.NOT_APPLICABLE, "it works"),
                devices=known(devices),
            )
        ),
        packages=known(()),
    )


CUDA_12_ARCHS = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
CUDA_13_ARCHS = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
CLOSED = ModuleFlavour.PROPRIETARY
GENERATIONS: Mapping[str, Snapshot] = {
    "kepler": healthy("Tesla K80", "3.7", "470.256.02", "11.4", "1.10.2+cu102", "sm_37 sm_50 sm_60 sm_70", "102d", CLOSED),
    "maxwell": healthy("NVIDIA GeForce GTX 980", "5.2", "580.65.06", "13.0", "2.7.1+cu126", CUDA_12_ARCHS, "13c0", CLOSED),
    "pascal": healthy("NVIDIA GeForce GTX 1080", "6.1", "550.144.03", "12.4", "2.6.0+cu124", CUDA_12_ARCHS, "1b80", CLOSED),
    "volta": healthy("Tesla V100-SXM2-32GB", "7.0", "535.183.01", "12.2", "2.5.1+cu124", CUDA_12_ARCHS, "1db5", CLOSED),
    "turing": healthy("NVIDIA GeForce RTX 2080", "7.5", pci_id="1e82"),
    "ampere": healthy("NVIDIA A100-SXM4-80GB", "8.0", "535.183.01", "12.2", "2.5.1+cu124", CUDA_12_ARCHS, "20b2", CLOSED, 4),
    "ada": healthy(),
    "hopper": healthy("NVIDIA H100 80GB HBM3", "9.0", pci_id="2330", count=8),
    "blackwell": healthy("NVIDIA GeForce RTX 5090", "12.0", "580.95.05", "13.0", "2.9.1+cu130", CUDA_13_ARCHS, "2b85"),
    "unheard-of": healthy("NVIDIA F200", "15.0", "710.10.01", "15.2", "3.4.0+cu150", "sm_120 sm_150", "4f01"),
}
"""Healthy machines, Kepler to Blackwell and one newer than every table."""


def with_driver(snapshot: Snapshot, **facts: Any) -> Snapshot:
    """The machine with other facts about its driver."""
    return structs.replace(snapshot, driver=structs.replace(snapshot.driver, **facts))


def with_host(snapshot: Snapshot, **facts: Any) -> Snapshot:
    """The machine with other facts about its host."""
    return structs.replace(snapshot, host=structs.replace(snapshot.host, **facts))


def with_container(snapshot: Snapshot, **facts: Any) -> Snapshot:
    """The machine with other facts about its container."""
    return structs.replace(snapshot, container=structs.replace(snapshot.container, **facts))


def with_wsl(snapshot: Snapshot, **facts: Any) -> Snapshot:
    """The machine as WSL2, with other facts about it."""
    base = Wsl(
        wsl_version=known(2), windows_build=ABSENT, library_folder=known(("libcuda.so.1",)), linux_driver_packages=known(())
    )
    wsl = with_host(snapshot, platform=known(Platform.WSL))
    return structs.replace(wsl, wsl=structs.replace(base, **facts))


def with_environment(snapshot: Snapshot, **variables: str) -> Snapshot:
    """The machine with these CUDA-related environment variables."""
    return structs.replace(snapshot, environment=known(variables, "environment"))


def broken(snapshot: Snapshot, code: int, name: str = "", message: str = "") -> Snapshot:
    """The machine with a cuInit that answers this code."""
    return with_driver(
        snapshot, cu_init=known(ApiStatus(code=code, name=name, message=message), "cuInit"), visible_device_count=REFUSED
    )


def without_driver(snapshot: Snapshot, modules: tuple[str, ...] = ()) -> Snapshot:
    """The machine whose nvidia module is not loaded: no tool of the driver answers."""
    bare = with_driver(
        snapshot,
        driver_release=ABSENT,
        driver_cuda_version=ABSENT,
        kernel_module=ABSENT,
        loaded_modules=known(modules, "/proc/modules"),
        nvml=known(ApiStatus(code=9, name="NVML_ERROR_DRIVER_NOT_LOADED", message="Driver Not Loaded"), "NVML"),
        nvidia_smi=known(ApiStatus(code=9, message="couldn't communicate with the NVIDIA driver"), "nvidia-smi"),
        cu_init=known(ApiStatus(code=100, name="CUDA_ERROR_NO_DEVICE"), "cuInit"),
        visible_device_count=REFUSED,
        device_nodes=known(()),
    )
    return structs.replace(bare, gpus=REFUSED)


NO_GPU = structs.replace(
    with_driver(without_driver(healthy()), pci_devices=known(()), nvml=ABSENT, nvidia_smi=ABSENT, cu_init=ABSENT), gpus=REFUSED
)
"""A machine that is known to have no NVIDIA GPU."""


IN_CONTAINER = Missing(MissingReason.NOT_APPLICABLE, "inside a container")


def inside(snapshot: Snapshot) -> Snapshot:
    """The machine seen from a container."""
    seen = with_container(snapshot, kind=known("docker"), nvidia_toolkit=IN_CONTAINER, docker_snap=IN_CONTAINER)
    return with_container(seen, injected_libraries=known(()))


def libcuda(path: str, origin: LibraryOrigin, wins: bool = True) -> LibraryCopy:
    """A copy of libcuda, which the loader picks unless it says otherwise."""
    return LibraryCopy(soname="libcuda.so.1", path=path, real_path=path, origin=origin, via="LD_LIBRARY_PATH", wins=wins)


EMPTY_CONTAINER = inside(
    structs.replace(
        with_driver(
            healthy(),
            device_nodes=known(()),
            libcuda_copies=known(()),
            cu_init=ABSENT,
            visible_device_count=ABSENT,
            nvml=ABSENT,
            nvidia_smi=ABSENT,
        ),
        gpus=REFUSED,
    )
)
"""A container on a machine with a GPU, into which nothing of the driver was passed."""


def said(kind: str, text: str = "as the software says it", **values: str) -> ErrorSeen:
    """An error text that the table recognised."""
    return ErrorSeen(kind=kind, text=text, source="pasted text", line=1, values=values)


def text_only(*errors: ErrorSeen, **parts: Any) -> Snapshot:
    """What a pasted text gives: errors, and the parts of the snapshot that it tells of."""
    return Snapshot(errors=errors, **parts)


def judged(snapshot: Snapshot) -> Results:
    """All rules over a snapshot."""
    return whole(evaluate(Case(snapshot, MATRICES), RULES))


def whole(results: Results) -> Results:
    """The same; every finding of it has all its words: nothing is None, of another type, or empty."""
    for finding in results.findings:
        assert from_builtins(to_builtins(finding), Finding) == finding
        texts = (finding.subject, finding.what, *(text for each in finding.evidence for text in (each.fact, each.source)))
        commands = (line for fix in finding.fixes for line in (fix.title, *fix.commands, *fix.verify))
        assert all((*texts, *commands)), f"{finding.name} leaves words out: {finding}"
        assert "None" not in f"{finding.what} {finding.why}", finding
    return results


def outcome(snapshot: Snapshot, rule: str) -> Outcome:
    """The outcome of one rule."""
    return judged(snapshot).outcome_of(rule)


def names(results: Results, severity: Severity) -> list[str]:
    """The names of the findings of a severity."""
    return [finding.name for finding in results.findings if finding.severity is severity]


def roots(results: Results) -> list[str]:
    """The names of the errors that are root causes."""
    return [finding.name for finding in results.findings if finding.severity is Severity.ERROR and finding.root]


def rows(table: Table) -> list[Any]:
    """The rows of a table as pytest's parameters: rule, snapshot, outcome."""
    return [
        pytest.param(rule, snapshot, expected, id=f"{rule}-{label}")
        for rule, cases in table.items()
        for label, snapshot, expected in cases
    ]
