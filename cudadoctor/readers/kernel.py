"""Reads the kernel's side: procfs, NVRM and Xid lines of the log, lsmod, modinfo, dkms, mokutil, lspci."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, blocks, unmarked
from cudadoctor.readers.text import PlainText

_RELEASE = r"(?P<release>\d{2,4}\.\d{1,4}(?:\.\d{1,3})?)"
_CLOSED = re.compile(r"NVIDIA UNIX (?P<arch>\w{3,10}) Kernel Module\s{1,8}" + _RELEASE + r"(?P<rest>[^\n]{0,300})")
_OPEN = re.compile(r"NVIDIA UNIX Open Kernel Module for (?P<arch>\w{3,10})\s{1,8}" + _RELEASE + r"(?P<rest>[^\n]{0,300})")
_GCC = re.compile(r"GCC version:\s{1,8}gcc version (\d{1,3}(?:\.\d{1,3}){1,3})")


def read_proc_version(text: PlainText) -> Values | None:
    """The loaded module: `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build  (...)  date`."""
    body = text.body
    match = _OPEN.search(body) or _CLOSED.search(body)
    if match is None:
        return None
    gcc = _GCC.search(body)
    date = match["rest"].split("GCC version", 1)[0].replace("Release Build", "")
    date = re.sub(r"\([^)]{0,100}\)", "", date).strip(" `*.#")
    return {
        "driver_release": match["release"],
        "module": "open" if match.re is _OPEN else "proprietary",
        "arch": match["arch"],
        "gcc": gcc[1] if gcc else None,
        "build_date": date or None,
    }


_XID = re.compile(
    r"Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.\d)?\): (?P<xid>\d{1,4})(?P<rest>[^\n]{0,600})"
)
_PID = re.compile(r"pid='?(?P<pid>\d{1,9}|<unknown>)'?")
_NAME = re.compile(r"name=(?P<name><unknown>|[^,\n]{1,80})")
_ELEMENT = re.compile(r"\s{0,4}(?:pid='?[^,']{1,20}'?|name=[^,]{1,80})\s{0,4}")
_MISMATCH = re.compile(
    r"API mismatch: the client has the version\s{1,8}"
    r"(?P<client>[\d.]{3,20}?)[.,]?\s{1,8}but[\s\S]{0,120}?kernel module has the version\s{1,8}"
    r"(?P<module>[\d.]{3,20}?)\.?\s"
)
_MISMATCH_NEW = re.compile(
    r"API mismatch: the client '(?P<process>[^'\n]{1,80})' \(pid "
    r"(?P<pid>\d{1,9})\)[\s\S]{0,80}?has the version\s{1,8}(?P<client>[\d.]{3,20}?)[.,]?\s{1,8}but"
    r"[\s\S]{0,120}?kernel module has the version\s{1,8}(?P<module>[\d.]{3,20}?)\.?\s"
)
_RM_INIT = re.compile(r"GPU (?P<bus>[0-9a-fA-F:.]{7,20}): RmInitAdapter failed! \((?P<code>[0-9a-fx:]{3,40})\)")
_OFF_BUS = re.compile(r"GPU (?P<bus>[0-9a-fA-F:.]{7,20}): GPU has fallen off the bus")
_FIRMWARE = re.compile(r"Direct firmware load for (?P<path>nvidia/\S{1,100}) failed")
_SEGFAULT = re.compile(r"segfault at [^\n]{1,160} in (?P<library>lib[\w.+-]{3,80}?)\[")
_GSP = re.compile(r"GPU(?P<index>\d{1,3})\s[^\n]{0,60}(?:GSP Timeout|Heartbeat timed out|_kgspLogRpcTimeout)")
_GSP_OLD = re.compile(r"Timeout (?:after \d{1,4}s of )?waiting for RPC (?:response )?from (?:GPU(?P<index>\d{1,3}) )?GSP")
_WATCHDOG = re.compile(r"RC watchdog: GPU is probably locked! Notify Timeout Seconds: (?P<seconds>\d{1,5})")
_CUDA_ERROR = re.compile(r"CUDA error: ([^\n]{3,120})")
_LOADED_FILE = re.compile(r"libcuda\.so\.(?P<release>\d{3}\.\d{1,4}(?:\.\d{1,3})?)")
_NOT_OPEN = re.compile(
    r"(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{5,12}) \(PCI ID: (?P<device>[0-9a-f:]{9})\)[\s\S]{0,160}?is not supported by open"
)


def read_nvrm(text: PlainText) -> Values | None:
    """Xid reports and other events of the nvidia module in a kernel log."""
    body = re.sub(r"#012", "\n", text.body)
    xids = [_xid(match, body) for match in _XID.finditer(body)]
    events = _events(body)
    if not xids and not events:
        return None
    values: Values = {"xids": xids, "events": events}
    module = _OPEN.search(body) or _CLOSED.search(body)
    if module:
        values |= {"driver_release": module["release"], "module": "open" if module.re is _OPEN else "proprietary"}
    elif loaded := _LOADED_FILE.search(body):
        values["driver_release"] = loaded["release"]
    if errors := _CUDA_ERROR.findall(body):
        values["cuda_errors"] = [error.strip() for error in errors]
    return values


def _xid(match: re.Match[str], body: str) -> Values:
    rest = match["rest"]
    pid, name = _PID.search(rest), _NAME.search(rest)
    parts = [part for part in rest.lstrip(", ").split(",") if not _ELEMENT.fullmatch(part)]
    text = ",".join(parts).strip(" .,")
    if not text:
        text = body[match.end() : match.end() + 300].lstrip("\n").split("\n", 1)[0].strip(" .,")
    return {
        "xid": int(match["xid"]),
        "bus_id": match["bus"],
        "pid": int(pid["pid"]) if pid and pid["pid"].isdigit() else None,
        "process": name["name"].strip() if name and name["name"] != "<unknown>" else None,
        "text": text,
    }


def _events(body: str) -> list[Values]:
    events: list[tuple[int, Values]] = []
    for mismatch in (*_MISMATCH.finditer(body), *_MISMATCH_NEW.finditer(body)):
        found = {"kind": "api_mismatch", "client": mismatch["client"], "kernel_module": mismatch["module"]}
        events.append((mismatch.start(), found | {k: v for k, v in mismatch.groupdict().items() if k in ("process", "pid")}))
    events += [(m.start(), {"kind": "firmware_missing", "path": m["path"]}) for m in _FIRMWARE.finditer(body)]
    events += [(m.start(), {"kind": "rm_init_failed", "bus_id": m["bus"], "code": m["code"]}) for m in _RM_INIT.finditer(body)]
    events += [(m.start(), {"kind": "fallen_off_bus", "bus_id": m["bus"]}) for m in _OFF_BUS.finditer(body)]
    events += [(m.start(), {"kind": "segfault_in_library", "library": m["library"]}) for m in _SEGFAULT.finditer(body)]
    events += [(m.start(), {"kind": "rc_watchdog", "notify_timeout_s": int(m["seconds"])}) for m in _WATCHDOG.finditer(body)]
    events += [
        (m.start(), {"kind": "open_module_unsupported", "bus_id": m["bus"], "pci_id": m["device"]})
        for m in _NOT_OPEN.finditer(body)
    ]
    if double := re.search(r"double bit error \(DBE\)", body):
        events.append((double.start(), {"kind": "double_bit_ecc"}))
    gsp = _GSP.search(body) or _GSP_OLD.search(body)
    if gsp:
        events.append((gsp.start(), {"kind": "gsp_timeout", "gpu_index": int(gsp["index"]) if gsp["index"] else None}))
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


_LSMOD = re.compile(
    r"^\s{0,16}(?P<module>[a-z][\w]{1,40})\s{1,60}(?P<size>\d{3,10})\s{1,12}(?P<used>-?\d{1,5})"
    r"(?:\s{1,4}(?P<by>[\w,]{1,300}))?\s{0,4}$"
)
_GPU_MODULE = re.compile(r"nvidia\w{0,20}|nouveau|amdgpu|nvgpu|i915|xe|radeon|dxgkrnl|gdrdrv")
_MODINFO = re.compile(
    r"^[\s`]{0,16}(?P<key>filename|version|license|firmware|vermagic|srcversion|signer):\s{1,16}"
    r"(?P<value>[^\n]{1,300}?)`?\s{0,4}$",
    re.MULTILINE,
)
_MODINFO_MISSING = re.compile(r"modinfo: ERROR: Module (?P<module>[\w-]{1,40}) not found")
_MODINFO_VERSION = re.compile(
    r"modinfo -F version (?P<module>[\w-]{1,40})\s{0,4}\n\s{0,16}(?P<version>\d{2,4}\.\d{1,4}(?:\.\d{1,3})?)"
)


def read_modules(text: PlainText) -> Values | None:
    """Loaded modules (`lsmod`) or what `modinfo` says about nvidia's."""
    lines = unmarked(text)
    matches = [match for line in lines if (match := _LSMOD.match(line))]
    modules = {
        m["module"]: {"size": int(m["size"]), "used": int(m["used"])} for m in matches if _GPU_MODULE.fullmatch(m["module"])
    }
    if modules:
        loaded = {"nvidia_loaded": "nvidia" in modules, "nouveau_loaded": "nouveau" in modules}
        return {"modules": modules} | loaded
    return _modinfo("\n".join(lines))


