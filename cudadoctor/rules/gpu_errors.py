"""Rules about GPUs that fail: Xids of the kernel log, lost GPUs, memory errors (CD501 to CD503, CD514, CD515)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.matrices.errors import Xid
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.snapshot import ErrorSeen, Gpu
from cudadoctor.rules import driver_fixes
from cudadoctor.rules.circumstances import container_shown
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence
from cudadoctor.rules.questions import gpu_name, gpus, subject

XID_BUS = 79
XIDS_OF_LOST_BUS = frozenset({XID_BUS})
XIDS_OF_ECC = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})
"""Uncorrectable memory errors and what follows from them (matrices/cuda_errors.toml, Xid catalogue)."""
XIDS_OF_GSP = frozenset({119, 120})
"""They have a finding of their own: gsp-failure."""


def _gpus(case: Case) -> tuple[Gpu, ...]:
    """The GPUs; ends the rule as unknown or not applicable where none are listed."""
    return known(case.snapshot.gpus)


def xids(case: Case) -> tuple[tuple[int, ErrorSeen], ...]:
    """The Xids that texts name, with their lines; 79 has a kind of its own."""
    found = [(XID_BUS, error) for error in case.errors("xid-bus-error")]
    found += [(int(number), error) for error in case.errors("xid") if (number := error.values.get("xid", "")).isdigit()]
    return tuple(found)


def _is_lost(error: ErrorSeen) -> bool:
    words = error.text.lower()
    return "lost" in words or "requires reset" in words or "fallen off" in words


def xid_bus_error(case: Case) -> Iterable[Problem]:
    """Xid 79: the GPU has fallen off the bus.

    What it checks: the kernel log's Xid 79, "GPU has fallen off the bus", nvidia-smi's "GPU is lost" and "Unable to determine
    the device handle" outside of containers, and GPUs that answer no tool any more.

    Why it matters: the PCIe link to the board is gone; no driver or CUDA version changes that. Programs end with no device or
    an unknown error.

    How to fix: reboot to get the GPU back; then look at power cables and supply, riser or external connection, temperature,
    and try a lower PCIe generation or power limit. If it comes back, have the board checked.

    When it is wrong: "Unknown Error" for the handle in a container means a revoked device access instead.

    Sources: NVIDIA, XID Errors; matrices/cuda_errors.toml, xid 79.
    """
    texts = tuple(error for number, error in xids(case) if number in XIDS_OF_LOST_BUS)
    handles = tuple(error for error in case.errors("device-handle-unknown-error") if _is_lost(error) or not container_shown(case))
    lost = tuple(gpu for gpu in gpus(case.snapshot) if "lost" in gpu.error.lower() or "fallen off" in gpu.error.lower())
    if not texts and not handles and not lost:
        return
    where = next((error.values["bus_id"] for error in texts if error.values.get("bus_id")), None)
    yield Problem(
        subject=subject(lost[0]) if lost else where or "GPU",
        what=f"The GPU{f' at {where}' if where else ''} has fallen off the bus{' (Xid 79)' if texts else ''}: the PCIe link to it is lost.",
        why="This is a fault of power, link, heat or board, not of a CUDA version; no program can use the GPU until it is reset.",
        evidence=(
            *as_evidence((*texts, *handles)),
            *(Evidence(fact=f"gpus[{gpu.index}].error", value=gpu.error, source="driver") for gpu in lost),
        ),
        remedies=_reset_after_loss(),
        confidence=Confidence.CERTAIN if texts or lost else Confidence.LIKELY,
    )


def _reset_after_loss() -> tuple[Remedy, ...]:
    return (
        Remedy(
            Fix(
                title="Reboot to get the GPU back, then watch the link, power and temperature under load",
                commands=(
                    "sudo reboot",
                    "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",
                    "sudo dmesg | grep -iE 'xid|aer|pcie'",
                ),
                needs_root=True,
                needs_reboot=True,
            )
        ),
        Remedy(
            Fix(
                title="Try a lower power limit, to tell a weak supply from a weak link; then check cables, riser and slot",
                commands=("sudo nvidia-smi -pl WATTS",),
                needs_root=True,
            )
        ),
    )


def _other_xids(case: Case) -> tuple[tuple[Xid, ErrorSeen], ...]:
    skipped = XIDS_OF_LOST_BUS | XIDS_OF_ECC | XIDS_OF_GSP
    found = []
    for number, error in xids(case):
        row = case.matrices.errors.xid(number) if number not in skipped else None
        if row is not None:
            found.append((row, error))
    return tuple(found)


def _blame(row: Xid) -> str:
    """Whose fault an Xid usually is: application, driver or hardware, as the matrix says; `driver or hardware` where it does not."""
    return row.likely or "driver or hardware"


def gpu_xid(case: Case) -> Iterable[Problem]:
    """The kernel driver logged an Xid that points at the driver or the hardware.

    What it checks: Xid numbers in the text or log, whose meaning the matrix knows; those of applications are noted apart.

    Why it matters: an Xid is the driver's record of a failure on the GPU; its number says who is to blame and what to do.

    How to fix: follow the action of the Xid catalogue: restart the program, reset the GPU, or have the board checked.

    When it is wrong: an old line of the log may belong to a failure that is over.

    Sources: NVIDIA, XID Errors and Xid catalogue; matrices/cuda_errors.toml.
    """
    for row, error in _other_xids(case):
        if _blame(row).startswith(("application", "follow", "informational")):
            continue
        ignored = row.immediate_action == "IGNORE"
        yield _xid_problem(row, error, Severity.WARNING if ignored else None)


def app_xid(case: Case) -> Iterable[Problem]:
    """The kernel driver logged an Xid that a program's own fault causes.

    What it checks: Xids that the catalogue puts down to the application: 13 (exception in a kernel), 31 (illegal address), 43,
    45 and others.

    Why it matters: the machine is sound; a kernel of the program reads or writes where it must not, or was killed.

    How to fix: run the program under compute-sanitizer, which names the kernel and the line.

    When it is wrong: the same Xid of many programs on one GPU only points at that GPU.

    Sources: NVIDIA, XID Errors and Xid catalogue; matrices/cuda_errors.toml.
    """
    for row, error in _other_xids(case):
        if _blame(row).startswith("application"):
            yield _xid_problem(row, error, None)


def _xid_problem(row: Xid, error: ErrorSeen, severity: Severity | None) -> Problem:
    meaning = row.meaning or row.description or row.name or "no description"
    return Problem(
        subject=error.values.get("bus_id") or "GPU",
        what=f"Xid {row.number}: {meaning}.",
        why=f"Likely at fault: {_blame(row)}." + (f" Action: {row.action}." if row.action else ""),
        evidence=as_evidence((error,)),
        remedies=(driver_fixes.read_kernel_log(),),
        severity=severity,
        confidence=Confidence.LIKELY,
    )


def ecc_uncorrected(case: Case) -> Iterable[Problem]:
    """The GPU's memory had errors that ECC could not correct.

    What it checks: the volatile count of uncorrected ECC errors, Xids 48, 63, 64, 92, 94, 95, 140, 171 and 172, and error 214
    (uncorrectable ECC error).

    Why it matters: data in that memory is lost and the programs that used it end; rows are remapped at the next reset.

    How to fix: drain the GPU and reset it; if errors come again, have the board replaced.

    When it is wrong: the volatile count goes on until the driver is reloaded: the errors may have been dealt with since.

    Sources: NVIDIA, GPU Memory Error Management; matrices/cuda_errors.toml.
    """
    texts = (*case.errors("gpu-ecc-error"), *(error for number, error in xids(case) if number in XIDS_OF_ECC))
    counted = tuple(gpu for gpu in gpus(case.snapshot) if (maybe(gpu.ecc_uncorrected) or 0) > 0)
    if texts and not counted:
        yield _ecc_problem("GPU", "The GPU reported memory errors that ECC could not correct.", as_evidence(texts))
        return
    for gpu in counted:
        count = maybe(gpu.ecc_uncorrected) or 0
        yield _ecc_problem(
            subject(gpu),
            f"{gpu_name(gpu)} counts {count} uncorrected ECC error{'s' if count > 1 else ''} since the driver was loaded.",
            (*evidence(f"gpus[{gpu.index}].ecc_uncorrected", gpu.ecc_uncorrected), *as_evidence(texts)),
        )
    if not counted:
        for gpu in _gpus(case):
            known(gpu.ecc_uncorrected)


def _ecc_problem(who: str, what: str, proof: tuple[Evidence, ...]) -> Problem:
    return Problem(
        subject=who,
        what=what,
        why="Data in that memory is lost; programs that used it end with error 214. The row is remapped at the next reset.",
        evidence=proof,
        remedies=(
            Remedy(
                Fix(
                    title="See the counts and pending remaps, then reset the GPU once nothing uses it",
                    commands=("nvidia-smi -q -d ECC,ROW_REMAPPER", "sudo nvidia-smi --gpu-reset -i INDEX"),
                    needs_root=True,
                )
            ),
        ),
    )


def gpu_not_answering(case: Case) -> Iterable[Problem]:
    """One GPU answers a tool with an error, while others may work.

    What it checks: what NVML and nvidia-smi say in place of a GPU's values ("Unknown Error", ERR!).

    Why it matters: CUDA enumerates all GPUs at start; one that does not answer can slow down or break programs on the others.

    How to fix: look at the kernel log for this GPU's bus address; reset or reboot.

    When it is wrong: ERR! beside a single sensor (the fan) can be that sensor alone.

    Sources: NVML API, return codes.
    """
    for gpu in _gpus(case):
        if gpu.error and "lost" not in gpu.error.lower():
            yield Problem(
                subject=subject(gpu),
                what=f"{gpu_name(gpu)} answers with an error: {gpu.error.rstrip('.')}.",
                why="A GPU that does not answer its own driver cannot be relied on, and can keep others from starting.",
                evidence=(Evidence(fact=f"gpus[{gpu.index}].error", value=gpu.error, source="driver"),),
                remedies=(driver_fixes.read_kernel_log(),),
                severity=Severity.WARNING if gpu.error.startswith("ERR!") else None,
                confidence=Confidence.LIKELY,
            )


CAUSES_OF_LOSS = ("xid-bus-error",)

RULES = (
    Rule("CD501", "xid-bus-error", Severity.ERROR, "The GPU has fallen off the bus (Xid 79)", xid_bus_error),
    Rule(
        "CD502",
        "gpu-xid",
        Severity.ERROR,
        "The driver logged a failure of driver or hardware",
        gpu_xid,
        explained_by=CAUSES_OF_LOSS,
    ),
    Rule(
        "CD503",
        "ecc-uncorrected",
        Severity.ERROR,
        "GPU memory errors that ECC could not correct",
        ecc_uncorrected,
        needs_gpu=True,
    ),
    Rule(
        "CD514",
        "gpu-not-answering",
        Severity.ERROR,
        "A GPU answers with an error",
        gpu_not_answering,
        explained_by=("xid-bus-error", "nvml-version-mismatch", "nvml-unknown-cgroup"),
        needs_gpu=True,
    ),
    Rule(
        "CD515",
        "app-xid",
        Severity.ERROR,
        "The driver logged a fault of a program",
        app_xid,
        explained_by=("app-illegal-address", "app-device-assert", *CAUSES_OF_LOSS),
    ),
)
