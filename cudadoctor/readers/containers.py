"""Reads container tools: errors of docker and the NVIDIA hook, `nvidia-container-cli info`."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, integer
from cudadoctor.readers.text import PlainText

_CLI_MESSAGE = re.compile(r"nvidia-container-cli(?:\.real)?:\s{1,4}(?P<message>[a-z][^\n\\]{3,300})")
_SELECT = re.compile(r"could not select device driver \"?(?P<driver>[\w.-]{0,40})\"? with capabilities")
_OLD_DOCKER = re.compile(r"unsupported CUDA version: driver (?P<driver>\d{1,3}\.\d{1,3}) < image (?P<image>\d{1,3}\.\d{1,3})")
_CONDITION = re.compile(
    r"unsatisfied\s{1,4}condition:\s{1,4}(?P<condition>cuda\s?>=\s?(?P<cuda>\d{1,3}\.\d{1,3})"
    r"|[\w.<>=,]{1,60})(?:\s{1,4}\(cuda=(?P<have>\d{1,3}\.\d{1,3})\))?"
)
_LIBRARY = re.compile(r"load library failed: (?P<library>lib[\w.+-]{2,60})")
_DEVICE = re.compile(r"device error: (?P<device>[^\s:]{1,80}): unknown device")
_MODE = re.compile(r"Auto-detected mode as '(\w{2,12})'")
_REQUIRE = re.compile(r"--require=(?P<require>.{4,2000}?)(?= --(?:pid|ldconfig|device|compute|utility)| /|\\\\)")
_ERRORS = (
    ("requirement_unsatisfied", "unsatisfied condition"),
    ("driver_library_mismatch", "driver/library version mismatch"),
    ("nvml_driver_not_loaded", "driver not loaded"),
    ("load_library_failed", "load library failed"),
    ("unknown_device", "unknown device"),
    ("driver_rpc_error", "driver rpc error"),
    ("driver_error", "driver error"),
    ("no_adapters", "no adapters were found"),
)


def read_container_error(text: PlainText) -> Values | None:
    """Component, code and details of a failed container start, however deeply it was escaped or wrapped."""
    body = re.sub(r"\\{1,8}n", "\n", text.flat)
    joined = re.sub(r"\s{1,8}", " ", body)
    if select := _SELECT.search(joined):
        return {"component": "docker", "error": "no_gpu_device_driver", "driver": select["driver"]}
    if old := _OLD_DOCKER.search(joined):
        error = {"component": "nvidia-docker", "error": "unsupported_cuda_version"}
        return error | {"driver_cuda_version": old["driver"], "image_cuda_version": old["image"]}
    message = _message(body)
    code = next((code for code, words in _ERRORS if words in (message or joined)), None)
    if code is None or (message is None and code != "requirement_unsatisfied"):
        return None
    values: Values = {"component": "nvidia-container-cli" if message else "nvidia-container-runtime", "error": code}
    if message:
        values["message"] = message
    return values | _details(joined)


_WRAPPED = 60
"""A line longer than this, followed by one in lower case, was cut by a window."""


def _message(body: str) -> str | None:
    """The hook's own words, a following line joined where the sentence was wrapped."""
    match = _CLI_MESSAGE.search(body)
    if match is None:
        return None
    message = match["message"]
    following = body[match.end() : match.end() + 200].lstrip("\n").split("\n", 1)[0]
    wrapped = match.end() - body.rfind("\n", 0, match.start()) > _WRAPPED or message.rstrip().endswith(":")
    if wrapped and body[match.end() : match.end() + 1] == "\n" and following[:1].islower():
        message = f"{message.rstrip()} {following}"
    return re.sub(r": unknown\b.{0,10}$|[\\\"]{1,20}.{0,20}$", "", message).strip(" .")


def _details(joined: str) -> Values:
    values: Values = {}
    if condition := _CONDITION.search(joined):
        values |= {"required_cuda": condition["cuda"], "driver_cuda": condition["have"], "condition": condition["condition"]}
    if library := _LIBRARY.search(joined):
        values["library"] = library["library"]
    if device := _DEVICE.search(joined):
        values["device"] = device["device"]
    if mode := _MODE.search(joined):
        values["mode"] = mode[1]
    if require := _REQUIRE.search(joined):
        values["require"] = require["require"].strip()
    return values


