"""Rules about the state of GPUs: memory, throttling, links, counters (CD504 to CD513)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Fix, Severity
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import Gpu
from cudadoctor.rules.circumstances import container_shown, in_wsl, on_windows
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import gpu_name, gpus, subject
from cudadoctor.rules.software_questions import reading

GIB = 2**30
ALMOST_ALL = 0.95
"""Share of a GPU's memory in use above which a small program may find none."""
MOSTLY_USED = 0.85
"""Share in use from which a proof that found no memory is put down to the other processes."""
CLEARLY_IN_USE_BYTES = 300 * 2**20
"""More than a driver and an idle context need (about 10 to 250 MiB on current GPUs, nvidia-smi)."""


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
    for gpu in known(case.snapshot.gpus):
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
    for gpu in known(case.snapshot.gpus):
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
    for gpu in known(case.snapshot.gpus):
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
    Rule("CD511", "gpu-memory-full", Severity.NOTE, "Other processes fill a GPU's memory", gpu_memory_full, needs_gpu=True),
    Rule("CD512", "benign-smi-limits", Severity.NOTE, "nvidia-smi cannot show processes here", benign_smi_limits),
    Rule("CD513", "perf-counter-permission", Severity.ERROR, "Profiling counters are restricted", perf_counter_permission),
)