def _modinfo(body: str) -> Values | None:
    other = {match["module"]: match["version"] for match in _MODINFO_VERSION.finditer(body)}
    if missing := _MODINFO_MISSING.search(body):
        return {"module": missing["module"], "error": "module_not_found", "version": None, "other": other}
    fields: dict[str, list[str]] = {}
    for match in _MODINFO.finditer(body):
        fields.setdefault(match["key"], []).append(match["value"].strip())
    if "filename" not in fields or "nvidia" not in fields["filename"][0]:
        return {"module": next(iter(other)), "version": next(iter(other.values())), "other": other} if other else None
    path, license_text = fields["filename"][0], fields.get("license", [""])[0]
    return {
        "module": path.rsplit("/", 1)[-1].split(".ko", 1)[0],
        "version": fields.get("version", [None])[0],
        "license": license_text or None,
        "open": "MIT" in license_text or "GPL" in license_text,
        "firmware": fields.get("firmware", []),
        "kernel_path": path,
        "vermagic": fields.get("vermagic", [None])[0],
    }


_DKMS = re.compile(
    r"^\s{0,16}(?P<module>nvidia[\w-]{0,30})[/,] ?(?P<version>[\d.]{3,20}), "
    r"(?P<kernel>[\w.+-]{3,80}), (?P<arch>\w{3,10}): (?P<state>\w{3,16})",
    re.MULTILINE,
)
_DKMS_ADDED = re.compile(r"^\s{0,16}(?P<module>nvidia[\w-]{0,30})[/,] ?(?P<version>[\d.]{3,20}): (?P<state>added)", re.MULTILINE)
_SECURE_BOOT = re.compile(r"Secure ?Boot (enabled|disabled)", re.IGNORECASE)
_LSPCI = re.compile(
    r"(?P<bus>[0-9a-f]{2,4}(?::[0-9a-f]{2}){1,2}\.\d) (?:VGA compatible controller|3D controller"
    r"|Display controller)[^:\n]{0,20}: (?P<device>[^\n]{3,160})"
)
_ONLY_VGA = re.compile(r"lspci[^\n|]{0,40}\|[^\n|]{0,40}grep[^\n|]{0,40}vga[^\n]{0,60}", re.IGNORECASE)
_NO_NVIDIA = re.compile(
    r"lspci[^\n|]{0,40}\|[^\n|]{0,24}grep (?:-\w{1,4} )?['\"]?nvidia['\"]?[^\S\n]{0,8}\n"
    r"\s{0,8}(?:0\s{0,8}(?:\n|$)|[^\n]{0,60}[$#>] )",
    re.IGNORECASE,
)
"""A search for NVIDIA on the bus with nothing, or a count of 0, below it."""
_IN_USE = re.compile(r"Kernel driver in use: (\w[\w-]{1,30})")


