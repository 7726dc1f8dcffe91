"""Describes the examined Python and its torch, then proves that torch computes; prints JSON lines as it goes.

Runs in the user's interpreter and environment, so: Python 3.7 or newer, standard library only. The lines go to a copy of stdout;
whatever imported packages print goes to stderr. Each line is written as soon as it is known, so a crash or a hang loses only what
follows, and the last `step` line names what was being done.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import re
import sys
import time
import warnings
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional

Emit = Callable[..., None]

HERE = os.path.dirname(os.path.abspath(__file__))

GPU_PACKAGES = re.compile(
    r"^(?:torch|torch-.*|torch(?:vision|audio|text|data|ao|rec|titan|tune)|pytorch|pytorch-.*|libtorch|triton|triton-.*"
    r"|nvidia-.*|cuda|cuda-.*|cudatoolkit|cudnn|nccl|libcu.*|libnv.*|cupy.*|cudf.*|cuml.*|cugraph.*|rmm.*|pylibraft.*|raft-dask.*"
    r"|jax.*|flax|tensorflow.*|tf-nightly.*|keras|numba.*|flash-attn.*|flash-attention|flashinfer.*|xformers|vllm.*|sglang.*"
    r"|bitsandbytes|deepspeed.*|transformer-engine.*|apex|onnxruntime.*|tensorrt.*|ctranslate2|faster-whisper|llama-cpp-python"
    r"|pycuda|pynvml|accelerate|transformers|mamba-ssm|causal-conv1d|sageattention|auto-gptq|autoawq|gptqmodel|exllama.*"
    r"|unsloth.*|spconv.*|pyg-lib|dgl.*|kaolin|pytorch3d|detectron2|gsplat|mmcv.*|diffusers|lightning|numpy|ninja"
    r"|paddlepaddle.*|mxnet.*|warp-lang|nvtx|pyopencl|cutlass|intel-extension-for-pytorch|torchaudio|magma-cuda.*)$"
)
"""Packages worth reporting, by normalised name."""
LIBRARY_NAMES = re.compile(
    r"/lib(?:cuda|cudnn|cublas|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|nvidia|nvrtc|nvJit|nvToolsExt|torch|c10)"
)


def proofs_of_ours() -> Any:
    """The module with the second half. This folder is on the search path for this import only: other modules of it would
    shadow the user's. A script's folder is put there by Python itself, unless PYTHONSAFEPATH is set."""
    if not sys.path or os.path.abspath(sys.path[0]) != HERE:
        sys.path.insert(0, HERE)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    module = importlib.import_module("_torch_proofs_child")
    sys.dont_write_bytecode = writes
    del sys.path[0]
    return module


def open_protocol() -> Emit:
    """Keep stdout for the protocol and send what anybody else prints there to stderr."""
    descriptor = os.dup(1)
    os.dup2(2, 1)

    def emit(event: str, **fields: Any) -> None:
        line = json.dumps(dict(fields, event=event)) + "\n"
        os.write(descriptor, line.encode("ascii"))

    return emit


def describe_python(emit: Emit) -> None:
    """The interpreter: version, prefixes, and how it came to be."""
    base = getattr(sys, "base_prefix", sys.prefix)
    emit(
        "python",
        executable=sys.executable,
        version=".".join(str(part) for part in sys.version_info[:3]),
        prefix=sys.prefix,
        base_prefix=base,
        conda=os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        made_by_uv=bool(re.search(r"^uv\s*=", read_file(os.path.join(sys.prefix, "pyvenv.cfg")), re.MULTILINE)),
        path=[folder for folder in sys.path if folder],
    )


def read_file(path: str) -> str:
    """The text of a regular file; empty where there is none: a pipe would never come to its end."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def describe_packages(emit: Emit) -> None:
    """GPU-related packages from the names of their metadata folders; nothing is imported."""
    found: Dict[str, Dict[str, str]] = {}
    for folder in sys.path:
        for package in list_packages(folder or "."):
            found.setdefault(package["name"], package)
    for package in list_conda_packages(os.path.join(sys.prefix, "conda-meta")):
        found[package["name"]] = dict(found.get(package["name"], {}), **package)
    emit("packages", packages=sorted(found.values(), key=lambda package: package["name"]))


