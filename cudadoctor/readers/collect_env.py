"""Reads `python -m torch.utils.collect_env` of every age and `vllm collect-env`, also with all line ends lost."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.readers.reader import Reader, Values, blocks, first_version, present, truth
from cudadoctor.readers.text import PlainText

LABELS = (
    "PyTorch version", "Is debug build", "CUDA used to build PyTorch", "ROCM used to build PyTorch",
    "XPU used to build PyTorch", "OS",
    "GCC version", "Clang version", "CMake version", "Libc version", "Python version", "Python platform", "Is CUDA available",
    "CUDA runtime version", "CUDA_MODULE_LOADING set to", "GPU models and configuration", "Nvidia driver version",
    "cuDNN version",
    "Is XPU available", "HIP runtime version", "MIOpen runtime version", "Is XNNPACK available", "Caching allocator config",
    "CPU",
    "Versions of relevant libraries", "ROCM Version", "Neuron SDK Version", "vLLM Version", "vLLM Build Flags", "GPU Topology",
)  # fmt: skip
_LABEL = re.compile(r"(?<![\w(\[])(?P<label>" + "|".join(re.escape(label) for label in LABELS) + r")[ \t]{0,40}:(?!:)")
_GPU = re.compile(r"GPU \d{1,3}: (?P<name>[^\n]{1,100}?)(?=\s{1,20}GPU \d{1,3}:|\s{0,20}\n|\s{0,20}$)")
_MIG = re.compile(r"MIG (\S{1,20})\s{1,8}Device\s{1,4}\d{1,3}:")
_CUDNN = re.compile(r"(?:libcudnn\w{0,40}\.so\.|libcudnn\.|cudnn\w{0,40}_?)(?P<version>\d{1,3}(?:\.\d{1,3}){0,3})")
_PIP = re.compile(r"\[pip3?\] ([\w.+-]{1,80})==([\w.+!-]{1,80})")
_CONDA = re.compile(r"\[conda\] ([\w.+-]{1,80})[ \t]{1,60}([\w.+!-]{1,80})(?:[ \t]{1,60}(\S{1,80}))?(?:[ \t]{1,20}(\S{1,60}))?")
_CPU_NAME = re.compile(r"(?:Model name|(?<!\w)Name)\s{0,4}:\s{0,60}(?P<name>[^\n]{1,100}?)(?=\s{1,4}CPU family|\n|$)")
_VENDORED = re.compile(r"\)\s{1,4}(\d{1,4}(?:\.\d{1,4}){1,3})")
_BANNER = re.compile(r"={10,80}\n\s{0,40}(?:System Info|PyTorch Info|Python Environment|CUDA / GPU Info|vLLM Info)")


def sections(body: str) -> dict[str, str]:
    """The text after each label, up to the next label; of a label that comes twice the first counts."""
    found: dict[str, str] = {}
    for match, rest in blocks(list(_LABEL.finditer(body)), body):
        found.setdefault(match["label"], rest)
    return found


def _line(parts: dict[str, str], label: str) -> str | None:
    return present(parts[label].split("\n", 1)[0].strip("` ")) if label in parts else None


def read_environment(text: PlainText) -> Values | None:
    """All values of a report by torch's collector; None where the text is none.

    Sample::

        PyTorch version: 2.4.0+cu121
        CUDA used to build PyTorch: 12.1
        GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4070 Laptop GPU
    """
    parts = sections(text.body)
    if "PyTorch version" not in parts or len(parts) < 3:
        return None
    values = _builds(parts) | _tools(parts) | _runtime(parts)
    values |= _gpus(parts.get("GPU models and configuration")) | _cudnn(parts.get("cuDNN version"))
    values |= _packages(text.body)
    if cpu := _cpu(parts.get("CPU") or _after_banner(text.body, "CPU Info")):
        values["cpu_model"] = cpu
    if values["rocm_build"] or values.get("hip_runtime"):
        values["vendor"] = "amd"
    platform = _platform(values, text.body)
    return values | {"platform": platform} if platform else values


def _builds(parts: dict[str, str]) -> Values:
    return {
        "torch_version": _line(parts, "PyTorch version"),
        "is_debug": truth(_line(parts, "Is debug build")),
        "cuda_build": _line(parts, "CUDA used to build PyTorch"),
        "rocm_build": _line(parts, "ROCM used to build PyTorch"),
    }


def _tools(parts: dict[str, str]) -> Values:
    gcc = _line(parts, "GCC version")
    vendored = _VENDORED.search(gcc) if gcc else None
    libc = _line(parts, "Libc version")
    return {
        "os": _line(parts, "OS"),
        "gcc": vendored[1] if vendored else first_version(gcc),
        "clang": first_version(_line(parts, "Clang version")),
        "cmake": first_version(_line(parts, "CMake version")),
        "libc": libc.removeprefix("glibc-") if libc else None,
        "python": first_version(_line(parts, "Python version")),
        "python_platform": _line(parts, "Python platform"),
    }


def _runtime(parts: dict[str, str]) -> Values:
    return {
        "cuda_available": truth(_line(parts, "Is CUDA available")),
        "cuda_runtime": _line(parts, "CUDA runtime version"),
        "cuda_module_loading": _line(parts, "CUDA_MODULE_LOADING set to"),
        "driver_release": _line(parts, "Nvidia driver version"),
        "hip_runtime": _line(parts, "HIP runtime version"),
        "miopen_runtime": _line(parts, "MIOpen runtime version"),
    }


def _gpus(section: str | None) -> Values:
    if section is None:
        return {"gpus": []}
    names = [match["name"].strip(" `") for match in _GPU.finditer(section)]
    if not names:
        only = present(section.strip().split("\n", 1)[0])
        names = [only] if only and "==" not in only else []
    whole = names[:-1] if len(names) > 1 and names[-1] != names[-2] and names[-2].startswith(names[-1]) else names
    values: Values = {"gpus": names, "gpus_at_least": len(whole), "gpus_distinct": list(dict.fromkeys(whole))}
    mig = _MIG.findall(section)
    return values | {"mig_devices": mig} if mig else values


def _cudnn(section: str | None) -> Values:
    if section is None or present(section.strip().split("\n", 1)[0]) is None:
        return {"cudnn": None}
    versions = [match["version"] for match in _CUDNN.finditer(section)]
    if not versions:
        return {"cudnn": first_version(section.split("\n", 1)[0])}
    distinct = list(dict.fromkeys(versions))
    return {"cudnn": versions[0] if len(versions) == 1 else None, "cudnn_candidates": distinct}


def _packages(body: str) -> Values:
    conda = {name: (version, build, channel) for name, version, build, channel in _CONDA.findall(body) if name != "Could"}
    return {
        "pip": dict(_PIP.findall(body)),
        "conda": {name: found[0] for name, found in conda.items()},
        "conda_builds": {name: f"{found[1]} {found[2]}".strip() for name, found in conda.items() if found[1]},
    }


def _cpu(section: str) -> str | None:
    if match := _CPU_NAME.search(section):
        return match["name"].strip()
    first = section.strip().split("\n", 1)[0]
    return first if "CPU" in first or first.startswith("Apple") else None


def _after_banner(body: str, title: str) -> str:
    """The text of one of vllm's sections, which have a banner in place of a label."""
    position = body.find(title)
    return body[position:] if position >= 0 else ""


def _platform(values: Values, body: str) -> str | None:
    words = " ".join(filter(None, (values["os"], values["python_platform"]))).lower()
    tests: Iterable[tuple[str, bool]] = (
        ("windows", "windows" in words),
        ("macos", "macos" in words or "mac os" in words or "darwin" in words),
        ("wsl", "microsoft" in words),
        ("linux", bool(words)),
    )
    known = next((name for name, holds in tests if holds), None)
    return known or ("windows" if re.search(r"\bPS [A-Za-z]:\\", body) else None)


def read_vllm(text: PlainText) -> Values | None:
    """The same for vllm's collector: with its banners, or in its older form, which is torch's word for word."""
    values = read_environment(text)
    if values is None:
        return None
    parts = sections(text.body)
    extra = {"vllm_version": _line(parts, "vLLM Version"), "neuron_sdk": _line(parts, "Neuron SDK Version")}
    return values | {name: value for name, value in extra.items() if value}


COLLECT_ENV = Reader("collect_env", ("PyTorch version",), read_environment)
VLLM_COLLECT_ENV = Reader("vllm_collect_env", ("PyTorch version",), read_vllm)
