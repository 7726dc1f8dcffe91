"""Reads the CUDA samples deviceQuery and bandwidthTest, and nvbandwidth."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, blocks, from_integer
from cudadoctor.readers.text import PlainText

_DEVICE = re.compile(r'Device (?P<index>\d{1,3}): "(?P<name>[^"\n]{1,80})"')
_VERSIONS = re.compile(r"CUDA Driver Version / Runtime Version\s{1,60}(\d{1,3}\.\d{1,3}) / (\d{1,3}\.\d{1,3})")
_CC = re.compile(r"CUDA Capability Major/Minor version number:\s{1,60}(\d{1,2}\.\d)")
_MEMORY = re.compile(r"Total amount of global memory:\s{1,60}(\d{1,9}) MBytes")
_SMS = re.compile(r"\(\s{0,4}(\d{1,4})\) Multiprocessors")
_INTEGRATED = re.compile(r"Integrated GPU sharing Host Memory:\s{1,60}(Yes|No)")
_ECC = re.compile(r"Device has ECC support:\s{1,60}(\w{1,12})")
_SUMMARY = re.compile(
    r"CUDA Driver Version = (\d{1,3}\.\d{1,3}), CUDA Runtime Version = (\d{1,3}\.\d{1,3})(?:, NumDevs = (\d{1,3}))?"
)
_COUNT = re.compile(r"Detected (\d{1,3}) CUDA Capable device")
_FAILED = re.compile(r"cudaGetDeviceCount returned (\d{1,4})\s{1,8}->\s{0,4}([^\n]{1,120})")
_RESULT = re.compile(r"Result = (PASS|FAIL)")


def read_device_query(text: PlainText) -> Values | None:
    """Devices, versions and result of deviceQuery; `runs` where it failed before it saw a device."""
    body = text.body
    summary, result = _SUMMARY.search(body), _RESULT.search(body)
    failures = [{"result": "FAIL", "error_code": int(code), "error": words.strip()} for code, words in _FAILED.findall(body)]
    devices = list(_DEVICE.finditer(body))
    if failures and not devices:
        return {"runs": failures, "result": "FAIL"}
    if not devices and not summary:
        return None
    count = _COUNT.search(body)
    integrated, ecc = _INTEGRATED.search(body), _ECC.search(body)
    values: Values = {
        "gpus": [_device(device, rest) for device, rest in blocks(devices, body)],
        "num_devices": int(count[1]) if count else int(summary[3]) if summary and summary[3] else None,
        "result": result[1] if result else None,
    }
    if summary:
        values |= {"driver_cuda_version": summary[1], "runtime_version": summary[2]}
    if integrated:
        values["integrated"] = integrated[1] == "Yes"
    return values | {"ecc": ecc[1]} if ecc else values


def _device(device: re.Match[str], rest: str) -> Values:
    versions, cc, memory, multiprocessors = (pattern.search(rest) for pattern in (_VERSIONS, _CC, _MEMORY, _SMS))
    return {
        "index": int(device["index"]),
        "name": device["name"],
        "compute_capability": cc[1] if cc else None,
        "memory_mib": int(memory[1]) if memory else None,
        "driver_cuda_version": versions[1] if versions else None,
        "runtime_version": versions[2] if versions else None,
        "multiprocessors": int(multiprocessors[1]) if multiprocessors else None,
    }


_NVBANDWIDTH = re.compile(r"nvbandwidth Version: v?([\d.]{1,12})")
_INTEGER_VERSION = re.compile(r"CUDA (Runtime|Driver) Version: (\d{4,6})")
_RELEASE = re.compile(r"^\s{0,8}Driver Version: ([\d.]{3,20})", re.MULTILINE)
_BARE_DEVICE = re.compile(r"^\s{0,8}Device (\d{1,3}): ([^\n\"]{2,80}?)(?: \([0-9a-fA-F:.]{4,16}\))?\s{0,8}$", re.MULTILINE)
_SUM = re.compile(r"SUM (\w{3,60}) (\d{1,9}(?:\.\d{1,4})?)")
_DIRECTION = re.compile(r"(Host to Device|Device to Host|Device to Device) Bandwidth")
_TRANSFER = re.compile(r"^\s{0,8}\d{3,12}\s{1,16}(\d{1,9}(?:\.\d{1,4})?)\s{0,8}$", re.MULTILINE)
_SHORT = {"Host to Device": "h2d", "Device to Host": "d2h", "Device to Device": "d2d"}


def read_bandwidth(text: PlainText) -> Values | None:
    """Values of nvbandwidth (sums of each test) or of the sample bandwidthTest (last transfer of each direction)."""
    body = text.body
    if "CUDA Bandwidth Test" in body:
        return _bandwidth_test(body)
    tool = _NVBANDWIDTH.search(body)
    versions = dict(_INTEGER_VERSION.findall(body))
    if tool is None and len(versions) < 2:
        return None
    release = _RELEASE.search(body)
    names = [name for _, name in _BARE_DEVICE.findall(body)]
    return {
        "tool": "nvbandwidth",
        "tool_version": tool[1] if tool else None,
        "runtime_version": from_integer(versions.get("Runtime")),
        "driver_cuda_version": from_integer(versions.get("Driver")),
        "driver_release": release[1] if release else None,
        "n_gpus": len(names),
        "gpus_distinct": list(dict.fromkeys(names)),
        "sums": {name: float(total) for name, total in _SUM.findall(body)},
    }


def _bandwidth_test(body: str) -> Values:
    device = _BARE_DEVICE.search(body)
    mode = re.search(r"(Range|Quick|Shmoo) Mode", body)
    run: dict[str, float | None] = {"h2d": None, "d2h": None, "d2d": None}
    for start, rest in blocks(list(_DIRECTION.finditer(body)), body):
        transfers = _TRANSFER.findall(rest)
        run[_SHORT[start[1]]] = float(transfers[-1]) if transfers else None
    return {
        "tool": "bandwidthTest",
        "device": device[2] if device else None,
        "unit": "GB/s" if "GB/s" in body else "MB/s",
        "mode": mode[1].lower() if mode else None,
        "runs": [run],
    }


DEVICE_QUERY = Reader(
    "device_query",
    ("CUDA Capable device", "cudaGetDeviceCount returned", "CUDA Capability Major", "NumDevs", 'Device 0: "'),
    read_device_query,
)
BANDWIDTH_TEST = Reader("bandwidth_test", ("nvbandwidth", "CUDA Bandwidth Test", "CUDA Runtime Version"), read_bandwidth)
