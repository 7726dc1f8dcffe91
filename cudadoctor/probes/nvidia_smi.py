"""What nvidia-smi prints: its table's head, its CSV, its list; after a hang it is not called again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import ApiStatus, ComputeMode, Gpu
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease, VersionError
from cudadoctor.probes.asking import not_applicable, not_found, short, unsuccessful
from cudadoctor.probes.nvml import bus_id
from cudadoctor.system import Completed, ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.system import System

T = TypeVar("T")

SOURCE = "nvidia-smi"
OTHER_PLACES = (
    "/usr/lib/wsl/lib/nvidia-smi",
    r"C:\Windows\System32\nvidia-smi.exe",
    r"C:\Program Files\NVIDIA Corporation\NVSMI\nvidia-smi.exe",
)
FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "memory.used",
    "compute_mode",
    "persistence_mode",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "clocks.current.sm",
    "clocks.max.sm",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "ecc.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "mig.mode.current",
    "compute_cap",
)
MIN_TIMEOUT_S = 0.5
"""Left for the later calls where the first one took nearly all the time."""
MAX_UNKNOWN_FIELDS = 4
"""Fields that an old nvidia-smi may reject, one at a time, before the CSV is given up."""
MIB = 1024 * 1024
HEADER = re.compile(
    r"NVIDIA-SMI\s+(?P<smi>[\d.]+)\s.*?(?:Driver|KMD) Version:\s*(?P<driver>[\d.]+)(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>\S+))?"
)
LIST_GPU = re.compile(r"GPU (?P<index>\d{1,4}): (?P<name>.+?) \(UUID: (?P<uuid>[\w-]+)\)")
LIST_MIG = re.compile(r"^[ \t]+MIG (?P<profile>\S+)[ \t]+Device[ \t]+\d+:", re.MULTILINE)
UNKNOWN_FIELD = re.compile(r'Field "([\w.]+)" is not a valid field to query')
COMPUTE_MODES = {
    "Default": ComputeMode.DEFAULT,
    "Exclusive_Process": ComputeMode.EXCLUSIVE_PROCESS,
    "Exclusive_Thread": ComputeMode.EXCLUSIVE_THREAD,
    "Prohibited": ComputeMode.PROHIBITED,
}
SWITCH = {"Enabled": True, "Disabled": False, "On": True, "Off": False}


@dataclass(frozen=True)
class SmiAnswer:
    """What nvidia-smi said; each part missing with the reason where it said nothing."""

    status: Fact[ApiStatus]
    driver_release: Fact[DriverRelease] = NOT_ASKED
    driver_cuda_version: Fact[CudaVersion] = NOT_ASKED
    gpus: Fact[tuple[Gpu, ...]] = NOT_ASKED
    said: str = ""
    """Its error text, in full, for the table of known errors."""

    @classmethod
    def nothing(cls, why: Missing, said: str = "") -> SmiAnswer:
        """The answer of one that did not answer."""
        return cls(why, why, why, why, said)


def read_nvidia_smi(system: System, timeout: float) -> SmiAnswer:
    """Call nvidia-smi: first plainly, then, only if that went well, for its CSV and its list."""
    program = find_program(system)
    if isinstance(program, Missing):
        return SmiAnswer.nothing(program)
    table = _call(system, program, (), timeout)
    if isinstance(table, Missing):
        return SmiAnswer.nothing(table)
    failure = unsuccessful(table, timeout, SOURCE)
    said = short(f"{table.stdout}\n{table.stderr}")
    if failure is not None:
        status = _status(table) if failure.reason is MissingReason.FAILED and not table.truncated else failure
        return SmiAnswer(status, failure, failure, failure, said)
    driver, cuda = parse_header(table.stdout)
    rest = max(timeout - table.seconds, MIN_TIMEOUT_S)
    gpus = _query(system, program, rest)
    if isinstance(gpus, Known):
        gpus = _with_mig_devices(gpus, _list(system, program, rest))
    complaint = said if isinstance(driver, Missing) else ""
    return SmiAnswer(_status(table), driver, cuda, gpus, complaint)


def find_program(system: System) -> str | Missing:
    """The nvidia-smi that a shell would run, else the one that the driver keeps elsewhere (WSL, Windows)."""
    if system.platform == "darwin":
        return not_applicable("CUDA does not exist on this platform", SOURCE)
    if system.uname is None:
        return not_applicable("the machine of these files is not running", SOURCE)
    for candidate in ("nvidia-smi", *OTHER_PLACES):
        if found := system.which(candidate):
            return found[0]
    return not_found("nvidia-smi is not on the PATH", SOURCE)


def parse_header(text: str) -> tuple[Fact[DriverRelease], Fact[CudaVersion]]:
    """Driver release and newest supported CUDA version from the head of the table.

    Samples:
        | NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
        | NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |
    """
    match = HEADER.search(text)
    if match is None:
        unread = Missing(MissingReason.PARSE_ERROR, f"no table in: {short(text)!r}", SOURCE)
        return unread, unread
    return _converted(match["driver"], DriverRelease.parse), _converted(match["cuda"] or "N/A", CudaVersion.parse)


def parse_query(text: str, fields: tuple[str, ...] = FIELDS) -> tuple[Gpu, ...]:
    """The GPUs of a CSV without head and units, columns as in `fields`; raises ValueError for a row of another width.

    Sample: `0, NVIDIA GeForce RTX 4090, GPU-1a2b, 00000000:01:00.0, 535.104.05, 24564, 412, Default, Disabled, [N/A]`
    """
    rows = (tuple(cell.strip() for cell in line.split(",")) for line in text.splitlines() if line.strip())
    return tuple(_gpu(row, fields) for row in rows)


def parse_list(text: str) -> dict[int, tuple[str, ...]]:
    """The MIG profiles of each GPU index in `nvidia-smi -L`.

    Sample:
        GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000000-0000-4000-8000-0000000000ac)
          MIG 3g.40gb     Device  0: (UUID: MIG-00000000-0000-4000-8000-0000000000ad)
    """
    heads = list(LIST_GPU.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    return {
        int(head["index"]): tuple(match["profile"] for match in LIST_MIG.finditer(text[head.end() : end]))
        for head, end in zip(heads, ends, strict=True)
    }


def _call(system: System, program: str, arguments: tuple[str, ...], timeout: float) -> Completed | Missing:
    try:
        return system.run((program, *arguments), timeout)
    except ProgramNotFoundError as error:
        return Missing(MissingReason.FAILED, str(error), SOURCE)


def _status(completed: Completed) -> Fact[ApiStatus]:
    code = completed.exit_code if completed.exit_code is not None else -1
    message = "" if code == 0 else short(completed.stderr) or short(completed.stdout)
    return Known(ApiStatus(code=code, message=message), SOURCE)


def _query(system: System, program: str, timeout: float) -> Fact[tuple[Gpu, ...]]:
    """The GPUs of the CSV."""
    completed, fields = _query_known_fields(system, program, timeout)
    if isinstance(completed, Missing):
        return completed
    failure = unsuccessful(completed, timeout, SOURCE)
    if failure is not None:
        return failure
    if not completed.stdout.strip():
        return Missing(MissingReason.PARSE_ERROR, "it lists nothing, not even that there is no GPU", SOURCE)
    try:
        return Known(parse_query(completed.stdout, fields), SOURCE)
    except ValueError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), SOURCE)


def _query_known_fields(system: System, program: str, timeout: float) -> tuple[Completed | Missing, tuple[str, ...]]:
    """The CSV and its columns, asked again without each field that this nvidia-smi does not know."""
    fields: tuple[str, ...] = FIELDS
    while True:
        completed = _call(system, program, (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"), timeout)
        unknown = None if isinstance(completed, Missing) else UNKNOWN_FIELD.search(completed.stdout + completed.stderr)
        if unknown is None or unknown[1] not in fields or len(fields) <= len(FIELDS) - MAX_UNKNOWN_FIELDS:
            return completed, fields
        fields = tuple(field for field in fields if field != unknown[1])


def _list(system: System, program: str, timeout: float) -> Mapping[int, tuple[str, ...]]:
    completed = _call(system, program, ("-L",), timeout)
    if isinstance(completed, Missing) or unsuccessful(completed, timeout, SOURCE) is not None:
        return {}
    return parse_list(completed.stdout)


def _with_mig_devices(gpus: Known[tuple[Gpu, ...]], profiles: Mapping[int, tuple[str, ...]]) -> Known[tuple[Gpu, ...]]:
    merged = (
        structs.replace(gpu, mig_devices=Known(profiles[gpu.index], SOURCE)) if profiles.get(gpu.index) else gpu
        for gpu in gpus.value
    )
    return Known(tuple(merged), gpus.source)


def _gpu(row: tuple[str, ...], fields: tuple[str, ...]) -> Gpu:
    if len(row) != len(fields) or not row[0].isdecimal():
        raise ValueError(f"not a row of {len(fields)} values: {', '.join(row)[:120]!r}")
    cells = dict(zip(fields, row, strict=True))

    def fact(key: str, convert: Callable[[str], T]) -> Fact[T]:
        return _converted(cells[key], convert) if key in cells else NOT_ASKED

    return Gpu(
        index=int(cells["index"]),
        name=fact("name", str),
        compute_capability=fact("compute_cap", ComputeCapability.parse),
        uuid=fact("uuid", str),
        pci_bus_id=fact("pci.bus_id", bus_id),
        memory_total_bytes=fact("memory.total", _mebibytes),
        memory_used_bytes=fact("memory.used", _mebibytes),
        mig_enabled=fact("mig.mode.current", SWITCH.__getitem__),
        compute_mode=fact("compute_mode", COMPUTE_MODES.__getitem__),
        persistence=fact("persistence_mode", SWITCH.__getitem__),
        ecc_enabled=fact("ecc.mode.current", SWITCH.__getitem__),
        ecc_uncorrected=fact("ecc.errors.uncorrected.volatile.total", int),
        pcie_generation=fact("pcie.link.gen.current", int),
        pcie_generation_max=fact("pcie.link.gen.max", int),
        pcie_width=fact("pcie.link.width.current", int),
        pcie_width_max=fact("pcie.link.width.max", int),
        sm_clock_mhz=fact("clocks.current.sm", int),
        sm_clock_max_mhz=fact("clocks.max.sm", int),
        temperature_c=fact("temperature.gpu", int),
        power_w=fact("power.draw", float),
        power_limit_w=fact("power.limit", float),
        utilization_percent=fact("utilization.gpu", int),
    )


def _mebibytes(text: str) -> int:
    return int(text) * MIB


def _converted(cell: str, convert: Callable[[str], T]) -> Fact[T]:
    """The value of a cell; nvidia-smi writes `[N/A]`, `[Not Supported]`, `ERR!`, `[Unknown Error]` instead of one."""
    words = cell.strip("[] ")
    if words in {"N/A", "Not Supported", "Not Available", ""}:
        return Missing(MissingReason.NOT_SUPPORTED, cell, SOURCE)
    if cell.startswith("[") or words == "ERR!":
        return Missing(MissingReason.FAILED, cell, SOURCE)
    try:
        return Known(convert(cell), SOURCE)
    except (VersionError, ValueError, KeyError):
        return Missing(MissingReason.PARSE_ERROR, f"cannot read {cell!r:.60}", SOURCE)
