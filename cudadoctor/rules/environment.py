"""Rules about environment variables that decide which GPU and which driver a program gets (CD7xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Known, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import ErrorSeen
from cudadoctor.rules import driver_fixes
from cudadoctor.rules.circumstances import started_with_gpu, variables
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule
from cudadoctor.rules.evidence import as_evidence, seen, variable_evidence
from cudadoctor.rules.questions import driver_works, gpu_name, gpus

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_ORDER = "CUDA_DEVICE_ORDER"
_OWNERS = ("CUDA_", "NVIDIA_", "NCCL_", "PYTORCH_", "TORCH_")
"""Prefixes of the variables whose names are compared with the table."""


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
        evidence=variable_evidence(VISIBLE_DEVICES, value),
        remedies=driver_fixes.unset(case, VISIBLE_DEVICES),
        tags=("visible-devices-invalid",),
    )


def visible_devices_invalid(case: Case) -> Iterable[Problem]:
    """CUDA_VISIBLE_DEVICES has a value that CUDA cannot follow.

    What it checks: each entry: a number below the number of GPUs, or the UUID of one of them or its beginning (GPU-..., MIG-...;
    of MIG only the form). The list is cut at the first entry that is neither.

    Why it matters: CUDA uses the entries before the bad one and silently ignores the rest; where the first is bad, it sees no
    device at all. A GPU that is named twice makes cuInit fail with error 101 (seen with driver 580.159.04).

    How to fix: name existing GPUs by index or UUID (nvidia-smi -L lists them), without spaces or quotes.

    When it is wrong: indices follow CUDA's order, which is not nvidia-smi's unless CUDA_DEVICE_ORDER=PCI_BUS_ID; the count is
    the same.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    value = known(case.snapshot.environment).get(VISIBLE_DEVICES)
    if value is None or not value.strip() or value.split(",")[0].strip() == "-1":
        return
    value = _without_command(value)
    count = len(gpus(case.snapshot)) if _lists_all_gpus(case) else None
    uuids = _uuids(case) if count else ()
    entries = _until_minus_one(value)
    bad = next((entry for entry in entries if not _is_device(entry, count, uuids)), None)
    twice = next((entry for at, entry in enumerate(entries) if entry in entries[:at]), None)
    if bad is None and twice is not None:
        yield _named_twice(case, value, twice)
    if bad is None:
        return
    many = f"this machine has {count} GPU{'s' if count != 1 else ''}" if count else "it is neither an index nor a UUID"
    if bad.startswith("GPU-"):
        many += ", none with that UUID"
    yield Problem(
        subject=VISIBLE_DEVICES,
        what=f"{VISIBLE_DEVICES}={value!r}: the entry {bad!r} names no GPU ({many}).",
        why="CUDA cuts the list at the first bad entry; what follows, or everything, is hidden.",
        evidence=variable_evidence(VISIBLE_DEVICES, value),
        remedies=driver_fixes.unset(case, VISIBLE_DEVICES),
    )


def _named_twice(case: Case, value: str, entry: str) -> Problem:
    entries = ",".join(dict.fromkeys(_until_minus_one(value)))
    return Problem(
        subject=VISIBLE_DEVICES,
        what=f"{VISIBLE_DEVICES}={value!r} names {entry!r} twice.",
        why="cuInit then fails with error 101, invalid device ordinal, in every program.",
        evidence=variable_evidence(VISIBLE_DEVICES, value),
        remedies=(*driver_fixes.set_to(case, VISIBLE_DEVICES, entries), *driver_fixes.unset(case, VISIBLE_DEVICES)),
    )


def _until_minus_one(value: str) -> tuple[str, ...]:
    """The entries up to the -1 with which a list is cut on purpose, without blanks around them."""
    entries = [entry.strip() for entry in value.split(",")]
    return tuple(entries[: entries.index("-1")] if "-1" in entries else entries)


def _without_command(value: str) -> str:
    """The value without the command that a pasted line `CUDA_VISIBLE_DEVICES=0,1 python train.py` goes on with."""
    first, blank, rest = value.strip().partition(" ")
    return first if blank and rest[:1].isalpha() else value


