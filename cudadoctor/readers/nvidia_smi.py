"""Reads the table of `nvidia-smi` in every layout since 2016, fragments of it, and the error texts in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudadoctor.readers.reader import Reader, Values, present, unmarked
from cudadoctor.readers.text import MIN_WRAP, PlainText

_BANNER = re.compile(
    r"NVIDIA-SMI[\s*]{1,20}(?P<smi>[\w.]{1,24})[\s|*]{1,60}(?:Driver|KMD)\s{1,4}Version:[\s*]{0,10}(?P<driver>[\w./!]{1,24})"
    r"(?:[\s|*]{1,60}CUDA\s{1,4}(?:UMD\s{1,4})?Version:[\s*]{0,10}(?P<cuda>[\w./!]{1,12}))?"
)
_BUS = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|N/A)"
_ROW = re.compile(
    r"^\|?\s{0,8}(?P<index>\d{1,3})\s{1,8}(?P<name>\S.{0,80}?)\s{1,60}(?P<mode>On|Off|N/A|WDDM|TCC"
r"|MCDM|ERR!)\s{0,8}\|?\s{0,12}" + _BUS
    + r"\s{0,12}(?P<display>On|Off|N/A|ERR!)\s{0,8}\|?\s{0,40}(?P<ecc>[^\s|]{1,12})?\s{0,8}\|?\s{0,8}$"
)  # fmt: skip
_ROW_WITHOUT_BUS = re.compile(
    r"^\|\s{0,8}(?P<index>\d{1,3})\s{1,8}(?P<name>(?:NVIDIA|GeForce|Tesla|Quadro|GRID|TITAN|RTX|GTX)\s?.{0,70}?)"
    r"(?:\s{1,60}(?P<mode>On|Off|WDDM|TCC|MCDM))?\s{0,60}\|\s{0,8}$"
)
_MEMORY = re.compile(r"(?P<used>\d{1,9})\s?MiB\s{0,6}/\s{0,12}(?P<total>\d{1,9})\s?MiB")
_NO_MEMORY = re.compile(r"\|\s{0,8}(?:Not Supported|N/A\s{0,4}/\s{0,4}N/A)\s{0,30}\|")
_COMPUTE = re.compile(r"(?:Default|E\. ?Process|E\. ?Thread|Exclusive_Process|Exclusive_Thread|Prohibited)(?=\s{0,8}\|?\s{0,8}$)")
_MIG_STATE = re.compile(r"^[|\s]{1,120}(?P<mig>N/A|Disabled\*?|Enabled\*?|ERR!)\s{0,8}\|?\s{0,8}$")
_MIG_DEVICE = re.compile(
    r"^\|?\s{0,8}(\d{1,3})\s{1,8}(\d{1,3}|N/A)\s{1,8}(\d{1,3}|N/A)\s{1,8}(\d{1,3})\s{0,8}\|\s{0,60}"
    r"(\d{1,9})MiB\s{0,4}/\s{0,12}(\d{1,9})MiB"
)
_PROCESS = re.compile(
    r"^\|?\s{0,8}(\d{1,3})\s{1,8}(?:(?:\d{1,3}|N/A)\s{1,8}(?:\d{1,3}|N/A)\s{1,8})?(\d{1,9})\s{1,8}"
    r"(C\+G|M\+C|[CGM])\s{1,8}(.{0,120}?)"
    r"\s{1,80}(?:(\d{1,9})MiB|N/A)\s{0,8}\|?\s{0,8}$"
)


def _phrase(words: str) -> re.Pattern[str]:
    """The words, also where a window wrapped them."""
    return re.compile(r"\s{1,3}".join(re.escape(word) for word in words.split()))


_NOT_FOUND = re.compile(
    r"nvidia-smi['\"]?(?:: command| :)? not found|nvidia-smi: not found|'?nvidia-smi(?:\.exe)?'? is not recognized"
)
_ERRORS = (
    ("command_not_found", _NOT_FOUND),
    ("no_devices", _phrase("No devices were found")),
    ("driver_not_communicating", _phrase("couldn't communicate with the NVIDIA driver")),
    ("driver_library_mismatch", _phrase("Failed to initialize NVML: Driver/library version mismatch")),
    ("gpu_access_blocked_by_os", _phrase("GPU access blocked by the operating system")),
    ("nvml_unknown_error", _phrase("Failed to initialize NVML: Unknown Error")),
    ("nvml_driver_not_loaded", _phrase("Failed to initialize NVML: Driver Not Loaded")),
    ("insufficient_permissions", _phrase("Failed to initialize NVML: Insufficient Permissions")),
    ("gpu_lost", _phrase("GPU is lost")),
    ("device_handle_unknown_error", _phrase("Unable to determine the device handle")),
    ("nvml_library_not_found", _phrase("couldn't find libnvidia-ml.so")),
)
_HANDLE_BUS = re.compile(
    r"device\s{1,3}handle\s{1,3}for\s{1,3}(?:GPU\d{0,3}:?\s?)?(?:GPU\s?)?"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_NVML_LIBRARY = re.compile(r"NVML library version:\s{0,4}([\d.]{1,20})")
_SUGGESTED = re.compile(r"apt(?:-get)? install (nvidia-[\w.-]{1,40})")
_WINDOWS_PROMPT = re.compile(r"(?:^|\n)\s{0,16}(?:\([\w.-]{1,40}\) ?)?(?:PS )?[A-Za-z]:\\[^\n>]{0,200}>")


def read_nvidia_smi(text: PlainText) -> Values | None:
    """Driver, GPUs, MIG devices, processes and errors that the text shows; None where it shows none.

    Sample::

        | NVIDIA-SMI 550.54.14              Driver Version: 550.54.14      CUDA Version: 12.4     |
        |   0  NVIDIA A100-SXM4-80GB          On  |   00000000:6C:00.0 Off |                   On |
        | N/A   29C    P0             54W /  400W |      95MiB /  81920MiB |     N/A      Default |
        |                                         |                        |              Enabled |
    """
    rows = list(_table_rows(unmarked(text)))
    banner = _BANNER.search(text.body)
    gpus, unhealthy = _gpus(rows)
    values = _banner_values(banner) | {"gpus": gpus, "processes": _processes(rows)}
    if any("MIG devices" in row for row in rows):
        values["mig_devices"] = _mig_devices(rows)
    if unhealthy:
        values["unhealthy_gpus"] = unhealthy
    values |= _errors(text.body)
    if banner is None and not gpus and "mig_devices" not in values and "error" not in values:
        return None
    values["platform"] = _platform(text.body, values)
    return values


def _table_rows(lines: tuple[str, ...]) -> Iterator[str]:
    """The lines, a row that a narrow window wrapped joined to one."""
    row = ""
    for line in lines:
        stripped = line.strip()
        if _continues(row, stripped):
            row += line if row[-1] != "|" else f" {stripped}"
            continue
        if row:
            yield row
        row = line.replace("**", "").rstrip()
    if row:
        yield row


def _continues(row: str, line: str) -> bool:
    """Is the line the end of a row that is wider than the window? Trailing blanks of the first part are lost."""
    if row[:1] != "|" or line[:1] in ("|", "+", ""):
        return False
    return line[-1] in ("|", "+") or (row[-1] not in ("|", "+") and len(row) >= MIN_WRAP)


def _banner_values(banner: re.Match[str] | None) -> Values:
    values: Values = {"driver_release": None, "driver_cuda_version": None}
    if banner is None:
        return values
    values |= {
        "smi_version": banner["smi"],
        "driver_release": present(banner["driver"]),
        "driver_cuda_version": present(banner["cuda"]),
    }
    if banner["cuda"] and values["driver_cuda_version"] is None:
        values["driver_cuda_version_raw"] = banner["cuda"]
    return values


def _gpus(rows: list[str]) -> tuple[list[Values], list[int]]:
    gpus: list[Values] = []
    unhealthy: list[int] = []
    for position, row in enumerate(rows):
        match = _ROW.match(row) or _ROW_WITHOUT_BUS.match(row)
        if match is None or match["name"].isdigit():
            continue
        following = rows[position + 1 : position + 4]
        if _is_cut(following):
            continue
        gpu = _gpu(match, following)
        gpus.append(gpu)
        if "ERR!" in row or any("ERR!" in line for line in _own(following)):
            unhealthy.append(gpu["index"])
    return gpus, unhealthy


def gpu_names(text: PlainText) -> list[str]:
    """The names in the table, also of a row that the paste cuts after its first line."""
    return [match["name"].strip() for line in unmarked(text) if (match := _ROW.match(line)) and not match["name"].isdigit()]


def _own(following: list[str]) -> list[str]:
    """The second and third line of a GPU's row."""
    own: list[str] = []
    for line in following[:2]:
        if line.startswith("+") or _ROW.match(line):
            break
        own.append(line)
    return own


