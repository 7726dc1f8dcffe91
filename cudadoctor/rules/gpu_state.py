"""Rules about the state of GPUs: MIG, compute mode, memory, throttling, links (CD504 to CD513)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import serves
from cudadoctor.model.fact import Fact, known, maybe
from cudadoctor.model.finding import Confidence, Fix, Severity, Where
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import ComputeMode, Gpu
from cudadoctor.rules.architectures import span
from cudadoctor.rules.circumstances import as_evidence, container_shown, in_wsl, on_windows
from cudadoctor.rules.driver import seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import driver_works, gpu_name, gpus, gpus_with_capability, subject, torch, torch_arch_list
from cudadoctor.rules.software_questions import reading

GIB = 2**30
ALMOST_ALL = 0.95
"""Share of a GPU's memory in use above which a small program may find none."""
MOSTLY_USED = 0.85
"""Share in use from which a proof that found no memory is put down to the other processes."""
CLEARLY_IN_USE_BYTES = 300 * 2**20
"""More than a driver and an idle context need (about 10 to 250 MiB on current GPUs, nvidia-smi)."""


def _gpus(case: Case) -> tuple[Gpu, ...]:
    """The GPUs; ends the rule as unknown or not applicable where none are listed."""
    return known(case.snapshot.gpus)


# Who may use a GPU


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
    listed = _gpus(case)
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


# MIG


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
        for gpu in _gpus(case):
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


# Notes and measurements


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
        _gpus(case)
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


def starved_by_others(case: Case, proof: Proof) -> bool:
    """Did a proof find no memory on a GPU that is nearly full? That says nothing about the stack."""
    if proof.error is None or proof.error.code != OUT_OF_MEMORY:
        return False
    gpu = next((each for each in gpus(case.snapshot) if each.index == proof.gpu), None)
    total, used = (maybe(gpu.memory_total_bytes), maybe(gpu.memory_used_bytes)) if gpu is not None else (None, None)
    return bool(total) and used is not None and total is not None and used / total >= MOSTLY_USED


def gpu_memory_full(case: Case) -> Iterable[Problem]:
    """Other processes fill nearly all of a GPU's memory.

    What it checks: the memory in use on each GPU; whether a proof failed for want of memory.

    Why it matters: a program that starts now gets error 2, out of memory, although nothing is broken.

    How to fix: wait, end the processes that hold the memory, or choose another GPU.

    When it is wrong: on a machine that is meant to be busy this is as it should be; without a failure it is only noted.

    Sources: NVML, nvmlDeviceGetMemoryInfo; cuda.h, CUDA_ERROR_OUT_OF_MEMORY (2).
    """
    starved = {proof.gpu for proof in case.proofs if starved_by_others(case, proof)}
    for gpu in _gpus(case):
        total, used = maybe(gpu.memory_total_bytes), maybe(gpu.memory_used_bytes)
        if not total or used is None:
            continue
        if used / total >= ALMOST_ALL or gpu.index in starved:
            yield Problem(
                subject=subject(gpu),
                what=f"{used / GIB:.1f} GiB of the {total / GIB:.1f} GiB of {gpu_name(gpu)} are in use.",
                why="A program that starts now may get error 2 (out of memory); the stack is not at fault.",
                evidence=evidence(f"gpus[{gpu.index}].memory_used_bytes", gpu.memory_used_bytes),
                remedies=(
                    Remedy(
                        Fix(
                            title="See who holds the memory",
                            commands=("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",),
                        )
                    ),
                ),
                severity=Severity.WARNING if gpu.index in starved else None,
            )


OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY (cuda.h)."""
FAULTY_THROTTLE = {
    "hw_thermal_slowdown": "it is too hot",
    "hw_power_brake_slowdown": "the power supply asks it to slow down",
    "sw_thermal_slowdown": "it is above its target temperature",
}
"""Reasons that are no ordinary power management (NVML, clocks event reasons); power cap and idle are."""


def gpu_throttled(case: Case) -> Iterable[Problem]:
    """A GPU has slowed down because of heat or of the power supply.

    What it checks: the reasons that the driver gives for lowered clocks; power cap and idle are ordinary and not named.

    Why it matters: kernels run at a fraction of the GPU's speed; heat that goes on ends in errors.

    How to fix: clean the air's way, check fans and power cables; lower the power limit until they are mended.

    When it is wrong: a short peak just when it was asked; ask again under load.

    Sources: NVML API, nvmlClocksEventReasons.
    """
    for gpu in _gpus(case):
        reasons = maybe(gpu.throttle_reasons) or ()
        named = [FAULTY_THROTTLE[reason] for reason in reasons if reason in FAULTY_THROTTLE]
        if named:
            heat = maybe(gpu.temperature_c)
            yield Problem(
                subject=subject(gpu),
                what=f"{gpu_name(gpu)} has lowered its clocks: {', '.join(named)}{f' ({heat} °C)' if heat is not None else ''}.",
                why="Kernels run at a fraction of their speed.",
                evidence=evidence(f"gpus[{gpu.index}].throttle_reasons", gpu.throttle_reasons, value=", ".join(reasons)),
                remedies=(
                    Remedy(
                        Fix(
                            title="Watch temperature, power and clocks",
                            commands=("nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",),
                        )
                    ),
                ),
            )


def pcie_link_degraded(case: Case) -> Iterable[Problem]:
    """A GPU's PCIe link has fewer lanes than GPU and slot can have.

    What it checks: the current link width against the largest that GPU and system support; the generation is lowered when
    idle and says nothing.

    Why it matters: copies between host and GPU run at a fraction of their speed; a link that lost lanes may fail altogether.

    How to fix: reseat the board, look at riser and slot, and at the firmware's settings for the slot.

    When it is wrong: some laptops switch lanes off while idle; without load it is only noted.

    Sources: NVML API, nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth.
    """
    for gpu in _gpus(case):
        width, largest = maybe(gpu.pcie_width), maybe(gpu.pcie_width_max)
        if width and largest and width < largest:
            busy = (maybe(gpu.utilization_percent) or 0) > 0
            yield Problem(
                subject=subject(gpu),
                what=f"The PCIe link of {gpu_name(gpu)} has {width} of {largest} lanes.",
                why="Copies between host and GPU are slower in proportion.",
                evidence=(
                    *evidence(f"gpus[{gpu.index}].pcie_width", gpu.pcie_width),
                    *evidence(f"gpus[{gpu.index}].pcie_width_max", gpu.pcie_width_max),
                ),
                remedies=(
                    Remedy(
                        Fix(
                            title="See the link as GPU and slot offer it, under load",
                            commands=("sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'",),
                            needs_root=True,
                        )
                    ),
                ),
                severity=Severity.WARNING if busy else Severity.NOTE,
            )


def perf_counter_permission(case: Case) -> Iterable[Problem]:
    """Profiling counters are restricted to administrators (ERR_NVGPUCTRPERM).

    What it checks: the profilers' own words. The restriction by itself is the driver's default and no fault.

    Why it matters: Nsight Compute and CUPTI cannot read performance counters; programs run as ever.

    How to fix: on the host, run the profiler as root or lift the restriction by a module option; a container needs
    --cap-add=SYS_ADMIN besides. On rented machines only the provider can do so.

    When it is wrong: a virtual GPU has a setting of its own for profiling.

    Sources: developer.nvidia.com/ERR_NVGPUCTRPERM.
    """
    texts = seen(case, "perf-counter-permission")
    if not texts:
        return
    inside = container_shown(case)
    option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    container = (
        Remedy(
            Fix(
                title="Start the container with the capability that profiling needs",
                commands=("docker run --cap-add=SYS_ADMIN --gpus all IMAGE",),
            )
        ),
    )
    yield Problem(
        subject="profiler",
        what="GPU performance counters are restricted to administrators here.",
        why="Profilers cannot read them; everything else works. The restriction is the driver's default.",
        evidence=(*texts, *evidence("driver.profiling_restricted", case.snapshot.driver.profiling_restricted)),
        remedies=(
            *(container if inside else ()),
            Remedy(
                Fix(
                    title="Lift the restriction on the host" if inside else "Lift the restriction",
                    commands=(
                        f"echo '{option}' | sudo tee /etc/modprobe.d/nvidia-profiling.conf",
                        "sudo update-initramfs -u",
                        "sudo reboot",
                    ),
                    needs_root=True,
                    needs_reboot=True,
                    verify=("grep RmProfilingAdminOnly /proc/driver/nvidia/params",),
                )
            ),
        ),
        references=("https://developer.nvidia.com/ERR_NVGPUCTRPERM",),
    )


def benign_smi_limits(case: Case) -> Iterable[Problem]:
    """nvidia-smi shows no processes although memory is in use: it cannot see them here.

    What it checks: memory in use without a process in the list, or with N/A as the memory of all processes, in a container, in
    WSL or under Windows, where nothing else is wrong.

    Why it matters: it does not: the driver knows process numbers of the host only, and under Windows (WDDM) and WSL the
    operating system keeps the figures. CUDA works.

    How to fix: nothing; look on the host, or start the container with --pid=host.

    When it is wrong: on a bare Linux machine memory without a process can be left over by one that died; that is not meant
    here.

    Sources: nvidia-smi manual, processes; NVIDIA Container Toolkit and CUDA on WSL documentation, known limitations.
    """
    if any(not error.kind.startswith(("shown-", "benign-")) for error in case.snapshot.errors):
        raise NotApplicableError("there are errors to explain")
    where = _where_smi_is_blind(case)
    if where is None:
        return
    blind = tuple(
        gpu
        for gpu in gpus(case.snapshot)
        if _processes_without_memory(case, gpu)
        or ((maybe(gpu.memory_used_bytes) or 0) > CLEARLY_IN_USE_BYTES and not (maybe(gpu.compute_process_count) or 0))
    )
    for gpu in blind[:1]:
        yield Problem(
            subject=subject(gpu),
            what=f"nvidia-smi shows no process on {gpu_name(gpu)}, or no memory of its processes, although memory is in use: it cannot see them {where}.",
            why="That is a limit of the tool, not a fault: CUDA works.",
            evidence=evidence(f"gpus[{gpu.index}].memory_used_bytes", gpu.memory_used_bytes),
        )


def _processes_without_memory(case: Case, gpu: Gpu) -> bool:
    """Does the pasted process table show N/A in place of the memory of every process?"""
    listed = [each for each in reading(case.snapshot, "nvidia_smi").get("processes") or () if each["gpu"] == gpu.index]
    return bool(listed) and all(each["used_mib"] is None for each in listed)


def _where_smi_is_blind(case: Case) -> str | None:
    if container_shown(case):
        return "in a container"
    if in_wsl(case):
        return "in WSL"
    return "under Windows (WDDM)" if on_windows(case) else None


RULES = (
    Rule("CD504", "gpu-throttled", Severity.WARNING, "A GPU has slowed down for heat or power", gpu_throttled, needs_gpu=True),
    Rule("CD505", "pcie-link-degraded", Severity.WARNING, "A GPU's PCIe link has lost lanes", pcie_link_degraded, needs_gpu=True),
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
    Rule("CD511", "gpu-memory-full", Severity.NOTE, "Other processes fill a GPU's memory", gpu_memory_full, needs_gpu=True),
    Rule("CD512", "benign-smi-limits", Severity.NOTE, "nvidia-smi cannot show processes here", benign_smi_limits),
    Rule("CD513", "perf-counter-permission", Severity.ERROR, "Profiling counters are restricted", perf_counter_permission),
)