def _lists_all_gpus(case: Case) -> bool:
    """Can the GPUs be counted? A pasted text often shows some of them only, unless its error says that none was found."""
    if not gpus(case.snapshot):
        return False
    return isinstance(case.snapshot.driver.nvml, Known) or case.saw("cuda-error-100", "torch-no-gpu-visible")


def _uuids(case: Case) -> tuple[str, ...]:
    """The UUIDs of all GPUs; none where one of them is not known."""
    found = tuple(maybe(gpu.uuid) for gpu in gpus(case.snapshot))
    return tuple(uuid.lower() for uuid in found if uuid) if all(found) else ()


def _is_device(entry: str, count: int | None, uuids: tuple[str, ...]) -> bool:
    """May the entry be a device, where there are so many (None: unknown) of these UUIDs (none: unknown)?"""
    if entry.isascii() and entry.isdigit():
        return count is None or int(entry) < count
    if entry.startswith("GPU-") and uuids:
        return any(uuid.startswith(entry.lower()) for uuid in uuids)
    return entry.startswith(("GPU-", "MIG-"))


def _visible(case: Case) -> tuple[str, tuple[Evidence, ...]] | None:
    """The value of CUDA_VISIBLE_DEVICES in the environment or a text, and what shows it."""
    value = variables(case).get(VISIBLE_DEVICES)
    if value is not None:
        return value, variable_evidence(VISIBLE_DEVICES, value)
    shown = case.errors("shown-visible-devices")
    return (shown[-1].values["value"], as_evidence(shown[-1:])) if shown else None


def _asked_ordinal(errors: tuple[ErrorSeen, ...]) -> str:
    return next((error.values["device"] for error in errors if "device" in error.values), "")


def visible_devices_renumbering(case: Case) -> Iterable[Problem]:
    """The program uses a GPU's physical index although CUDA_VISIBLE_DEVICES renumbers the GPUs from 0.

    What it checks: errors about an invalid device ordinal while the variable is set.

    Why it matters: with CUDA_VISIBLE_DEVICES=2,3 the process sees two devices, 0 and 1. cuda:2 does not exist in it.

    How to fix: use the index within the list (0 for the first entry), or unset the variable and use the physical index.

    When it is wrong: a program that asks for more GPUs than the machine has gives the same error.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables; cuda.h, CUDA_ERROR_INVALID_DEVICE (101).
    """
    errors = case.errors("cuda-invalid-device-ordinal")
    if not errors or case.saw("shown-mig", "mig-single-instance"):
        return
    visible = _visible(case)
    if visible is None or "MIG-" in visible[0]:
        return
    value, proof = visible
    count = len([entry for entry in value.split(",") if entry.strip()])
    asked = _asked_ordinal(errors)
    yield Problem(
        subject=VISIBLE_DEVICES,
        what=f"{VISIBLE_DEVICES}={value} shows the program {count} GPU{'s' if count != 1 else ''}, numbered from 0; it asks for "
        + (f"device {asked}." if asked else "one beyond."),
        why="The variable renumbers: its first entry is device 0 in the program, whatever its physical index.",
        evidence=(*as_evidence(errors), *proof),
        confidence=Confidence.LIKELY,
        remedies=(
            driver_fixes.as_user(
                case,
                "Use the index within the list",
                'python -c "import torch; print(torch.cuda.device_count())"',
                "# cuda:0 is the first entry",
            ),
            *driver_fixes.unset(case, VISIBLE_DEVICES),
        ),
    )


