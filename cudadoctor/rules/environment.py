"""Rules about environment variables that change what CUDA does (CD7xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Evidence, Fix, Severity
from cudadoctor.rules.driver import seen
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.questions import gpus

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def _unset(variable: str) -> tuple[Remedy, ...]:
    return (Remedy(Fix(title=f"Unset {variable}", commands=(f"unset {variable}",), verify=("cudadoctor check",))),)


def _as_evidence(variable: str, value: str) -> tuple[Evidence, ...]:
    return (Evidence(fact=f"environment.{variable}", value=repr(value), source="environment"),)


def visible_devices_hide_all(case: Case) -> Iterable[Problem]:
    """CUDA_VISIBLE_DEVICES hides every GPU from CUDA.

    What it checks: a value that is empty or whose first entry is -1.

    Why it matters: cuInit then answers error 100, "no CUDA-capable device is detected", although the GPU and the driver are
    well; torch.cuda.is_available() is False.

    How to fix: unset the variable, or set it to the GPUs wanted.

    When it is wrong: some programs set it on purpose, to keep a process off the GPU.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    value = known(case.snapshot.environment).get(VISIBLE_DEVICES)
    if value is None:
        return
    first = value.split(",")[0].strip()
    if value.strip() and first not in ("-1", "NoDevFiles"):
        return
    listed = gpus(case.snapshot)
    hidden = f"{len(listed)} GPU{'s' if len(listed) != 1 else ''}" if listed else "every GPU"
    yield Problem(
        subject=VISIBLE_DEVICES,
        what=f"{VISIBLE_DEVICES}={value!r} hides {hidden} from CUDA.",
        why="CUDA sees no device (error 100) although driver and GPU may be well.",
        evidence=_as_evidence(VISIBLE_DEVICES, value),
        remedies=_unset(VISIBLE_DEVICES),
        tags=("visible-devices-invalid",),
    )


def visible_devices_invalid(case: Case) -> Iterable[Problem]:
    """CUDA_VISIBLE_DEVICES has a value that CUDA cannot follow.

    What it checks: each entry: a number below the number of GPUs, or a UUID (GPU-..., MIG-...). The list is cut at the first
    entry that is neither.

    Why it matters: CUDA uses the entries before the bad one and silently ignores the rest; where the first is bad, it sees no
    device at all.

    How to fix: name existing GPUs by index or UUID (nvidia-smi -L lists them), without spaces or quotes.

    When it is wrong: indices follow CUDA's order, which is not nvidia-smi's unless CUDA_DEVICE_ORDER=PCI_BUS_ID; the count is
    the same.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    texts = seen(case, "visible-devices-invalid")
    value = (maybe(case.snapshot.environment) or {}).get(VISIBLE_DEVICES)
    if texts:
        yield Problem(
            VISIBLE_DEVICES,
            f"{VISIBLE_DEVICES} has a value that CUDA cannot follow.",
            evidence=texts,
            remedies=_unset(VISIBLE_DEVICES),
        )
        return
    known(case.snapshot.environment)
    if value is None or not value.strip() or value.split(",")[0].strip() == "-1":
        return
    count = len(gpus(case.snapshot)) or None
    bad = next((entry for entry in value.split(",") if not _is_device(entry, count)), None)
    if bad is not None:
        many = f"this machine has {count} GPU{'s' if count != 1 else ''}" if count else "it is neither an index nor a UUID"
        yield Problem(
            subject=VISIBLE_DEVICES,
            what=f"{VISIBLE_DEVICES}={value!r}: the entry {bad!r} names no GPU ({many}).",
            why="CUDA cuts the list at the first bad entry; what follows, or everything, is hidden.",
            evidence=_as_evidence(VISIBLE_DEVICES, value),
            remedies=_unset(VISIBLE_DEVICES),
        )


def _is_device(entry: str, count: int | None) -> bool:
    text = entry.strip()
    if text.isascii() and text.isdigit():
        return count is None or int(text) < count
    return text.startswith(("GPU-", "MIG-"))


RULES = (
    Rule("CD701", "visible-devices-hide-all", Severity.ERROR, "CUDA_VISIBLE_DEVICES hides every GPU", visible_devices_hide_all),
    Rule(
        "CD702",
        "visible-devices-invalid",
        Severity.ERROR,
        "CUDA_VISIBLE_DEVICES has an invalid entry",
        visible_devices_invalid,
        explained_by=("visible-devices-hide-all",),
    ),
)