def _is_cut(following: list[str]) -> bool:
    """True where the text ends within the second line of the row."""
    if len(following) != 1 or not following[0].strip("| "):
        return False
    line = following[0]
    return not line.startswith("+") and not _ROW.match(line) and _MEMORY.search(line) is None and _NO_MEMORY.search(line) is None


def _gpu(match: re.Match[str], following: list[str]) -> Values:
    own = _own(following)
    found = (_MEMORY.search(line) for line in own)
    memory = next((hit for hit in found if hit), None)
    compute = next((hit[0] for line in own if (hit := _COMPUTE.search(line.rstrip()))), None)
    mig = next((hit["mig"] for line in own if (hit := _MIG_STATE.match(line))), None)
    groups = match.groupdict()
    mode = groups.get("mode")
    windows = mode in ("WDDM", "TCC", "MCDM")
    gpu: Values = {
        "index": int(groups["index"]),
        "name": groups["name"].strip(),
        "memory_total_mib": int(memory["total"]) if memory else None,
        "memory_used_mib": int(memory["used"]) if memory else None,
        "mig": mig,
        "persistence": None if windows else mode,
        "ecc": groups.get("ecc"),
        "compute_mode": compute,
        "bus_id": present(groups.get("bus")),
    }
    return gpu | {"driver_model": mode} if windows else gpu


