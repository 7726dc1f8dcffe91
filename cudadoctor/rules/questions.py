"""Questions that several rules ask of a snapshot: derived answers, never a judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudadoctor.compat import is_tegra
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.platforms import DriverPlatform, WheelPlatform
from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Evidence
from cudadoctor.model.snapshot import Gpu, Platform, PythonEnvironment, Snapshot, Toolkit, Torch, TorchBuild
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, SmTarget, VersionError
from cudadoctor.rules.case import once_a_case
from cudadoctor.rules.engine import Case, NotApplicableError, evidence
from cudadoctor.rules.presence import AMD_VENDOR, NVIDIA_VENDOR, Presence, gpus, nvidia_gpu_present, pci_gpus, platform

__all__ = ["AMD_VENDOR", "NVIDIA_VENDOR", "Presence", "gpus", "nvidia_gpu_present", "pci_gpus", "platform"]


def environment(snapshot: Snapshot) -> Mapping[str, str]:
    """The CUDA-related environment variables; empty where they were not read."""
    return maybe(snapshot.environment) or {}


def torch(snapshot: Snapshot) -> Torch | None:
    """The torch of the examined interpreter, where there is one and it could be read."""
    return maybe(snapshot.python.torch)


def installed_torch(snapshot: Snapshot) -> Torch:
    """The torch to judge; ends the rule as not applicable where none is installed, as unknown where it could not be read."""
    fact = snapshot.python.torch
    if isinstance(fact, Missing) and fact.reason is MissingReason.NOT_FOUND:
        raise NotApplicableError("torch is not installed in the examined Python")
    return known(fact)


def python(snapshot: Snapshot) -> PythonEnvironment:
    """The examined interpreter."""
    return snapshot.python


def in_container(snapshot: Snapshot) -> bool:
    """Is this known to be a container?"""
    return maybe(snapshot.container.kind) is not None


def driver_works(snapshot: Snapshot) -> bool:
    """Did cuInit succeed and show a device? Then no circumstance of the driver's installation is a fault."""
    status = maybe(snapshot.driver.cu_init)
    return status is not None and status.code == 0 and (maybe(snapshot.driver.visible_device_count) or 0) > 0


def gpu_name(gpu: Gpu) -> str:
    """The product name, or `GPU 0` where no source gave one."""
    return maybe(gpu.name) or f"GPU {gpu.index}"


def subject(gpu: Gpu) -> str:
    """How findings name a GPU."""
    return f"GPU {gpu.index}"


def capability(gpu: Gpu, matrices: Matrices) -> Fact[ComputeCapability]:
    """The compute capability as reported, else as the product name tells."""
    if isinstance(gpu.compute_capability, Known):
        return gpu.compute_capability
    name = maybe(gpu.name)
    if name is None:
        return gpu.compute_capability
    found = matrices.gpus.compute_capability_of(name)
    if found is None:
        return Missing(MissingReason.NOT_FOUND, f"no compute capability is known for {name!r}", "gpus matrix")
    line = gpu.name.line if isinstance(gpu.name, Known) else None
    return Known(found, f"product name {name}", line)


def identity(case: Case, index: int) -> str:
    """`GPU 3 (NVIDIA H200, GPU-..., 0000:04:00.0)`: enough to find one among several, in a rack too."""
    gpu = next((each for each in gpus(case.snapshot) if each.index == index), None)
    known_parts = [maybe(gpu.name), maybe(gpu.uuid), maybe(gpu.pci_bus_id)] if gpu is not None else []
    parts = ", ".join(part for part in known_parts if part)
    return f"GPU {index} ({parts})" if parts else f"GPU {index}"


@dataclass(frozen=True)
class GpuWithCapability:
    """A GPU whose compute capability is known, and from where."""

    gpu: Gpu
    compute_capability: ComputeCapability
    fact: Fact[ComputeCapability]

    @property
    def title(self) -> str:
        """`NVIDIA GeForce RTX 5090 (compute capability 12.0)`."""
        return f"{gpu_name(self.gpu)} (compute capability {self.compute_capability})"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return evidence(f"gpus[{self.gpu.index}].compute_capability", self.fact)


@once_a_case
def gpus_with_capability(case: Case) -> tuple[GpuWithCapability, ...]:
    """All GPUs whose compute capability is known."""
    found = []
    for gpu in gpus(case.snapshot):
        fact = capability(gpu, case.matrices)
        if isinstance(fact, Known):
            found.append(GpuWithCapability(gpu, fact.value, fact))
    return tuple(found)


