"""Rules about modes of the GPU that an administrator sets: compute mode, MIG (CD506 to CD510)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import serves
from cudadoctor.model.fact import Fact, known, maybe
from cudadoctor.model.finding import Confidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ComputeMode, Gpu
from cudadoctor.rules.architecture_questions import span
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.questions import driver_works, gpu_name, gpus, gpus_with_capability, subject, torch, torch_arch_list

BUSY = ("cuda-devices-unavailable", "device-exclusive-busy")
EXCLUSIVE = (ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD)


def device_exclusive_busy(case: Case) -> Iterable[Problem]:
    """Compute mode is exclusive and another process holds the GPU.

    What it checks: "all CUDA-capable devices are busy or unavailable" (error 46) with the compute mode of the GPUs; MIG and
    the prohibited mode have findings of their own.

    Why it matters: in an exclusive mode a second process cannot create a context, however much memory is free.

    How to fix: end the process that holds the GPU, choose another GPU, or set the default mode.

    When it is wrong: error 46 has other causes: a GPU in a bad state or a MIG instance that is gone; without a known compute
    mode this is only the likeliest.

    Sources: nvidia-smi manual, compute mode; cuda.h, CUDA_ERROR_DEVICE_UNAVAILABLE (46).
    """
    texts = case.errors(*BUSY)
    if not texts:
        return
    modes = {mode for gpu in gpus(case.snapshot) if (mode := maybe(gpu.compute_mode)) is not None}
    if ComputeMode.PROHIBITED in modes or _mig_without_instances(case) or case.saw("cuda-error-802", "mig-misconfigured"):
        return
    exclusive = tuple(gpu for gpu in gpus(case.snapshot) if maybe(gpu.compute_mode) in EXCLUSIVE)
    if modes and not exclusive and not case.saw("device-exclusive-busy"):
        return
    yield Problem(
        subject=subject(exclusive[0]) if exclusive else "GPU",
        what="Another process holds the GPU" + (", whose compute mode is exclusive." if exclusive else " exclusively."),
        why="In an exclusive compute mode only one process at a time can create a context; memory and load do not matter.",
        evidence=(
            *as_evidence(texts),
            *(
                item
                for gpu in exclusive
                for item in evidence(f"gpus[{gpu.index}].compute_mode", gpu.compute_mode, value=_mode(gpu.compute_mode))
            ),
        ),
        remedies=(
            Remedy(Fix(title="See who holds it", commands=("nvidia-smi --query-compute-apps=pid,name,gpu_bus_id --format=csv",))),
            Remedy(_default_mode()),
        ),
        confidence=Confidence.CERTAIN if exclusive or case.saw("device-exclusive-busy") else Confidence.LIKELY,
    )


def _mode(fact: Fact[ComputeMode]) -> str | None:
    mode = maybe(fact)
    return mode.value if mode is not None else None


def _default_mode() -> Fix:
    return Fix(
        title="Let several processes use it",
        commands=("sudo nvidia-smi -c DEFAULT",),
        needs_root=True,
        verify=("nvidia-smi --query-gpu=compute_mode --format=csv",),
    )


def compute_mode_prohibited(case: Case) -> Iterable[Problem]:
    """The compute mode of a GPU is prohibited: no program can use it.

    What it checks: the compute mode of each GPU.

    Why it matters: every attempt to create a context fails with error 46, "devices are busy or unavailable".

    How to fix: set the default mode.

    When it is wrong: an administrator may keep a GPU for the display on purpose; beside others this is a warning only.

    Sources: nvidia-smi manual, compute mode.
    """
    listed = known(case.snapshot.gpus)
    closed = tuple(gpu for gpu in listed if maybe(gpu.compute_mode) is ComputeMode.PROHIBITED)
    for gpu in closed:
        yield Problem(
            subject=subject(gpu),
            what=f"The compute mode of {gpu_name(gpu)} is prohibited: no program can create a context on it.",
            why="Every attempt fails with error 46, although the GPU is listed.",
            evidence=evidence(f"gpus[{gpu.index}].compute_mode", gpu.compute_mode, value="prohibited"),
            remedies=(Remedy(_default_mode()),),
            severity=Severity.ERROR if len(closed) == len(listed) or case.saw(*BUSY) else Severity.WARNING,
        )
    if not closed:
        for gpu in listed:
            known(gpu.compute_mode)


def _mig_is_on(case: Case) -> bool:
    named = any("MIG-" in error.values.get("value", "") for error in case.errors("shown-visible-devices"))
    return named or case.saw("shown-mig") or any(maybe(gpu.mig_enabled) for gpu in gpus(case.snapshot))


def _mig_without_instances(case: Case) -> tuple[Gpu, ...]:
    """GPUs with MIG on and known to have no MIG device."""
    return tuple(gpu for gpu in gpus(case.snapshot) if maybe(gpu.mig_enabled) and maybe(gpu.mig_devices) == ())


def mig_single_instance(case: Case) -> Iterable[Problem]:
    """A program tries to use more than one MIG instance; a process can use only one.

    What it checks: torch's assertion "device >= 0 && device < num_gpus" and invalid device ordinals where MIG is on.

    Why it matters: CUDA shows a process one MIG instance only, while NVML-based counts (nvidia-smi, some launchers) show all.

    How to fix: start one process for each instance, each with CUDA_VISIBLE_DEVICES set to the UUID of its instance.

    When it is wrong: without MIG the same assertion comes from an index outside CUDA_VISIBLE_DEVICES.

    Sources: NVIDIA Multi-Instance GPU User Guide, CUDA Device Enumeration.
    """
    asserted = case.errors("mig-single-instance")
    ordinals = case.errors("cuda-invalid-device-ordinal")
    on = _mig_is_on(case)
    if not asserted and not (ordinals and on):
        return
    if not on and case.saw("shown-visible-devices"):
        return
    yield Problem(
        subject="CUDA",
        what="The program uses a second CUDA device where a process has one MIG instance only.",
        why="CUDA enumerates one MIG instance for each process; counts from NVML show all of them.",
        evidence=(*as_evidence((*asserted, *ordinals)), *seen(case, "shown-mig")[:2]),
        remedies=(
            Remedy(
                Fix(
                    title="Give each process one instance by its UUID",
                    commands=("nvidia-smi -L", "CUDA_VISIBLE_DEVICES=MIG-UUID python PROGRAM"),
                    where=Where.VENV,
                )
            ),
        ),
        confidence=Confidence.CERTAIN if on and asserted else Confidence.LIKELY,
    )


def mig_misconfigured(case: Case) -> Iterable[Problem]:
    """MIG is on and has no usable instance, or its set-up failed.

    What it checks: GPUs in MIG mode without MIG devices; texts of nvidia-smi and the device plugin about MIG; "devices are busy
    or unavailable" on a GPU in MIG mode.

    Why it matters: a GPU in MIG mode without instances offers nothing to CUDA: programs see no device.

    How to fix: create GPU and compute instances, or switch MIG off.

    When it is wrong: a change of the mode waits for a reset of the GPU; "pending" then says so.

    Sources: NVIDIA Multi-Instance GPU User Guide.
    """
    empty = _mig_without_instances(case)
    busy = seen(case, "cuda-devices-unavailable") if any(maybe(gpu.mig_enabled) for gpu in gpus(case.snapshot)) else ()
    texts = (*seen(case, "mig-misconfigured"), *busy)
    if not texts and not empty:
        for gpu in known(case.snapshot.gpus):
            known(gpu.mig_enabled)
        return
    yield Problem(
        subject=subject(empty[0]) if empty else "GPU",
        what=f"{gpu_name(empty[0])} is in MIG mode and has no MIG device."
        if empty
        else "The set-up of MIG failed or is not complete.",
        why="CUDA can use instances only, not the GPU as a whole, while MIG is on.",
        evidence=(
            *texts,
            *(item for gpu in empty for item in evidence(f"gpus[{gpu.index}].mig_enabled", gpu.mig_enabled, value="enabled")),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="Create an instance (the profiles are listed first), or switch MIG off",
                    commands=(
                        "sudo nvidia-smi mig -lgip",
                        "sudo nvidia-smi mig -cgi PROFILE -C",
                        "sudo nvidia-smi -i INDEX -mig 0",
                    ),
                    needs_root=True,
                    verify=("nvidia-smi -L",),
                )
            ),
        ),
        severity=Severity.WARNING if driver_works(case.snapshot) else None,
    )


def mixed_gpus(case: Case) -> Iterable[Problem]:
    """GPUs of different compute capabilities are in one machine.

    What it checks: the compute capabilities of all GPUs.

    Why it matters: what is built for one may lack code for another, and work is spread unevenly. One list of architectures with
    an entry for each serves all.

    How to fix: build for all of them, or show each program the GPUs it is meant for.

    When it is wrong: it is a remark, not a fault.

    Sources: CUDA C++ Programming Guide, Binary Compatibility.
    """
    listed = gpus_with_capability(case)
    if len(listed) < 2:
        known(case.snapshot.gpus)
        return
    capabilities = sorted({gpu.compute_capability for gpu in listed})
    if len(capabilities) < 2:
        return
    build = torch(case.snapshot)
    archs = maybe(torch_arch_list(case, build)) if build is not None else None
    all_served = archs is not None and all(any(serves(target, cc) for target in archs) for cc in capabilities)
    served = f" The installed torch ({span(archs)}) serves all." if archs is not None and all_served else ""
    yield Problem(
        subject="GPUs",
        what=f"The GPUs have {len(capabilities)} compute capabilities: {', '.join(map(str, capabilities))}.{served}",
        why=f"What is compiled here has to hold code for each: TORCH_CUDA_ARCH_LIST={';'.join(map(str, capabilities))!r}.",
        evidence=tuple(item for gpu in listed for item in gpu.evidence),
        remedies=(Remedy(Fix(title="Get the list for builds", commands=("cudadoctor archs",))),),
    )


RULES = (
    Rule(
        "CD506",
        "compute-mode-prohibited",
        Severity.ERROR,
        "The compute mode forbids every program",
        compute_mode_prohibited,
        needs_gpu=True,
    ),
    Rule("CD507", "device-exclusive-busy", Severity.ERROR, "Another process holds the GPU exclusively", device_exclusive_busy),
    Rule("CD508", "mig-single-instance", Severity.ERROR, "A process can use only one MIG instance", mig_single_instance),
    Rule("CD509", "mig-misconfigured", Severity.ERROR, "MIG is on without a usable instance", mig_misconfigured, needs_gpu=True),
    Rule("CD510", "mixed-gpus", Severity.NOTE, "GPUs of different compute capabilities", mixed_gpus, needs_gpu=True),
)
