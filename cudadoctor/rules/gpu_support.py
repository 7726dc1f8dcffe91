"""Rules about whether the loaded driver supports the GPU: flavour of the module, branch, end of life (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import ModuleFit, module_fit
from cudadoctor.matrices.drivers import OpenModule
from cudadoctor.matrices.gpus import GpuModel
from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import ModuleFlavour, PciDevice
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.rules import driver_fixes, fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import (
    NVIDIA_VENDOR,
    GpuWithCapability,
    driver_works,
    gpu_name,
    gpus,
    gpus_with_capability,
    pci_gpus,
    subject,
)

OWN_DRIVERS = ("vfio-pci", "nvgpu")
"""Kernel drivers that keep a GPU from the nvidia module on purpose."""


def _bus_key(bus_id: str) -> str:
    """`0000:01:00.0` of any spelling of a bus id."""
    return bus_id.lower()[-12:]


def _undriven(case: Case) -> tuple[tuple[PciDevice, GpuModel], ...]:
    """NVIDIA GPUs on the bus that the driver does not list, where their model is known."""
    devices = pci_gpus(case.snapshot, NVIDIA_VENDOR)
    if not devices:
        return ()
    listed = {_bus_key(maybe(gpu.pci_bus_id) or "") for gpu in gpus(case.snapshot)}
    if len(gpus(case.snapshot)) >= len(devices):
        return ()
    found = []
    for device in devices:
        if device.kernel_driver in OWN_DRIVERS or _bus_key(device.bus_id) in listed:
            continue
        model = case.matrices.gpus.by_pci_id(device.device_id)
        if model is not None:
            found.append((device, model))
    return tuple(found)


def _named_by_driver(gpu: GpuWithCapability) -> bool:
    """Did the driver itself list this GPU? Then it supports it, whatever a table says."""
    facts = (gpu.gpu.name, gpu.gpu.uuid, gpu.gpu.compute_capability)
    sources = " ".join(fact.source.lower().replace("_", "-") for fact in facts if isinstance(fact, Known))
    return any(word in sources for word in ("nvml", "nvidia-smi", "cuda", "torch", "driver"))


def _module_evidence(case: Case) -> tuple[Evidence, ...]:
    fact = case.snapshot.driver.kernel_module
    shown = f"{fact.value.driver_release}, {fact.value.flavour.value}" if isinstance(fact, Known) else None
    return evidence("driver.kernel_module", fact, value=shown)


def _wrong_flavour(case: Case, wanted: ModuleFit) -> Iterable[tuple[PciDevice, GpuModel]]:
    """The GPUs that the loaded flavour of the module does not drive."""
    module = case.snapshot.driver.kernel_module
    if isinstance(module, Missing):
        if module.reason is MissingReason.NOT_FOUND:
            raise NotApplicableError("no nvidia module is loaded")
        known(module)
        return
    for device, model in _undriven(case):
        if module_fit(module.value.flavour, model.compute_capability, case.matrices.drivers) is wanted:
            yield device, model


def _pci_evidence(device: PciDevice, model: GpuModel) -> Evidence:
    return Evidence(fact="driver.pci_devices", value=f"{device.bus_id} 10de:{device.device_id} ({model.name})", source="sysfs")


def open_module_gpu_unsupported(case: Case) -> Iterable[Problem]:
    """The open kernel module is loaded, and it does not drive this GPU.

    What it checks: the kernel's line "is not supported by open nvidia.ko", and the flavour of the loaded module against the GPUs
    on the bus that it does not list.

    Why it matters: the open module needs the GPU System Processor that came with Turing (compute capability 7.5). Maxwell,
    Pascal and Volta need the proprietary module, which exists up to branch 580.

    How to fix: install the proprietary flavour of a branch up to 580.

    When it is wrong: the line about a missing signature beside it is only a remark.

    Sources: README of the open kernel modules; matrices/cuda_driver.toml, architecture.
    """
    texts = seen(case, "open-module-gpu-unsupported")
    if texts:
        yield _said_unsupported(case, texts)
        return
    for device, model in _wrong_flavour(case, ModuleFit.NEEDS_PROPRIETARY):
        last = case.matrices.drivers.last_branch_for(model.compute_capability)
        yield Problem(
            subject=f"GPU at {device.bus_id}",
            what=f"The open kernel module does not drive {model.name} (compute capability {model.compute_capability}).",
            why="The open module needs the GPU System Processor that came with Turing (7.5); this GPU needs the proprietary module"
            + (f", which exists for it up to branch {last}." if last is not None else "."),
            evidence=(*_module_evidence(case), _pci_evidence(device, model)),
            remedies=driver_fixes.install_proprietary_module(case, last),
            severity=Severity.WARNING if driver_works(case.snapshot) else Severity.ERROR,
        )


def _said_unsupported(case: Case, texts: tuple[Evidence, ...]) -> Problem:
    """What the kernel says of the open module, with the GPU that it names by its PCI id."""
    drivers = case.matrices.drivers
    device = next(
        (error.values["device"] for error in case.errors("open-module-gpu-unsupported") if "device" in error.values), ""
    )
    model = case.matrices.gpus.by_pci_id(device) if device else None
    last = drivers.last_branch_for(model.compute_capability) if model is not None else None
    if last is None:
        last = max((row.last_branch or 0 for row in drivers.architectures if row.open_module is OpenModule.NONE), default=0)
    named = f"{model.name} (compute capability {model.compute_capability})" if model is not None else "this GPU"
    return Problem(
        subject="driver",
        what=f"The open kernel module is loaded and does not drive {named}.",
        why=f"The open module needs the GPU System Processor that came with Turing; older GPUs need the proprietary module, branch {last} at most.",
        evidence=(*texts, *_module_evidence(case)),
        remedies=driver_fixes.install_proprietary_module(case, last),
    )


def proprietary_module_gpu_unsupported(case: Case) -> Iterable[Problem]:
    """The proprietary kernel module is loaded, and this GPU needs the open one.

    What it checks: the kernel's text that the GPU requires the open modules, and the flavour of the loaded module against the
    GPUs on the bus that it does not list.

    Why it matters: Blackwell and later GPUs are driven by the open module only; with the proprietary one they do not start, and
    nvidia-smi shows "No devices were found".

    How to fix: install the open flavour of the same branch.

    When it is wrong: a GPU that does not start for another reason (power, link) is also not listed; the kernel log tells.

    Sources: README of the open kernel modules; matrices/cuda_driver.toml, architecture.
    """
    texts = seen(case, "proprietary-module-gpu-unsupported")
    release = maybe(case.snapshot.driver.driver_release)
    if texts:
        yield Problem(
            subject="driver",
            what="The proprietary kernel module is loaded, and this GPU needs the open one.",
            why="Blackwell and later GPUs are driven by the open kernel module only.",
            evidence=(*texts, *_module_evidence(case)),
            remedies=driver_fixes.install_open_module(case, release.branch if release is not None else None),
        )
        return
    if _silent_blackwell(case):
        yield Problem(
            subject="driver",
            what="The driver finds no device, and this GPU is driven by the open kernel module only.",
            why="Blackwell and later GPUs do not start with the proprietary module.",
            evidence=(*seen(case, "smi-no-devices"), *_module_evidence(case)),
            remedies=driver_fixes.install_open_module(case, release.branch if release is not None else None),
            severity=Severity.WARNING,
            confidence=Confidence.POSSIBLE,
        )
        return
    for device, model in _wrong_flavour(case, ModuleFit.NEEDS_OPEN):
        yield Problem(
            subject=f"GPU at {device.bus_id}",
            what=f"The proprietary kernel module does not drive {model.name} (compute capability {model.compute_capability}).",
            why="Blackwell and later GPUs are driven by the open kernel module only.",
            evidence=(*_module_evidence(case), _pci_evidence(device, model)),
            remedies=driver_fixes.install_open_module(case, release.branch if release is not None else None),
            severity=Severity.WARNING if driver_works(case.snapshot) else Severity.ERROR,
        )


def _silent_blackwell(case: Case) -> bool:
    """Does nvidia-smi find no device where a text names a GPU that needs the open module, and nothing says it is loaded?"""
    if not case.saw("smi-no-devices") or case.saw("xid-bus-error", "gsp-failure", "gsp-firmware-missing"):
        return False
    module = maybe(case.snapshot.driver.kernel_module)
    if module is not None and module.flavour is ModuleFlavour.OPEN:
        return False
    drivers = case.matrices.drivers
    return any(
        module_fit(ModuleFlavour.PROPRIETARY, gpu.compute_capability, drivers) is ModuleFit.NEEDS_OPEN
        for gpu in gpus_with_capability(case)
    )


def gpu_dropped_by_driver(case: Case) -> Iterable[Problem]:
    """The installed driver branch no longer supports this GPU.

    What it checks: the driver's branch against the last one that knows each GPU that the driver does not list; and the kernel's
    line "is supported through the NVIDIA ... Legacy drivers".

    Why it matters: branch 470 is the last for Kepler, 580 the last for Maxwell, Pascal and Volta. A newer driver loads and
    ignores the GPU.

    How to fix: install the last branch that knows it.

    When it is wrong: a GPU that the driver itself lists is supported, whatever the table says; the rule then does not speak.

    Sources: NVIDIA data-centre driver documentation, lifecycle; matrices/cuda_driver.toml, architecture.
    """
    texts = seen(case, "gpu-legacy-driver-needed")
    release = case.snapshot.driver.driver_release
    if texts:
        yield Problem(
            subject="driver",
            what="The installed driver no longer supports this GPU; an older (legacy) branch does.",
            why="Each driver branch drops old GPU generations; it loads and ignores them.",
            evidence=(*texts, *evidence("driver.driver_release", release)),
            remedies=tuple(_legacy_driver(case)),
        )
        return
    for device, model in _undriven(case):
        branch, last = known(release).branch, case.matrices.drivers.last_branch_for(model.compute_capability)
        if last is not None and case.matrices.drivers.drops_architecture(branch, model.compute_capability):
            yield _dropped(case, f"GPU at {device.bus_id}", model.name, last, (_pci_evidence(device, model),))
    if isinstance(release, Known):
        for gpu in gpus_with_capability(case):
            last = case.matrices.drivers.last_branch_for(gpu.compute_capability)
            dropped = case.matrices.drivers.drops_architecture(release.value, gpu.compute_capability)
            if last is not None and dropped and not _named_by_driver(gpu):
                yield _dropped(case, subject(gpu.gpu), gpu_name(gpu.gpu), last, gpu.evidence)


def _dropped(case: Case, about: str, name: str, last: int, proof: tuple[Evidence, ...]) -> Problem:
    release = case.snapshot.driver.driver_release
    return Problem(
        subject=about,
        what=f"Driver {maybe(release)} no longer supports {name}; {last} is the last branch that does.",
        why="The driver loads and ignores this GPU.",
        evidence=(*evidence("driver.driver_release", release), *proof),
        remedies=driver_fixes.install_driver_branch(case, last, f"Install branch {last}, the last for this GPU"),
        severity=Severity.WARNING if driver_works(case.snapshot) else Severity.ERROR,
    )


def _legacy_driver(case: Case) -> Iterable[Remedy]:
    for error in case.errors("gpu-legacy-driver-needed"):
        branch = error.values.get("branch", "").split(".")[0]
        if branch.isdigit():
            yield from driver_fixes.install_driver_branch(case, int(branch), f"Install the legacy branch {branch}")
            return


def driver_older_than_gpu(case: Case) -> Iterable[Problem]:
    """The installed driver is older than the first one that knows this GPU.

    What it checks: the driver's branch against the first one seen for each GPU that the driver does not list.

    Why it matters: the driver loads and ignores the GPU: nvidia-smi shows "No devices were found", or only the other GPUs.

    How to fix: update the driver.

    When it is wrong: the table's first release is an upper bound for Hopper and later; a GPU that the driver itself lists is
    supported, whatever the table says.

    Sources: NVIDIA driver release notes; tags of the open kernel modules; matrices/cuda_driver.toml, first_driver.
    """
    release = case.snapshot.driver.driver_release
    undriven = _undriven(case)
    silent = case.saw("smi-no-devices", "cuda-error-100", "torch-no-gpu-visible", "gpu-init-failed")
    told = [gpu for gpu in gpus_with_capability(case) if not _named_by_driver(gpu)] if isinstance(release, Known) else []
    if not undriven and not told:
        if not driver_works(case.snapshot) and not gpus(case.snapshot):
            known(case.snapshot.driver.pci_devices)
        return
    candidates: list[tuple[str, str, ComputeCapability, tuple[Evidence, ...]]]
    candidates = [(f"GPU at {d.bus_id}", m.name, m.compute_capability, (_pci_evidence(d, m),)) for d, m in undriven]
    candidates += [(subject(gpu.gpu), gpu_name(gpu.gpu), gpu.compute_capability, gpu.evidence) for gpu in told]
    have = known(release)
    for about, name, compute_capability, proof in candidates:
        first = case.matrices.drivers.first_driver_for(name)
        branch = first.branch if first is not None else case.matrices.drivers.first_branch_for(compute_capability)
        if branch is not None and have.branch < branch:
            sure = bool(undriven) or silent
            yield Problem(
                subject=about,
                what=f"Driver {have} is older than the first that knows {name} (branch {branch}).",
                why="The driver loads and ignores this GPU.",
                evidence=(*evidence("driver.driver_release", release), *proof),
                remedies=fixes.update_driver(case, driver_fixes.branch_release(branch)),
                severity=Severity.ERROR if sure and not driver_works(case.snapshot) else Severity.WARNING,
                confidence=Confidence.LIKELY,
            )


def driver_branch_ended(case: Case) -> Iterable[Problem]:
    """The driver's branch gets no more fixes.

    What it checks: the branch of the driver that runs against the lifecycle table, as of the table's date.

    Why it matters: it works as before; security fixes and support for new kernels go to the branches that are alive.

    How to fix: move to a long-term or production branch when it suits.

    When it is wrong: never an alarm: a branch newer than the table is not judged, and a GPU whose last branch this is has no
    other.

    Sources: NVIDIA data-centre driver documentation, lifecycle; matrices/cuda_driver.toml, branch.
    """
    if not driver_works(case.snapshot):
        raise NotApplicableError("no driver answers")
    release = known(case.snapshot.driver.driver_release)
    drivers = case.matrices.drivers
    branch = drivers.branch(release)
    if branch is None or not branch.ended_by(drivers.as_of):
        return
    lasts = [drivers.last_branch_for(gpu.compute_capability) for gpu in gpus_with_capability(case)]
    if any(last is not None and last <= branch.number for last in lasts):
        return
    when = f" in {branch.end_of_life:%B %Y}" if branch.end_of_life is not None else ""
    yield Problem(
        subject="driver",
        what=f"Driver branch {branch.number} reached its end of life{when}: it gets no more fixes.",
        why="It works as before; fixes and support for new kernels go to the branches that are alive.",
        evidence=evidence("driver.driver_release", case.snapshot.driver.driver_release),
    )


RULES = (
    Rule(
        "CD108",
        "open-module-gpu-unsupported",
        Severity.ERROR,
        "The open kernel module does not drive this GPU",
        open_module_gpu_unsupported,
        explained_by=("gpu-dropped-by-driver",),
        needs_gpu=True,
    ),
    Rule(
        "CD109",
        "proprietary-module-gpu-unsupported",
        Severity.ERROR,
        "This GPU needs the open kernel module",
        proprietary_module_gpu_unsupported,
        explained_by=("driver-older-than-gpu",),
        needs_gpu=True,
    ),
    Rule(
        "CD121",
        "gpu-dropped-by-driver",
        Severity.ERROR,
        "The driver no longer supports this GPU",
        gpu_dropped_by_driver,
        needs_gpu=True,
    ),
    Rule(
        "CD122",
        "driver-older-than-gpu",
        Severity.ERROR,
        "The driver is older than this GPU",
        driver_older_than_gpu,
        needs_gpu=True,
    ),
    Rule(
        "CD123",
        "driver-branch-ended",
        Severity.NOTE,
        "The driver's branch gets no more fixes",
        driver_branch_ended,
        needs_gpu=True,
    ),
)
