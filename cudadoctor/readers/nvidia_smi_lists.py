"""Reads `nvidia-smi -L`, `--query-gpu ... --format=csv` and `--version`."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, blocks, number, present, unmarked
from cudadoctor.readers.text import PlainText

_GPU = re.compile(
    r"GPU (?P<index>\d{1,3}): (?P<name>[^\n(]{1,100}?(?:\([^U\n][^)\n]{0,40}\))?) ?\(UUID: ?(?P<uuid>GPU-[\w-]{1,60})\)"
)
_BARE_GPU = re.compile(r"^\s{0,16}GPU (?P<index>\d{1,3}): (?P<name>[^\n]{2,100}?)\s{0,8}$", re.MULTILINE)
_MIG = re.compile(r"MIG (?P<profile>[\w.+]{1,20})\s{1,12}Device\s{1,4}(?P<device>\d{1,3}): \(UUID: (?P<uuid>MIG-[^)\n]{1,120})\)")
_LIST_COMMAND = re.compile(r"nvidia-smi(?:\.exe)? (?:-L|--list-gpus)\b")


def read_list(text: PlainText) -> Values | None:
    """GPUs, `GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-...)`, with MIG devices, `MIG 3g.40gb     Device  0: (UUID: MIG-...)`."""
    body = text.body
    starts = list(_GPU.finditer(body))
    if not starts and (command := _LIST_COMMAND.search(body)):
        starts = _after_command(body, command.end())
    if not starts:
        return None
    gpus = []
    for match, rest in blocks(starts, body):
        mig = [{"profile": m["profile"], "device": int(m["device"]), "uuid": m["uuid"]} for m in _MIG.finditer(rest)]
        gpus.append(
            {
                "index": int(match["index"]),
                "name": match["name"].strip(),
                "uuid": match.groupdict().get("uuid"),
                "mig_devices": mig,
            }
        )
    return {"gpus": gpus}


def _after_command(body: str, position: int) -> list[re.Match[str]]:
    """`GPU N: name` lines without UUID that follow the command, up to the next prompt."""
    end = body.find("\n$ ", position)
    return list(_BARE_GPU.finditer(body, position, end if end >= 0 else len(body)))


_QUERY = re.compile(r"--query-gpu=(?P<columns>[\w.,]{1,600})(?P<rest>[^\n]{0,200})")
_COLUMN = re.compile(r"(?P<name>[a-z_]{2,40}(?:\.[a-z_]{2,40}){0,4})(?: \[(?P<unit>[^\]]{1,8})\])?")
_UNIT_CELL = re.compile(r"\d{1,9}(?:\.\d{1,4})? (?:MiB|W|%|MHz|C)")
_GPU_NAME = re.compile(r"(?:NVIDIA |GeForce|Tesla|Quadro|TITAN|GRID|A100|H100)")
_TEXT_COLUMNS = ("version", "name", "uuid", "bus_id", "serial", "pstate", "mode")


def read_csv(text: PlainText) -> Values | None:
    """Rows of `--format=csv`: columns from the header line, else from the command, else none."""
    lines = [line.strip() for line in unmarked(text)]
    query = _QUERY.search(text.body)
    for position, line in enumerate(lines):
        header = _header(line)
        if header:
            columns, units = header
            rows = _rows(lines[position + 1 :], columns)
            if rows:
                return {"columns": columns, "units": units, "rows": rows}
    if query:
        columns = query["columns"].split(",")
        rows = _rows(lines, columns)
        return {"columns": columns, "rows": rows} if rows else None
    return _without_header(lines)


def _header(line: str) -> tuple[list[str], dict[str, str]] | None:
    cells = line.split(", ")
    matches = [_COLUMN.fullmatch(cell) for cell in cells]
    if len(cells) < 2 or not all(matches):
        return None
    found = [match for match in matches if match]
    names = [match["name"] for match in found]
    known = {"name", "index", "driver_version", "uuid", "pstate", "timestamp", "count"}
    if not any("." in name or name in known for name in names):
        return None
    return names, {match["name"]: match["unit"] for match in found if match["unit"]}


def _rows(lines: list[str], columns: list[str]) -> list[list[object]]:
    rows = []
    for line in lines:
        cells = line.split(", ")
        if len(cells) == len(columns) and not line.startswith(("$", "--")) and "--query" not in line:
            rows.append([_cell(cell, column) for cell, column in zip(cells, columns, strict=True)])
        elif rows:
            break
    return rows


def _cell(cell: str, column: str) -> object:
    value = present(cell)
    if value is None or any(word in column for word in _TEXT_COLUMNS):
        return value
    parsed = number(value)
    return value if parsed is None else parsed


def _without_header(lines: list[str]) -> Values | None:
    rows = [line.split(", ") for line in lines if line.count(", ") >= 2 and _GPU_NAME.match(line) and _UNIT_CELL.search(line)]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        return None
    return {
        "columns": None,
        "n_rows": len(rows),
        "rows": [[present(cell) for cell in row] for row in rows],
        "rows_first": [present(cell) for cell in rows[0]],
        "names": [row[0] for row in rows],
    }


_VERSION_LINE = re.compile(
    r"^\s{0,16}(?P<label>NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) [Vv]ersion\s{0,12}: (?P<value>[^\n]{1,80})$", re.MULTILINE
)
_LABELS = {
    "NVIDIA-SMI": "smi_version",
    "NVML": "nvml_version",
    "DRIVER": "driver_release",
    "KMD": "driver_release",
    "CUDA": "driver_cuda_version",
    "CUDA UMD": "driver_cuda_version",
}


def read_version(text: PlainText) -> Values | None:
    """Versions of `nvidia-smi --version`; since R610 two labels hold a sentence that names their successors."""
    values: Values = {}
    for match in _VERSION_LINE.finditer(text.body):
        value = match["value"].strip()
        if value[:1].isdigit():
            values[_LABELS[match["label"]]] = value
    return values if "smi_version" in values else None


NVIDIA_SMI_L = Reader("nvidia_smi_L", ("(UUID:", "smi -L", "smi --list-gpus", "smi.exe -L"), read_list)
NVIDIA_SMI_CSV = Reader("nvidia_smi_csv", (", ",), read_csv)
NVIDIA_SMI_VERSION = Reader("nvidia_smi_version", ("NVIDIA-SMI version",), read_version)