def on_tegra(case: Case) -> bool:
    """Is this a Tegra board, whose wheels are those for aarch64 whether or not the text says so?"""
    return maybe(case.snapshot.host.jetson) is not None or any(
        is_tegra(gpu.compute_capability) for gpu in gpus_with_capability(case)
    )


def torch_version_text(build: Torch) -> str:
    """`2.5.1+cu124` as printed, or the words `torch` where the version is unknown."""
    return maybe(build.torch_version) or "torch"


def named_torch(build: Torch | None, otherwise: str) -> str:
    """`torch 2.5.1+cu124`, or other words where the version is not known."""
    version = maybe(build.torch_version) if build is not None else None
    return f"torch {version}" if version is not None else otherwise


def torch_release(build: Torch) -> DottedVersion | None:
    """`2.5.1` of `2.5.1+cu124`; None where unknown."""
    try:
        return DottedVersion.parse((maybe(build.torch_version) or "").partition("+")[0])
    except VersionError:
        return None


def local_tag(build: Torch) -> str:
    """The local part of torch's version: cu124, cpu, rocm6.1; empty where it has none."""
    return (maybe(build.torch_version) or "").partition("+")[2]


def torch_build(build: Torch) -> TorchBuild | None:
    """What torch was built for: as it says, else from the version's local part."""
    said = maybe(build.build)
    if said is not None:
        return said
    if maybe(build.torch_cuda_version) is not None:
        return TorchBuild.CUDA
    tag = local_tag(build)
    for prefix, kind in (("cpu", TorchBuild.CPU), ("cu", TorchBuild.CUDA), ("rocm", TorchBuild.ROCM), ("xpu", TorchBuild.XPU)):
        if tag.startswith(prefix):
            return kind
    return None


def torch_cuda_version(build: Torch) -> Fact[CudaVersion]:
    """The CUDA version of the build: as it says, else from the version's local part."""
    if isinstance(build.torch_cuda_version, Known):
        return build.torch_cuda_version
    try:
        found = CudaVersion.from_tag(local_tag(build))
    except VersionError:
        return build.torch_cuda_version
    version = build.torch_version
    return Known(found, version.source, version.line) if isinstance(version, Known) else NOT_ASKED


def wheel_platform(snapshot: Snapshot) -> WheelPlatform | None:
    """Whose wheels this machine installs; x86-64 Linux where the text does not say; None where there are no CUDA wheels."""
    return WheelPlatform.of(platform(snapshot) or Platform.LINUX, maybe(snapshot.host.architecture) or "x86_64")


def driver_platform(snapshot: Snapshot) -> DriverPlatform:
    """Whose numbering the driver's release follows; Linux where it is not known."""
    return DriverPlatform.of(platform(snapshot) or Platform.LINUX) or DriverPlatform.LINUX


def chosen_toolkit(snapshot: Snapshot) -> Toolkit | None:
    """The toolkit that builds would use."""
    for toolkit in maybe(snapshot.toolkits) or ():
        if toolkit.chosen_for_builds:
            return toolkit
    return None


def toolkit_targets(toolkit: Toolkit, matrices: Matrices) -> Fact[tuple[SmTarget, ...]]:
    """What the toolkit can compile for: as its nvcc says, else as the matrix says for its version."""
    if isinstance(toolkit.targets, Known):
        return toolkit.targets
    release = maybe(toolkit.toolkit_version)
    listed = matrices.toolkits.targets(release) if release is not None else None
    return Known(listed, "toolkits matrix") if listed else toolkit.targets


def torch_arch_list(case: Case, build: Torch) -> Fact[tuple[SmTarget, ...]]:
    """What torch holds code for: its own list or its binaries, else the matrix's row for its version and platform."""
    if isinstance(build.arch_list, Known):
        return build.arch_list
    version, runtime, place = torch_release(build), maybe(torch_cuda_version(build)), wheel_platform(case.snapshot)
    if version is None or runtime is None or place is None:
        return build.arch_list
    row = case.matrices.torch.arch_list(version, runtime, place)
    return Known(row.targets, "torch builds matrix") if row is not None else build.arch_list


def proofs_with_error(case: Case, code: int) -> tuple[Evidence, ...]:
    """The proofs that ended with this error code, as evidence."""
    return tuple(
        Evidence(
            fact=f"proofs.{proof.layer.value}.{proof.kernel}",
            value=f"error {code} {proof.error.name}",
            source=proof.compiler or "",
        )
        for proof in case.proofs
        if proof.error is not None and proof.error.code == code
    )