def list_packages(folder: str) -> Iterator[Dict[str, str]]:
    """`torch-2.5.1+cu124.dist-info` is torch 2.5.1+cu124; older eggs keep the version inside."""
    for entry in listed(folder):
        stem, kind = os.path.splitext(entry)
        if kind not in (".dist-info", ".egg-info"):
            continue
        name, _, version = stem.partition("-")
        if not GPU_PACKAGES.match(normalised(name)):
            continue
        path = os.path.join(folder, entry)
        if kind == ".egg-info":
            text = read_file(os.path.join(path, "PKG-INFO")) or read_file(path)
            match = re.search(r"^Version: (\S+)", text, re.MULTILINE)
            version = match.group(1) if match else version.partition("-py")[0]
        installer = read_file(os.path.join(path, "INSTALLER")).strip()
        yield {"name": normalised(name), "version": version, "location": folder, "installer": installer}


def list_conda_packages(folder: str) -> Iterator[Dict[str, str]]:
    """`pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0.json` is pytorch 2.5.1 of that build."""
    for entry in listed(folder):
        parts = entry[: -len(".json")].rsplit("-", 2) if entry.endswith(".json") else []
        if len(parts) != 3 or not GPU_PACKAGES.match(normalised(parts[0])):
            continue
        channel = re.search(r'"channel":\s*"([^"]*)"', read_file(os.path.join(folder, entry)))
        yield {
            "name": normalised(parts[0]),
            "version": parts[1],
            "build": parts[2],
            "channel": channel.group(1) if channel else "",
            "installer": "conda",
        }