_HEADER = re.compile(
    r"^\s{0,8}(?P<label>NVRM version|CUDA version|Device Index|Device Minor|Model|Brand|GPU UUID"
    r"|Bus Location|Architecture):\s{1,12}(?P<value>[^\n]{1,100})$"
)
_VERSION = re.compile(r"initializing library context \(version=([\w.-]{1,20})")
_ROOT = re.compile(r"using root (\S{1,200})")
_LDCACHE = re.compile(r"using ldcache (\S{1,200})")
_GPU_FIELDS = {
    "Device Minor": "minor",
    "Model": "name",
    "Brand": "brand",
    "GPU UUID": "uuid",
    "Bus Location": "bus_id",
    "Architecture": "arch",
}


def read_cli_info(text: PlainText) -> Values | None:
    """Values of `nvidia-container-cli info`, with or without its debug log before it."""
    values: Values = {"driver_release": None, "gpus": []}
    for line in text.lines:
        match = _HEADER.match(line)
        if match is None:
            continue
        label, value = match["label"], match["value"].strip()
        if label == "NVRM version":
            values["driver_release"] = value
        elif label == "CUDA version":
            values["driver_cuda_version"] = value
        elif label == "Device Index":
            values["gpus"].append({"index": integer(value)})
        elif values["gpus"]:
            values["gpus"][-1][_GPU_FIELDS[label]] = integer(value) if label == "Device Minor" else value
    log = _debug_log(text.body)
    if values["driver_release"] is None and not values["gpus"] and not log:
        return None
    return values | log


def _debug_log(body: str) -> Values:
    version = _VERSION.search(body)
    if version is None:
        return {}
    root, ldcache = _ROOT.search(body), _LDCACHE.search(body)
    return {
        "libnvidia_container_version": version[1],
        "root": root[1] if root else None,
        "ldcache": ldcache[1] if ldcache else None,
        "wsl": "dxcore initialization failed" not in body and "dxcore initialization" in body,
    }


_DOCKER_RUN = re.compile(r"(?:docker|podman|nerdctl)(?:\.exe)? (?:container )?run (?P<arguments>[^\n]{1,1000})")
_GPU_FLAG = re.compile(r"--gpus|--runtime[= ]nvidia|nvidia\.com/gpu|NVIDIA_VISIBLE_DEVICES|--device[= ]/dev/nvidia|--nv\b")
_FROM = re.compile(r"^\s{0,8}FROM (?:--platform=\S{1,40} )?(?P<image>\S{3,200})", re.MULTILINE)
_IMAGE = re.compile(r"(?<![\w/])(?:[\w.-]{1,60}/){0,4}[\w.-]{1,60}:(?:[\w.-]{1,100})")
_VERSIONS = re.compile(r"Docker version ([\d.]{3,20})")
_NO_CGROUPS = re.compile(r"^\s{0,8}#?\s{0,2}no-cgroups\s?=\s?(true|false)", re.MULTILINE)
_CDI_FILES = re.compile(r"((?:/etc/cdi|/(?:var/)?run/cdi)/[\w.-]{1,80}\.(?:ya?ml|json))")


def read_container_use(text: PlainText) -> Values | None:
    """Containers started in the text and with which GPU access, base images of a Dockerfile, settings of the toolkit."""
    body = text.body
    runs = [
        {"arguments": m["arguments"].strip(), "gpu_access": bool(_GPU_FLAG.search(m["arguments"]))}
        for m in _DOCKER_RUN.finditer(body)
    ]
    values: Values = {}
    if runs:
        values["runs"] = runs
    if images := [match["image"] for match in _FROM.finditer(body)]:
        values["images"] = images
    if version := _VERSIONS.search(body):
        values["docker_version"] = version[1]
    if cgroups := _NO_CGROUPS.search(body):
        values["no_cgroups"] = cgroups[1] == "true"
    if cdi := _CDI_FILES.findall(body):
        values["cdi_files"] = list(dict.fromkeys(cdi))
    return values or None


CONTAINER_ERRORS = Reader(
    "container_errors", ("device driver", "nvidia-container-cli", "unsatisfied", "unsupported CUDA version"), read_container_error
)
CONTAINER_CLI_INFO = Reader("container_cli_info", ("NVRM version", "library context"), read_cli_info)
CONTAINER_USE = Reader("container_use", ("docker", "podman", "FROM ", "no-cgroups", "/cdi", "nerdctl"), read_container_use)
