"""Reads the environment reports of sglang, transformers, diffusers, accelerate, DeepSpeed and xFormers."""

from __future__ import annotations

import re

from cudadoctor.readers.reader import Reader, Values, first_version, from_integer, integer, present, truth
from cudadoctor.readers.text import PlainText

_SGLANG_GPUS = re.compile(r"^\s{0,16}GPU (?P<indices>\d{1,3}(?:,\d{1,3}){0,64}): (?P<name>[^\n]{2,100})$", re.MULTILINE)
_SGLANG_CC = re.compile(
    r"^\s{0,16}GPU (?P<indices>\d{1,3}(?:,\d{1,3}){0,64}) Compute Capability: (?P<cc>[\d., ]{1,60})$", re.MULTILINE
)
_SGLANG_PACKAGE = re.compile(
    r"^\s{0,16}(?P<name>[A-Za-z][\w.-]{0,60}): (?P<version>\d[\w.+!-]{0,60}|Module Not Found)\s{0,8}$", re.MULTILINE
)


def _after(body: str, label: str) -> str | None:
    """What follows `label:` on the first line that begins with it."""
    match = re.search(rf"^[ \t]{{0,16}}{re.escape(label)}[ \t]{{0,40}}:[ \t]{{0,40}}([^\n]{{0,300}})$", body, re.MULTILINE)
    return present(match[1]) if match else None


def read_sglang(text: PlainText) -> Values | None:
    """Values of `python -m sglang.check_env`: `GPU 0,1: NVIDIA A100-SXM4-80GB`, `sglang: 0.2.10` ..."""
    body = text.body
    capabilities = {match["indices"]: match["cc"].strip() for match in _SGLANG_CC.finditer(body)}
    if _after(body, "CUDA available") is None or not re.search(r"\bsglang\b|sgl_kernel", body):
        return None
    gpus = [
        {
            "indices": [int(index) for index in match["indices"].split(",")],
            "name": match["name"].strip(),
            "compute_capability": capabilities.get(match["indices"]),
        }
        for match in _SGLANG_GPUS.finditer(body)
    ]
    nvcc = re.search(r"NVCC: [^\n]{0,60}V(\d{1,3}(?:\.\d{1,4}){1,3})", body)
    skipped = {"Python", "PyTorch", "CUDA_HOME"}
    packages = {m["name"]: present(m["version"]) for m in _SGLANG_PACKAGE.finditer(body) if m["name"] not in skipped}
    return {
        "python": first_version(_after(body, "Python")),
        "cuda_available": truth(_after(body, "CUDA available")),
        "gpus": gpus,
        "cuda_home": _after(body, "CUDA_HOME"),
        "nvcc": nvcc[1] if nvcc else None,
        "driver_release": first_version(_after(body, "CUDA Driver Version")),
        "torch_version": _after(body, "PyTorch"),
        "packages": packages,
    }


_LABELLED = re.compile(r"^\s{0,16}-?\s{0,8}(?P<label>[^\n:]{2,60}?)\s{0,4}: (?P<value>[^\n]{0,300})$")
_EMOJI = re.compile(r"[^\w\s().?/-]")
_TORCH_LINE = re.compile(r"(?P<version>\S{1,60})(?: \((?P<available>[^)]{1,40})\))?")
_GPU_LINE = re.compile(r"^(?P<name>[A-Za-z][\w .()-]{2,80}), (?P<mib>\d{2,9}) MiB$")


def read_transformers(text: PlainText) -> Values | None:
    """Values of `transformers-cli env`, `diffusers-cli env` and `lerobot`: `- PyTorch version (GPU?): 2.5.1+cu124 (True)`."""
    if "version" not in text.body or "Platform:" not in text.body:
        return None
    values: Values = {"versions": {}, "gpus": []}
    for line in text.lines:
        match = _LABELLED.match(line)
        if match:
            _labelled(values, _EMOJI.sub("", match["label"]).strip(), match["value"].strip())
        elif gpu := _GPU_LINE.match(line.strip()):
            values["gpus"].append({"name": gpu["name"], "memory_total_mib": int(gpu["mib"])})
    if "platform_string" not in values or not ("torch_version" in values or values["versions"]):
        return None
    return values | ({"platform": "wsl"} if "microsoft" in values["platform_string"].lower() else {})


def _labelled(values: Values, label: str, value: str) -> None:
    key = label.lower()
    if key.startswith("pytorch version"):
        values |= _torch(value)
    elif key == "platform":
        values["platform_string"] = value
    elif key == "python version":
        values["python"] = first_version(value)
    elif key == "cuda version":
        values["torch_cuda"] = present(value)
    elif key.startswith("is pytorch built with cuda"):
        values["cuda_build"] = truth(value)
    elif key in ("gpu model", "gpu type", "accelerator", "gpu"):
        gpu = _GPU_LINE.match(value)
        found = {"name": gpu["name"], "memory_total_mib": int(gpu["mib"])} if gpu else {"name": value}
        values["gpus"] += [found] if present(value) else []
    elif key.endswith(" version") and value[:1].isdigit():
        values["versions"][key.removesuffix(" version").strip().replace(" ", "_")] = value


def _torch(value: str) -> Values:
    match = _TORCH_LINE.match(value)
    if match is None:
        return {}
    found: Values = {"torch_version": present(match["version"])}
    available = truth(match["available"]) if match["available"] else None
    if match["available"] and available is None:
        available = "cuda" in match["available"].lower()
    return found if available is None else found | {"cuda_available": available}


_CONFIG = re.compile(r"^\s{0,40}- (?P<name>[a-z_\d]{2,50}): (?P<value>[^\n]{0,200})$", re.MULTILINE)