def listed(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def find_torch(emit: Emit) -> bool:
    """Is there a torch to import? Says where, and what its version file says, without running any of it."""
    from importlib.util import find_spec

    try:
        spec = find_spec("torch")
    except (ImportError, ValueError) as error:
        emit("torch_absent", message="looking for torch failed: %s" % error, unreadable="")
        return False
    if spec is None or spec.origin is None:
        namespace = list(spec.submodule_search_locations or ()) if spec is not None else []
        message = "only a folder without __init__.py: %s" % namespace[0] if namespace else ""
        emit("torch_absent", message=message, unreadable=next(unreadable(sys.path + namespace), ""))
        return False
    text = read_file(os.path.join(os.path.dirname(spec.origin), "version.py"))
    emit("torch_found", location=os.path.dirname(spec.origin), **parse_version_file(text))
    return True


def unreadable(folders: List[str]) -> Iterator[str]:
    """Folders that exist and cannot be looked into: what is in them is not known."""
    for folder in folders:
        if os.path.isdir(folder or ".") and not os.access(folder or ".", os.R_OK | os.X_OK):
            yield folder


def parse_version_file(text: str) -> Dict[str, Optional[str]]:
    """Version, CUDA and ROCm of `torch/version.py`; None for what it sets to None or lacks."""
    values: Dict[str, Optional[str]] = {}
    for key, name in (("version", "__version__"), ("cuda", "cuda"), ("hip", "hip"), ("xpu", "xpu")):
        match = re.search(r"^%s(?:\s*:[^=\n]+)?\s*=\s*['\"]([^'\"]+)" % name, text, re.MULTILINE)
        values[key] = match.group(1) if match else None
    return values


def import_torch(emit: Emit) -> Any:
    """The torch module, or None after saying what its import raised."""
    emit("step", doing="importing torch")
    started = time.time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import torch  # type: ignore[import-not-found, unused-ignore]  # only the examined interpreter may have it
        except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code; whatever it raises is the fact wanted
            emit("torch_import_error", kind=type(error).__name__, message=str(error))
            return None
    emit("torch_imported", seconds=time.time() - started, warnings=texts(caught), **torch_build(torch))
    return torch


def texts(caught: List[Any]) -> List[str]:
    """The messages of CUDA-related warnings, each once."""
    messages = [str(warning.message) for warning in caught]
    return list(dict.fromkeys(message for message in messages if re.search(r"cuda|gpu|nvidia|driver", message, re.IGNORECASE)))


def attempt(call: Callable[[], Any]) -> Any:
    """The call's result; None where this torch has no such thing or the call fails."""
    try:
        return call()
    except Exception:  # noqa: BLE001  # foreign code of any version; the caller has a place for "not known"
        return None


def torch_build(torch: Any) -> Dict[str, Any]:
    """What is known as soon as torch is imported, before CUDA is touched."""
    version = torch.version
    return {
        "version": str(torch.__version__),
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "xpu": getattr(version, "xpu", None),
        "arch_list": arch_list(torch),
        "cxx11_abi": attempt(lambda: bool(torch._C._GLIBCXX_USE_CXX11_ABI)),
    }


def arch_list(torch: Any) -> Optional[List[str]]:
    """The targets torch was built for; its public function hides them where no GPU is available, so ask below it first."""
    flags = attempt(lambda: torch._C._cuda_getArchFlags())
    if isinstance(flags, str):
        return flags.split()
    archs = attempt(lambda: torch.cuda.get_arch_list())
    return [str(arch) for arch in archs] if archs else None


def describe_cuda(torch: Any, emit: Emit) -> bool:
    """What torch makes of the GPUs here; returns whether it can use one."""
    emit("step", doing="initialising CUDA through torch")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = attempt(lambda: bool(torch.cuda.is_available()))
        error = initialise(torch)
    emit(
        "torch_cuda",
        is_available=available,
        error=error,
        warnings=texts(caught),
        devices=describe_devices(torch) if available else [],
        cudnn=attempt(lambda: torch.backends.cudnn.version()),
        nccl=attempt(lambda: nccl_version(torch)),
        libraries=mapped_libraries(),
    )
    return bool(available)


def initialise(torch: Any) -> str:
    """The words with which torch refuses to initialise CUDA; empty where it does not. is_available() swallows them."""
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001  # foreign code; whatever it raises is the fact wanted
        return str(error) or type(error).__name__
    return ""


def describe_devices(torch: Any) -> List[Dict[str, Any]]:
    """The devices that torch can describe."""
    count = attempt(lambda: int(torch.cuda.device_count())) or 0
    devices = [attempt(partial(describe_device, torch, index)) for index in range(count)]
    return [device for device in devices if device is not None]


def describe_device(torch: Any, index: int) -> Dict[str, Any]:
    major, minor = torch.cuda.get_device_capability(index)
    return {
        "index": index,
        "name": str(torch.cuda.get_device_name(index)),
        "compute_capability": [int(major), int(minor)],
        "pci_bus_id": attempt(lambda: pci_bus_id(index)),
    }


def pci_bus_id(index: int) -> Optional[str]:
    """The PCI address of a device in this process's CUDA order, from the driver library that torch has loaded."""
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1")
    text = ctypes.create_string_buffer(32)
    device = ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetPCIBusId(text, 32, device):
        return None
    return text.value.decode("ascii", "replace")


def nccl_version(torch: Any) -> str:
    version = torch.cuda.nccl.version()
    if isinstance(version, int):  # torch 1.x: 2708 is 2.7.8
        return "%d.%d.%d" % (version // 1000, version % 1000 // 100, version % 100)
    return ".".join(str(part) for part in version)


def mapped_libraries() -> List[str]:
    """CUDA-related libraries in this process (Linux)."""
    paths = set()
    for line in read_file("/proc/self/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and LIBRARY_NAMES.search(fields[5]):
            paths.add(fields[5])
    return sorted(paths)


def main(emit: Emit) -> None:
    proofs = proofs_of_ours()
    describe_python(emit)
    describe_packages(emit)
    if not find_torch(emit):
        return
    torch = import_torch(emit)
    if torch is None:
        return
    available = describe_cuda(torch, emit)
    if not available:
        return
    if "--no-proofs" not in sys.argv:
        proofs.prove(torch, emit)


if __name__ == "__main__":
    main_emit = open_protocol()
    faulthandler.enable()  # names the Python line on which foreign code crashed
    main(main_emit)
    main_emit("end")
    # Leave without torch's clean-up at exit, which costs time and can hang in a sick driver.
    sys.stderr.flush()
    os._exit(0)