def read_kernel_state(text: PlainText) -> Values | None:
    """dkms builds, Secure Boot and display controllers, from `dkms status`, `mokutil --sb-state`, `lspci -k`."""
    body = text.body
    builds = [match.groupdict() for match in (*_DKMS.finditer(body), *_DKMS_ADDED.finditer(body))]
    secure = _SECURE_BOOT.search(body)
    controllers = list(_LSPCI.finditer(body))
    without_nvidia = _NO_NVIDIA.search(body) is not None
    if not builds and not secure and not controllers and not without_nvidia:
        return None
    values: Values = {
        "dkms": builds,
        "without_nvidia": without_nvidia,
        "hides_3d_controllers": _hides_3d_controllers(body),
    }
    if secure:
        values["secure_boot"] = secure[1].lower() == "enabled"
    values["controllers"] = [
        {"bus_id": found["bus"], "device": found["device"].strip(), "driver": used[1] if (used := _IN_USE.search(rest)) else None}
        for found, rest in blocks(controllers, body)
    ]
    return values


def _hides_3d_controllers(body: str) -> bool:
    """Was the listing cut to VGA controllers? GPUs without a display output are missing in it then."""
    filtered = _ONLY_VGA.search(body)
    return filtered is not None and not any(word in filtered[0].lower() for word in ("3d", "nvidia", "display"))


PROC_DRIVER_VERSION = Reader("proc_driver_version", ("NVIDIA UNIX",), read_proc_version)
DMESG_NVRM = Reader("dmesg_nvrm", ("NVRM", "Xid", "nvidia/"), read_nvrm)
LSMOD_MODINFO = Reader("lsmod_modinfo", ("nvidia", "nouveau"), read_modules)
KERNEL_STATE = Reader("kernel_state", ("nvidia", "ecure", "controller"), read_kernel_state)