def read_accelerate(text: PlainText) -> Values | None:
    """Values of `accelerate env`: the report of transformers plus the default config."""
    if "Accelerate" not in text.body or "default config" not in text.body:
        return None
    values = read_transformers(text)
    if values is None:
        return None
    values["config"] = {match["name"]: _setting(match["value"]) for match in _CONFIG.finditer(text.body)}
    return values


def _setting(value: str) -> object:
    known = truth(value) if value in ("True", "False") else None
    if known is not None:
        return known
    return integer(value) if value.isdigit() else value


_OP = re.compile(
    r"^\s{0,8}(?P<op>[a-z][\w]{1,40}) \.{1,40} (?P<installed>\[\w+\]) \.{1,20} (?P<compatible>\[\w+\])", re.MULTILINE
)
_DOTTED = re.compile(r"^\s{0,8}(?P<label>[a-z][\w /().]{2,60}?) \.{2,40} (?P<value>[^\n]{1,300})$", re.MULTILINE)


def read_ds_report(text: PlainText) -> Values | None:
    """Values of `ds_report`: `cpu_adam ............... [NO] ....... [OKAY]`, `torch version .................... 2.12.0+cpu`."""
    body = text.body
    ops = {m["op"]: {"installed": truth(m["installed"]), "compatible": truth(m["compatible"])} for m in _OP.finditer(body)}
    general = {match["label"]: match["value"].strip() for match in _DOTTED.finditer(body) if "[" not in match["value"][:1]}
    ninja = re.search(r"^\s{0,8}ninja \.{2,40} (\[\w+\])", body, re.MULTILINE)
    if not ops and "torch version" not in general:
        return None
    values: Values = {"ops": ops}
    if ninja:
        values["ninja"] = truth(ninja[1])
    if "torch version" in general:
        values |= {"torch_version": general["torch version"], "torch_cuda": present(general.get("torch cuda version"))}
        values["nvcc"] = first_version(general.get("nvcc version"))
    if "deepspeed info" in general:
        values["deepspeed"] = general["deepspeed info"].split(",")[0].strip()
    if wheel := general.get("deepspeed wheel compiled w."):
        values["wheel_compiled_with"] = _compiled_with(wheel)
    if memory := re.match(r"([\d.]{1,12}) GB", general.get("shared memory (/dev/shm) size", "")):
        values["shared_memory_gb"] = float(memory[1]) if memory[1].count(".") <= 1 else None
    if "Traceback (most recent call last)" in body:
        values["error"] = "traceback"
    return values


def _compiled_with(wheel: str) -> Values:
    torch = re.search(r"torch ([\w.+-]{1,40})", wheel)
    cuda = re.search(r"cuda (\d{1,2}\.\d{1,2})", wheel)
    return {"torch": torch[1].rstrip(",") if torch else None, "cuda": cuda[1] if cuda else None}


_XFORMERS_LINE = re.compile(r"^\s{0,16}(?P<label>[a-z][\w.@+-]{2,80}):\s{1,60}(?P<value>[^\n]{1,200})$", re.MULTILINE)
_XFORMERS_VERSION = re.compile(r"^\s{0,16}xFormers (\d[\w.+-]{2,60})\s{0,8}$", re.MULTILINE)
_BUILT_FOR = re.compile(
    r"PyTorch (?P<torch>\S{1,60}) with CUDA (?P<cuda>\d{3,5}) \(you have (?P<have>[^)\n]{1,60})\)"
    r"(?:\s{1,20}Python\s{1,4}(?P<python>\S{1,20}) \(you have (?P<have_python>[^)\n]{1,20})\))?"
)
_XFORMERS_FIELDS = {
    "pytorch.version": "torch_version",
    "pytorch.cuda": "torch_cuda",
    "gpu.compute_capability": "compute_capability",
    "gpu.name": "gpu",
    "build.torch_version": "build_torch_version",
    "build.python_version": "build_python_version",
}


def read_xformers(text: PlainText) -> Values | None:
    """Values of `python -m xformers.info`; CUDA stands there as an integer without its last digits (1107 is 11.7)."""
    body = text.body
    version = _XFORMERS_VERSION.search(body)
    built = _BUILT_FOR.search(body) if "xFormers" in body else None
    fields = {match["label"]: match["value"].strip() for match in _XFORMERS_LINE.finditer(body)}
    if version is None and built is None and "build.info" not in fields:
        return None
    values: Values = {"features": {k: v for k, v in fields.items() if v in ("available", "unavailable") and "." in k}}
    if version:
        values["xformers_version"] = version[1]
    values |= {name: fields[label] for label, name in _XFORMERS_FIELDS.items() if label in fields}
    if "build.cuda_version" in fields:
        values["build_cuda_version"] = from_integer(fields["build.cuda_version"])
    if "build.env.TORCH_CUDA_ARCH_LIST" in fields:
        values["build_arch_list"] = re.split(r"[ ;]+", fields["build.env.TORCH_CUDA_ARCH_LIST"])
    return values | (_built_for(built) if built else {})


def _built_for(built: re.Match[str]) -> Values:
    found: Values = {
        "extensions_loaded": False,
        "built_for_torch": built["torch"],
        "built_for_cuda": from_integer(built["cuda"]),
        "torch_version": built["have"],
    }
    if built["python"]:
        found |= {"built_for_python": built["python"], "python": built["have_python"]}
    return found


SGLANG = Reader("sglang_check_env", ("CUDA available",), read_sglang)
TRANSFORMERS = Reader("transformers_env", ("Platform:",), read_transformers)
ACCELERATE = Reader("accelerate_env", ("Accelerate",), read_accelerate)
DS_REPORT = Reader("ds_report", ("[OKAY]", "[NO]", "deepspeed info", "torch install path"), read_ds_report)
XFORMERS = Reader("xformers_info", ("xFormers", "build.info"), read_xformers)