def device_ordinal_absent(case: Case) -> Iterable[Problem]:
    """The program asks for a GPU by a number that this process does not have.

    What it checks: errors about an invalid device ordinal where CUDA_VISIBLE_DEVICES is not the reason.

    Why it matters: the call fails (error 101). Often a checkpoint or a configuration from a machine with more GPUs.

    How to fix: load with map_location, or choose an existing device; give a container all GPUs.

    When it is wrong: a MIG-partitioned GPU shows one instance to a process, whatever nvidia-smi lists.

    Sources: cuda.h, CUDA_ERROR_INVALID_DEVICE (101); torch.load, map_location.
    """
    errors = case.errors("cuda-invalid-device-ordinal")
    if not errors or case.saw("mig-single-instance", "shown-mig") or _visible(case) is not None:
        return
    asked = _asked_ordinal(errors)
    count = next((error.values["count"] for error in errors if "count" in error.values), "")
    have = f"; {count} visible" if count else ""
    container = " The container may have been given fewer GPUs than the host has." if started_with_gpu(case) else ""
    yield Problem(
        subject="program",
        what=f"The program asks for GPU {asked or 'by a number'} that this process does not have{have}.",
        why="Device numbers run from 0 to the number of visible GPUs less one." + container,
        evidence=as_evidence(errors),
        confidence=Confidence.LIKELY,
        remedies=(
            driver_fixes.as_user(
                case,
                "See how many GPUs the process has",
                'python -c "import torch; print(torch.cuda.device_count())"',
                "nvidia-smi -L",
            ),
        ),
    )


def mig_uuid_app_unsupported(case: Case) -> Iterable[Problem]:
    """The program cannot parse a (valid) MIG or GPU UUID in CUDA_VISIBLE_DEVICES.

    What it checks: errors of a conversion to a number that quote such a UUID.

    Why it matters: UUIDs are valid for CUDA, and for MIG the only way; this program expects numbers.

    How to fix: update the program; for whole GPUs use the index, for MIG start it in a container that was given the one
    instance, with the variable unset.

    When it is wrong: never seen; the error quotes the value.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables; NVIDIA MIG user guide.
    """
    errors = case.errors("mig-uuid-app-unsupported")
    if not errors:
        return
    device = _asked_ordinal(errors)
    yield Problem(
        subject=VISIBLE_DEVICES,
        what=f"The program cannot parse {device or 'the UUID'} in {VISIBLE_DEVICES}; for CUDA the value is valid.",
        why="It converts the entries to numbers; a MIG instance or GPU may be named by its UUID.",
        evidence=as_evidence(errors),
        remedies=(
            driver_fixes.as_user(case, "Name whole GPUs by their index", f"export {VISIBLE_DEVICES}=0"),
            driver_fixes.as_root(
                "Or give a container the one MIG instance, and leave the variable unset in it",
                "docker run --gpus '\"device=MIG-UUID\"' IMAGE",
                verify=("nvidia-smi -L",),
            ),
        ),
    )


