"""Reads `nvidia-smi -q` (also excerpts) and `nvidia-smi -q -x`."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, blocks, integer, number, present
from cudadoctor.readers.text import PlainText

_LINE = re.compile(r"^(?P<key>[A-Za-z][\w ./()-]{0,60}?)\s{0,60}: (?P<value>[^\n]{0,300})$")
_GPU = re.compile(r"^GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)$")

# (section, key) -> name of the value and how to read it; the section is "" where the key alone is unambiguous.
_FIELDS = {
    ("", "Product Name"): ("name", present),
    ("", "Product Architecture"): ("architecture", present),
    ("", "Persistence Mode"): ("persistence_mode", present),
    ("", "Addressing Mode"): ("addressing_mode", present),
    ("", "Compute Mode"): ("compute_mode", present),
    ("", "GPU UUID"): ("uuid", present),
    ("", "VBIOS Version"): ("vbios", present),
    ("", "Minor Number"): ("minor_number", integer),
    ("", "GSP Firmware Version"): ("gsp_firmware", present),
    ("", "Fan Speed"): ("fan_speed", integer),
    ("", "Performance State"): ("performance_state", present),
    ("MIG Mode", "Current"): ("mig_mode", present),
    ("Driver Model", "Current"): ("driver_model", present),
    ("ECC Mode", "Current"): ("ecc_mode", present),
    ("FB Memory Usage", "Total"): ("memory_total_mib", integer),
    ("FB Memory Usage", "Reserved"): ("memory_reserved_mib", integer),
    ("FB Memory Usage", "Used"): ("memory_used_mib", integer),
    ("FB Memory Usage", "Free"): ("memory_free_mib", integer),
    ("Utilization", "GPU"): ("utilization_gpu", integer),
    ("Utilization", "Gpu"): ("utilization_gpu", integer),
    ("Utilization", "Memory"): ("utilization_memory", integer),
    ("Utilization", "Encoder"): ("utilization_encoder", integer),
    ("Utilization", "Decoder"): ("utilization_decoder", integer),
    ("Temperature", "GPU Current Temp"): ("temperature_c", integer),
}
_PROCESS_FIELDS = {"Type": "type", "Name": "name", "Used GPU Memory": "used_memory_mib"}
_TOP = {
    "Driver Version": "driver_release",
    "CUDA Version": "driver_cuda_version",
    "CUDA UMD Version": "driver_cuda_version",
    "KMD Version": "driver_release",
}


def read_q(text: PlainText) -> Values | None:
    """Values of `-q` in whole or in part: `    Product Name                    : Quadro M1000M` under `GPU 0000:02:00.0`."""
    values: Values = {"driver_release": None, "driver_cuda_version": None, "gpus": []}
    gpu: Values = {}
    section = ""
    for raw in text.lines:
        line = raw.strip()
        header = _GPU.match(line)
        match = _LINE.match(line)
        if header:
            gpu = {"bus_id": header["bus"]}
            values["gpus"].append(gpu)
            section = ""
        elif match:
            _take(values, gpu, section, match["key"].strip(), match["value"].strip())
        elif line and line[0].isalpha() and ":" not in line and len(line) < 60:
            section = line
    if gpu and not values["gpus"]:
        values["gpus"].append(gpu)
    if not any(len(found) >= 3 for found in values["gpus"]) and "attached_gpus" not in values:
        return None
    platform = _platform(values["gpus"])
    return values | {"platform": platform} if platform else values


def _take(values: Values, gpu: Values, section: str, key: str, value: str) -> None:
    if key in _TOP and not values["gpus"] and value[:1].isdigit():
        values[_TOP[key]] = value
    elif key == "Attached GPUs":
        values["attached_gpus"] = integer(value)
    elif key == "Process ID":
        gpu.setdefault("processes", []).append({"pid": integer(value)})
    elif gpu.get("processes") and key in _PROCESS_FIELDS:
        name = _PROCESS_FIELDS[key]
        gpu["processes"][-1][name] = integer(value) if name == "used_memory_mib" else value
    else:
        field = _FIELDS.get((section, key)) or _FIELDS.get(("", key))
        if field and field[0] not in gpu:
            gpu[field[0]] = field[1](present(value))


def _platform(gpus: list[Values]) -> str | None:
    """WDDM with persistence mode is WSL: Windows itself prints N/A there."""
    if any(":\\" in (process.get("name") or "") for gpu in gpus for process in gpu.get("processes", ())):
        return "windows"
    models = [gpu for gpu in gpus if gpu.get("driver_model")]
    if not models:
        return None
    return "wsl" if all(gpu.get("persistence_mode") for gpu in models) else "windows"


_XML_GPU = re.compile(r'<gpu id="(?P<bus>[^"]{1,40})">')
_XML_FIELDS = {
    "name": ("product_name", present),
    "architecture": ("product_architecture", present),
    "uuid": ("uuid", present),
    "persistence_mode": ("persistence_mode", present),
    "addressing_mode": ("addressing_mode", present),
    "display_mode": ("display_mode", present),
    "mig_current": ("current_mig", present),
    "driver_model": ("current_dm", present),
    "compute_mode": ("compute_mode", present),
    "gsp_firmware": ("gsp_firmware_version", present),
    "ecc_current": ("current_ecc", present),
    "performance_state": ("performance_state", present),
    "fan_speed": ("fan_speed", integer),
    "power_draw_w": ("power_draw", number),
    "average_power_draw_w": ("average_power_draw", number),
    "power_limit_w": ("current_power_limit", number),
    "temperature_c": ("gpu_temp", integer),
}
_XML_POWER_LIMIT = re.compile(r"<power_limit>([^<]{1,40})</power_limit>")
_DTD = re.compile(r'SYSTEM "(nvsmi_device_v\d{1,3}\.dtd)"')


def _tag(xml: str, tag: str) -> str | None:
    start = xml.find(f"<{tag}>")
    if start < 0:
        return None
    end = xml.find("<", start + len(tag) + 2)
    return present(xml[start + len(tag) + 2 : end if end >= 0 else start + 200])


def read_xml(text: PlainText) -> Values | None:
    """Values of `-q -x`, whole or cut; tags are searched for, no XML is parsed."""
    body = text.body
    starts = list(_XML_GPU.finditer(body))
    if "<nvidia_smi_log>" not in body and not starts:
        return None
    head = body[: starts[0].start()] if starts else body
    dtd = _DTD.search(head)
    values: Values = {
        "driver_release": _tag(head, "driver_version"),
        "driver_cuda_version": _tag(head, "cuda_version") or _tag(head, "cuda_umd_version"),
        "dtd": dtd[1] if dtd else None,
        "gpus": [_xml_gpu(start["bus"], rest) for start, rest in blocks(starts, body)],
    }
    attached = integer(_tag(head, "attached_gpus"))
    return values if attached is None else values | {"attached_gpus": attached}


def _xml_gpu(bus: str, xml: str) -> Values:
    gpu: Values = {"bus_id": bus}
    gpu |= {name: convert(_tag(xml, tag)) for name, (tag, convert) in _XML_FIELDS.items() if f"<{tag}>" in xml}
    memory = xml[max(0, xml.find("<fb_memory_usage>")) :]
    for part in ("total", "used", "reserved", "free"):
        gpu[f"memory_{part}_mib"] = integer(_tag(memory, part))
    if "power_limit_w" not in gpu and (limit := _XML_POWER_LIMIT.search(xml)):
        gpu["power_limit_w"] = number(present(limit[1]))
    return gpu


NVIDIA_SMI_Q = Reader("nvidia_smi_q", ("NVSMI LOG", "Product Name", "FB Memory Usage", "GPU UUID"), read_q)
NVIDIA_SMI_XML = Reader("nvidia_smi_xml", ("<nvidia_smi_log", '<gpu id="'), read_xml)
