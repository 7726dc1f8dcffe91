"""Reads what bitsandbytes, numba, cupy, jax and TensorFlow say about their CUDA."""

from __future__ import annotations

import re

from cudadoctor.readers.nvidia_smi import gpu_names, read_nvidia_smi
from cudadoctor.readers.reader import Reader, Values, blocks, first_version, from_integer, integer, present, truth
from cudadoctor.readers.text import PlainText

_BNB_DETECTED = re.compile(r"Detected CUDA version (\d{2,4})")
_BNB_CC = re.compile(r"Highest compute capability among GPUs detected: (\d{1,2}\.\d)")
_BNB_RUNTIME = re.compile(r"CUDA runtime path found: (\S{1,300})")
_BNB_BINARY = re.compile(
    r"^bin (\S{1,300})|Loading binary (\S{1,300}?)(?:\.\.\.)?$|Defaulting to (\S{1,100}?)(?:\.\.\.)?$", re.MULTILINE
)
_BNB_MISSING = re.compile(r"Required library version not found: (\S{1,100}?)\.(?=\s|$)")
_BNB_PATHS = re.compile(r"found to be non-existent: \{([^}\n]{1,600})\}")
_POSIX_PATH = re.compile(r"(?:Posix|Windows)Path\('([^']{1,300})'\)")


def read_bitsandbytes(text: PlainText) -> Values | None:
    """The self-diagnosis: detected CUDA, capability, chosen binary, errors."""
    body = text.body
    if "CUDA SETUP" not in body and "bitsandbytes" not in body:
        return None
    detected, cc, runtime = _BNB_DETECTED.search(body), _BNB_CC.search(body), _BNB_RUNTIME.search(body)
    binaries = [next(filter(None, match)) for match in _BNB_BINARY.findall(body)]
    if not (detected or cc or runtime or binaries):
        return None
    errors = ["cuda_below_11"] if "CUDA version lower than 11" in body else []
    errors += [f"required_library_not_found:{name}" for name in _BNB_MISSING.findall(body)]
    errors += ["cuda_detection_failed"] if "CUDA detection failed" in body else []
    errors += ["setup_failed"] if "CUDA Setup failed" in body else []
    return {
        "cuda_version_detected": f"{detected[1][:-1]}.{detected[1][-1]}" if detected else None,
        "compute_capability": cc[1] if cc else None,
        "runtime_path": runtime[1] if runtime else None,
        "binary": binaries[-1].rstrip(".").replace("\\", "/").rsplit("/", 1)[-1] if binaries else None,
        "errors": errors,
        "nonexistent_paths": [path for found in _BNB_PATHS.findall(body) for path in _POSIX_PATH.findall(found)],
    }


_NUMBA_FOUND = re.compile(r"Found (\d{1,3}) CUDA devices?")
_NUMBA_DEVICE = re.compile(
    r"^\s{0,16}id (\d{1,3})\s{1,20}(?:b')?(?P<name>[^\n']{2,80}?)'?\s{1,80}\[(?P<supported>[A-Z ]{2,20})\]", re.MULTILINE
)
_NUMBA_CC = re.compile(r"[Cc]ompute [Cc]apability: (\d{1,2}\.\d)")
_NUMBA_BUS = re.compile(r"[Pp]ci [Bb]us [Ii]d: (\d{1,6})", re.IGNORECASE)
_NUMBA_SUMMARY = re.compile(r"(\d{1,3})/(\d{1,3}) devices are supported")
_NUMBA_ERRORS = (
    ("driver_missing_function", "driver missing fun"),
    ("no_device", "CUDA_ERROR_NO_DEVICE"),
    ("driver_library_not_found", "CUDA driver library cannot be found"),
    ("no_supported_devices", "No supported GPU(s)"),
)


def read_numba(text: PlainText) -> Values | None:
    """Values of `numba -s` and `cuda.detect()`: devices, supported counts, error of the CUDA part."""
    body = text.body
    devices = list(_NUMBA_DEVICE.finditer(body))
    if not devices and "__CUDA Information__" not in body and "CUDA Information" not in body and not _NUMBA_FOUND.search(body):
        return None
    values: Values = {"gpus": [_numba_device(device, rest) for device, rest in blocks(devices, body)]}
    if summary := _NUMBA_SUMMARY.search(body):
        values |= {"supported": int(summary[1]), "total": int(summary[2])}
    for name, label in (("python", "Python Version"), ("platform_string", "Platform"), ("numba", "Numba Version")):
        if match := re.search(rf"^\s{{0,16}}{label}(?: Name)?\s{{1,60}}: ([^\n]{{1,200}})$", body, re.MULTILINE):
            values[name] = match[1].strip()
    error = next((code for code, words in _NUMBA_ERRORS if words in body), None)
    if error:
        values["error"] = error
    if "platform_string" in values:
        values["platform"] = _platform(values["platform_string"])
    return values


def _numba_device(device: re.Match[str], rest: str) -> Values:
    cc, bus = _NUMBA_CC.search(rest), _NUMBA_BUS.search(rest)
    return {
        "id": int(device[1]),
        "name": device["name"].strip(),
        "supported": device["supported"].strip() == "SUPPORTED",
        "compute_capability": cc[1] if cc else None,
        "pci_bus_id": int(bus[1]) if bus else None,
    }


def _platform(words: str) -> str:
    lowered = words.lower()
    if "windows" in lowered:
        return "windows"
    if "macos" in lowered or "darwin" in lowered:
        return "macos"
    return "wsl" if "microsoft" in lowered else "linux"