def device_order_differs(case: Case) -> Iterable[Problem]:
    """CUDA numbers the GPUs of this machine in another order than nvidia-smi.

    What it checks: GPUs of several models, without CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Why it matters: CUDA puts the fastest GPU first by default; nvidia-smi goes by PCI address. An index taken from nvidia-smi
    may mean another GPU in CUDA_VISIBLE_DEVICES or cuda:N.

    How to fix: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID.

    When it is wrong: where the fastest GPU is first on the bus, the orders happen to agree.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    names = {gpu_name(gpu) for gpu in known(case.snapshot.gpus)}
    if len(names) < 2:
        raise NotApplicableError("all GPUs are of one model")
    order = known(case.snapshot.environment).get(DEVICE_ORDER, "")
    if order.strip() == "PCI_BUS_ID":
        return
    listed = ", ".join(f"{gpu.index}: {gpu_name(gpu)}" for gpu in gpus(case.snapshot))
    misspelt = f"{DEVICE_ORDER}={order!r} is not a value that CUDA knows. " if order and order.strip() != "FASTEST_FIRST" else ""
    yield Problem(
        subject=DEVICE_ORDER,
        what=f"{misspelt}CUDA may number these GPUs in another order than nvidia-smi ({listed}).",
        why="CUDA puts the fastest first; nvidia-smi goes by PCI address.",
        evidence=(Evidence(fact="gpus", value=listed, source="NVML"), *(variable_evidence(DEVICE_ORDER, order) if order else ())),
        remedies=driver_fixes.set_to(case, DEVICE_ORDER, "PCI_BUS_ID"),
    )


def variable_misspelt(case: Case) -> Iterable[Problem]:
    """A variable is set that nothing reads, and whose name is nearly that of one that CUDA reads.

    What it checks: names with the prefixes of CUDA, NCCL and torch against the table of variables.

    Why it matters: a misspelt name is ignored without a word, so what was meant does not happen.

    How to fix: correct the name.

    When it is wrong: programs of the user's may read variables of their own with such names.

    Sources: matrices/env_vars.toml.
    """
    for name, value in known(case.snapshot.environment).items():
        if not name.startswith(_OWNERS) or not name.isupper():
            continue
        meant = case.matrices.env.meant(name)
        if meant is not None:
            yield Problem(
                subject=name,
                what=f"Nothing is known to read {name}={value}; {meant.name} was probably meant.",
                why="A misspelt name is ignored without a word.",
                evidence=variable_evidence(name, value),
                confidence=Confidence.POSSIBLE,
                remedies=(
                    driver_fixes.as_user(case, f"Set {meant.name} instead", f"unset {name}", f"export {meant.name}={value}"),
                ),
            )


def mps_connection_failed(case: Case) -> Iterable[Problem]:
    """CUDA cannot reach the MPS daemon that it is told to use (error 805).

    What it checks: error 805 and its text.

    Why it matters: with MPS every CUDA program of the user connects to a daemon through the folder CUDA_MPS_PIPE_DIRECTORY. Where
    the daemon is gone or belongs to another user, no program starts.

    How to fix: start the daemon again, or end what is left of it and unset the variable.

    When it is wrong: in a container the folder of the host's daemon has to be mounted.

    Sources: NVIDIA Multi-Process Service documentation; cuda.h, CUDA_ERROR_MPS_CONNECTION_FAILED (805).
    """
    texts = seen(case, "mps-connection-failed")
    status = maybe(case.snapshot.driver.cu_init)
    failed = status is not None and status.code == 805
    if driver_works(case.snapshot):
        return
    if not texts and not failed:
        known(case.snapshot.driver.cu_init)
        return
    folder = variables(case).get("CUDA_MPS_PIPE_DIRECTORY")
    yield Problem(
        subject="MPS",
        what="CUDA cannot reach the MPS daemon" + (f" through {folder}." if folder else "."),
        why="With MPS every CUDA program connects to a daemon; it is gone, or belongs to another user.",
        evidence=(*texts, *(variable_evidence("CUDA_MPS_PIPE_DIRECTORY", folder) if folder else ())),
        remedies=(
            driver_fixes.as_root(
                "Start the daemon again",
                "echo quit | nvidia-cuda-mps-control",
                "nvidia-cuda-mps-control -d",
                verify=("cudadoctor check",),
            ),
            *driver_fixes.unset(case, "CUDA_MPS_PIPE_DIRECTORY"),
        ),
    )


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
    Rule(
        "CD703",
        "visible-devices-renumbering",
        Severity.ERROR,
        "The program uses a physical index under CUDA_VISIBLE_DEVICES",
        visible_devices_renumbering,
        explained_by=("visible-devices-invalid",),
    ),
    Rule("CD704", "mig-uuid-app-unsupported", Severity.ERROR, "The program cannot parse a GPU's UUID", mig_uuid_app_unsupported),
    Rule(
        "CD705",
        "device-order-differs",
        Severity.NOTE,
        "CUDA's order of GPUs is not nvidia-smi's",
        device_order_differs,
        needs_gpu=True,
    ),
    Rule("CD713", "variable-misspelt", Severity.NOTE, "A variable's name is probably misspelt", variable_misspelt),
    Rule(
        "CD714",
        "device-ordinal-absent",
        Severity.ERROR,
        "The program asks for a GPU that it does not have",
        device_ordinal_absent,
    ),
    Rule(
        "CD717",
        "mps-connection-failed",
        Severity.ERROR,
        "CUDA cannot reach the MPS daemon",
        mps_connection_failed,
        needs_gpu=True,
    ),
)