def _mig_devices(rows: list[str]) -> list[Values]:
    devices = (match.groups() for row in rows if (match := _MIG_DEVICE.match(row)))
    return [
        {
            "gpu": int(gpu), "gi": _maybe(gi), "ci": _maybe(ci), "dev": int(dev),
            "memory_used_mib": int(used), "memory_total_mib": int(total),
        }
        for gpu, gi, ci, dev, used, total in devices
    ]  # fmt: skip


def _maybe(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None


def _processes(rows: list[str]) -> list[Values]:
    matches = (match for row in rows if (match := _PROCESS.match(row)))
    return [
        {"gpu": int(m[1]), "pid": int(m[2]), "type": m[3], "name": m[4].strip(), "used_mib": int(m[5]) if m[5] else None}
        for m in matches
    ]


def _errors(body: str) -> Values:
    code = next((code for code, pattern in _ERRORS if pattern.search(body)), None)
    if code is None:
        return {}
    values: Values = {"error": code}
    if bus := _HANDLE_BUS.search(body):
        values["bus_id"] = bus["bus"]
    if library := _NVML_LIBRARY.search(body):
        values["nvml_library_version"] = library[1]
    if suggested := _SUGGESTED.findall(body):
        values["suggested_packages"] = suggested
    return values


def _platform(body: str, values: Values) -> str:
    if any("driver_model" in gpu for gpu in values["gpus"]) or _WINDOWS_PROMPT.search(body):
        return "windows"
    smi, driver = values.get("smi_version"), values["driver_release"]
    if (smi and driver and smi != driver) or "WSL2" in body or "/usr/lib/wsl" in body:
        return "wsl"
    return "linux"


NVIDIA_SMI = Reader(
    "nvidia_smi",
    (
        "NVIDIA-SMI",
        "nvidia-smi",
        "NVML",
        "MiB |",
        "MiB  |",
        "MIG devices",
        "No devices were found",
        "device handle",
        "GPU is lost",
        "Driver Version",
    ),
    read_nvidia_smi,
)