_CUPY_LINE = re.compile(r"^\s{0,16}(?P<label>[A-Za-z][\w ]{1,40}?)\s{1,40}: (?P<value>[^\n]{1,300})$", re.MULTILINE)
_CUPY_DEVICE = re.compile(r"Device (\d{1,3}) (Name|Compute Capability|PCI Bus ID)")


def read_cupy(text: PlainText) -> Values | None:
    """Values of `cupy.show_config()`; CUDA stands there as an integer (12090), cuDNN as 7501 or 90100."""
    fields = {match["label"].strip(): match["value"].strip() for match in _CUPY_LINE.finditer(text.body)}
    if "CuPy Version" not in fields:
        return None
    values: Values = {
        "cupy_version": fields["CuPy Version"],
        "numpy": fields.get("NumPy Version"),
        "cuda_root": present(fields.get("CUDA Root")),
        "cuda_build": from_integer(fields.get("CUDA Build Version")),
        "driver_cuda_version": from_integer(fields.get("CUDA Driver Version")),
        "runtime_version": from_integer(fields.get("CUDA Runtime Version")),
        "cudnn_build": _packed(fields.get("cuDNN Build Version")),
        "cudnn": _packed(fields.get("cuDNN Version")),
        "nccl_build": _packed(fields.get("NCCL Build Version")),
        "nccl": _packed(fields.get("NCCL Runtime Version")),
    }
    gpus: dict[int, Values] = {}
    for label, value in fields.items():
        if device := _CUPY_DEVICE.fullmatch(label):
            gpu = gpus.setdefault(int(device[1]), {"index": int(device[1])})
            gpu |= _cupy_device(device[2], value)
    return values | {"gpus": list(gpus.values())} if gpus else values


def _cupy_device(label: str, value: str) -> Values:
    if label == "Compute Capability":
        return {"compute_capability": f"{value[:-1]}.{value[-1]}"}
    return {"name" if label == "Name" else "pci_bus_id": value}


def _packed(value: str | None) -> str | None:
    """`7.5.1` for 7501, `9.1.0` for 90100, `2.21.5` for 22105."""
    packed = integer(present(value))
    if packed is None:
        return None
    if packed >= 10000:
        return f"{packed // 10000}.{packed % 10000 // 100}.{packed % 100}"
    return f"{packed // 1000}.{packed % 1000 // 100}.{packed % 100}"


_JAX_DEVICES = re.compile(r"jax\.devices \((\d{1,5}) total, (\d{1,5}) local\): \[(?P<kind>\w{1,40})")
_JAX_LINE = re.compile(
    r"^\s{0,16}(?P<label>jax|jaxlib|numpy|python|process_count|device info|platform):\s{1,12}(?P<value>[^\n]{1,300})$",
    re.MULTILINE,
)


def read_jax(text: PlainText) -> Values | None:
    """Values of `jax.print_environment_info()`, with the nvidia-smi table that it appends."""
    fields = {match["label"]: match["value"].strip() for match in _JAX_LINE.finditer(text.body)}
    if "jax" not in fields or "jaxlib" not in fields:
        return None
    devices = _JAX_DEVICES.search(text.body)
    smi = read_nvidia_smi(text)
    return {
        "jax": fields["jax"],
        "jaxlib": fields["jaxlib"],
        "numpy": fields.get("numpy"),
        "python": first_version(fields.get("python")),
        "process_count": integer(fields.get("process_count")),
        "devices_total": int(devices[1]) if devices else None,
        "device_kind": devices["kind"] if devices else None,
        "nvidia_smi": _short(smi, text) if smi else None,
    }


def _short(smi: Values, text: PlainText) -> Values:
    return {
        "driver_release": smi["driver_release"],
        "driver_cuda_version": smi["driver_cuda_version"],
        "gpus": gpu_names(text),
    }


_TF_OPENED = re.compile(r"Successfully opened dynamic library (\S{1,80})")
_TF_FAILED = re.compile(r"Could not load dynamic library '([^'\n]{1,80})'")
_TF_INFO = re.compile(r"'(cuda_version|cudnn_version|is_cuda_build|is_rocm_build)': (?:'([^'\n]{1,20})'|(True|False))")


def read_tensorflow(text: PlainText) -> Values | None:
    """The load log of TensorFlow 2 and `tf.sysconfig.get_build_info()`."""
    body = text.body
    opened, failed, info = _TF_OPENED.findall(body), _TF_FAILED.findall(body), _TF_INFO.findall(body)
    if not (opened or failed or info):
        return None
    values: Values = {"opened": opened, "failed": failed}
    runtime = next((match for name in opened if (match := re.search(r"libcudart\.so\.(\d{1,2}\.\d)", name))), None)
    if runtime:
        values["cuda_runtime"] = runtime[1]
    for name, word, flag in info:
        values[name] = truth(flag) if flag else word
    return values


BITSANDBYTES = Reader("bitsandbytes", ("CUDA SETUP", "bitsandbytes"), read_bitsandbytes)
NUMBA = Reader("numba_s", ("CUDA devices", "CUDA Information", "[SUPPORTED]"), read_numba)
CUPY = Reader("cupy_show_config", ("CuPy Version",), read_cupy)
JAX = Reader("jax_env", ("jaxlib",), read_jax)
TENSORFLOW = Reader("tf_build_info", ("dynamic library", "cuda_version'", "is_cuda_build"), read_tensorflow)
