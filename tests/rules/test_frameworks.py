"""Is the framework a CUDA build, how did it get there, does it import?"""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Host, Package, Platform, PythonEnvironment, Snapshot, TorchBuild
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
    FAIL,
    NO_GPU,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    gpu,
    healthy,
    judged,
    known,
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_host,
)
from tests.rules.software import (
    cpu_torch,
    diagnosed,
    error_tags,
    python_of,
    tags,
    with_packages,
    with_reading,
    with_torch,
)


def without_torch(snapshot: Snapshot) -> Snapshot:
    return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=ABSENT))


def unread_torch(snapshot: Snapshot) -> Snapshot:
    return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=TIMED_OUT))


NOT_COMPILED = said("torch-not-compiled-with-cuda", "Torch not compiled with CUDA enabled")
ROCM = with_torch(
    healthy(), torch_version=known("2.5.1+rocm6.2"), build=known(TorchBuild.ROCM), is_available=known(False), arch_list=known(())
)
REPLACED = with_reading(
    text_only(python=python_of(torch_version=known("2.7.0+cpu"), is_available=known(False))),
    "install_log",
    removed={"torch": "2.6.0+cu124"},
    installed={"torch": "2.7.0"},
)
REPLACED_BY_CUDA = with_reading(text_only(), "install_log", removed={"torch": "2.5.1+cu118"}, installed={"torch": "2.9.1"})
ARM = Host(architecture=known("aarch64"))
JETSON = Host(architecture=known("aarch64"), jetson=known("NVIDIA Jetson AGX Orin"))
CPU_FACTS = python_of(torch_version=known("2.6.0+cpu"), build=known(TorchBuild.CPU), is_available=known(False))
GENERIC = python_of(torch_version=known("2.9.1"), is_available=known(False))
PLAIN = python_of(torch_version=known("2.1.2"), is_available=known(False))
NVIDIAS = python_of(torch_version=known("2.1.0a0+41361538.nv23.06"), is_available=known(False))
CONDA_CPU = with_packages(cpu_torch(healthy(), "2.5.1"), pytorch="2.5.1@cpu_generic_py312_0")
CONDA_CUDA = with_packages(healthy(), pytorch="2.5.1@cuda126_py312_0")
WINDOWS = Host(platform=known(Platform.WINDOWS))
TENSORFLOW = PythonEnvironment(packages=known((Package(name="tensorflow", package_version="2.15.0"),)))
AMD = said("shown-amd-gpu", "GPU: Radeon RX 7900 XTX")

TABLE: Table = {
    "cpu-only-torch": (
        ("CPU build beside a GPU", cpu_torch(healthy()), FAIL),
        ("CUDA build", healthy(), PASS),
        ("no GPU", cpu_torch(NO_GPU), NOT_APPLICABLE),
        ("macOS", text_only(NOT_COMPILED, host=Host(platform=known(Platform.MACOS))), NOT_APPLICABLE),
        ("an AMD GPU", text_only(NOT_COMPILED, AMD), NOT_APPLICABLE),
        ("no torch", without_torch(healthy()), NOT_APPLICABLE),
        ("torch hung", unread_torch(healthy()), UNKNOWN),
        ("a program says so", text_only(NOT_COMPILED), FAIL),
        ("Windows' default wheel", text_only(host=WINDOWS, python=PLAIN), FAIL),
        ("Linux' default wheel", text_only(host=Host(platform=known(Platform.LINUX)), python=GENERIC), PASS),
        ("ROCm build", ROCM, PASS),
    ),
    "torch-rocm-build": (
        ("beside an NVIDIA GPU", ROCM, FAIL),
        ("CUDA build", healthy(), PASS),
        ("HIP error", text_only(said("torch-rocm-build", "No HIP GPUs are available")), FAIL),
        ("HIP error of an AMD machine", text_only(said("torch-rocm-build", "HIP error"), AMD), NOT_APPLICABLE),
        ("torch hung", unread_torch(healthy()), UNKNOWN),
    ),
    "torch-replaced": (
        ("by a CPU build", REPLACED, FAIL),
        ("by another CUDA build", REPLACED_BY_CUDA, FAIL),
        ("by conda", text_only(said("torch-replaced", "pytorch 2.0.1-py3.10_cuda11.8 --> 2.0.1-py3.10_cpu_0")), FAIL),
        ("healthy", healthy(), PASS),
    ),
    "conda-cpu-variant": (
        ("CPU variant", CONDA_CPU, FAIL),
        ("CUDA variant", CONDA_CUDA, PASS),
        ("cpuonly in a text", text_only(said("conda-cpu-variant", "cpuonly 2.0 0 pytorch")), FAIL),
        ("no GPU", with_packages(cpu_torch(NO_GPU, "2.5.1"), cpuonly="2.0@0"), NOT_APPLICABLE),
    ),
    "aarch64-default-index": (
        ("Grace Hopper", text_only(host=ARM, python=CPU_FACTS), FAIL),
        ("Jetson", text_only(host=JETSON, python=CPU_FACTS), PASS),
        ("x86", cpu_torch(healthy()), PASS),
        ("CUDA build", with_host(healthy(), architecture=known("aarch64")), PASS),
        ("torch hung", unread_torch(with_host(healthy(), architecture=known("aarch64"))), UNKNOWN),
    ),
    "jetson-generic-wheel": (
        ("sees no GPU", text_only(host=JETSON, python=GENERIC), FAIL),
        ("NVIDIA's wheel", text_only(host=JETSON, python=NVIDIAS), PASS),
        ("no code", text_only(said("no-kernel-image"), host=JETSON), FAIL),
        ("works", with_host(healthy("Orin", "8.7", archs="sm_87"), jetson=known("Jetson AGX Orin")), PASS),
        ("no Jetson", cpu_torch(healthy()), PASS),
    ),
    "torch-import-fails": (
        ("an exception", with_torch(healthy(), imports=Missing(MissingReason.FAILED, "ImportError: libc10.so")), FAIL),
        ("a crash", with_torch(healthy(), imports=Missing(MissingReason.CRASHED, "SIGSEGV")), FAIL),
        ("imports", healthy(), PASS),
        ("not asked", with_torch(healthy(), imports=Missing(MissingReason.NOT_ASKED)), UNKNOWN),
        ("no torch", without_torch(healthy()), NOT_APPLICABLE),
    ),
    "torch-cannot-use-gpu": (
        ("blind", with_torch(healthy(), is_available=known(False), cuda_error=known("unknown error")), FAIL),
        ("sees the GPU", healthy(), PASS),
        ("not known", with_torch(healthy(), is_available=TIMED_OUT), UNKNOWN),
        ("CPU build", cpu_torch(healthy()), NOT_APPLICABLE),
    ),
    "cpu-only-tensorflow": (
        ("says so", text_only(said("cpu-only-tensorflow", "tf.test.is_built_with_cuda() False")), FAIL),
        ("Windows from 2.11 on", text_only(host=WINDOWS, python=TENSORFLOW), FAIL),
        ("Linux", with_packages(healthy(), tensorflow="2.15.0"), PASS),
        ("tensorflow-cpu beside a GPU", with_packages(healthy(), tensorflow_cpu="2.15.0"), FAIL),
        ("tensorflow-cpu without one", with_packages(NO_GPU, tensorflow_cpu="2.15.0"), NOT_APPLICABLE),
        ("macOS", text_only(said("cpu-only-tensorflow"), host=Host(platform=known(Platform.MACOS))), NOT_APPLICABLE),
    ),
    "cpu-only-jax": (
        ("says so", text_only(said("cpu-only-jax")), FAIL),
        ("no plugin beside a GPU", with_packages(healthy(), jaxlib="0.8.0"), FAIL),
        ("with a plugin", with_packages(healthy(), jaxlib="0.8.0", jax_cuda12_plugin="0.8.0"), PASS),
        ("no GPU", with_packages(NO_GPU, jaxlib="0.8.0"), NOT_APPLICABLE),
    ),
    "benign-tf-import-noise": (
        ("noise", text_only(said("benign-tf-import-noise")), FAIL),
        ("healthy", healthy(), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


@pytest.mark.parametrize(
    ("snapshot", "root"),
    [
        (REPLACED, "torch-replaced"),
        (CONDA_CPU, "conda-cpu-variant"),
        (text_only(host=ARM, python=CPU_FACTS), "aarch64-default-index"),
        (text_only(host=JETSON, python=CPU_FACTS), "jetson-generic-wheel"),
        (cpu_torch(healthy()), "cpu-only-torch"),
    ],
)
def test_how_it_came_explains_the_cpu_build(snapshot: Snapshot, root: str) -> None:
    results = judged(snapshot)
    assert "cpu-only-torch" in names(results, Severity.ERROR)
    assert [name for name in roots(results) if name != "no-device-visible"] == [root]


def test_a_listed_cpu_build_alone_is_a_warning() -> None:
    results = judged(text_only(python=python_of(torch_version=known("2.6.0+cpu"))))
    assert names(results, Severity.WARNING) == ["cpu-only-torch"]


def test_a_jax_without_plugin_is_noted_only() -> None:
    assert "cpu-only-jax" in names(judged(with_packages(healthy(), jaxlib="0.8.0")), Severity.NOTE)


def test_fix_keeps_the_release() -> None:
    (finding,) = [each for each in judged(cpu_torch(healthy(), "2.9.1+cpu")).findings if each.name == "cpu-only-torch"]
    assert "torch==2.9.1+cu" in finding.fixes[0].commands[0]
    assert finding.fixes[0].rechecked


TICKETS = {
    "xFormers beside a CPU build": (
        """xFormers was built for:
    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.1.2+cpu)
    Python  3.10.11 (you have 3.10.8)
WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions""",
        {"cpu-only-torch"},
        set(),
    ),
    "conda's plan": (
        """conda install pytorch torchvision cudatoolkit=10.1 -c pytorch
  cpuonly            pytorch/noarch::cpuonly-2.0-0
  pytorch            pytorch/win-64::pytorch-1.10.0-py3.6_cpu_0
  pytorch-mutex      pytorch/noarch::pytorch-mutex-1.0-cpu
>>> torch.cuda.is_available()
False""",
        {"cpu-only-torch", "conda-cpu-variant"},
        {"driver-too-old"},
    ),
    "conda replaces": (
        """The following packages will be SUPERSEDED by a higher-priority channel:
  pytorch   pytorch::pytorch-2.0.1-py3.10_cuda11.8_cudnn8~ --> conda-forge::pytorch-2.0.0-cpu_generic_py310_1
>>> torch.cuda.is_available()
False""",
        {"cpu-only-torch", "torch-replaced"},
        set(),
    ),
    "uv replaces": (
        """$ uv pip install some-package
 - torch==2.6.0+cu124
 + torch==2.7.0
$ python -c "import torch; print(torch.cuda.is_available(), torch.__version__)"
False 2.7.0+cpu""",
        {"cpu-only-torch", "torch-replaced"},
        set(),
    ),
    "Grace Hopper": (
        """$ uname -m
aarch64
$ python -c "import torch; print(torch.__version__, torch.version.cuda)"
2.6.0+cpu None
$ nvidia-smi -L
GPU 0: NVIDIA GH200 480GB""",
        {"cpu-only-torch", "aarch64-default-index"},
        {"jetson-generic-wheel"},
    ),
    "TensorFlow on Windows": (
        """C:\\> python -c "import tensorflow as tf; print(tf.__version__, tf.config.list_physical_devices('GPU'))"
2.15.0 []
Windows 11, RTX 3070, CUDA 12.2, cuDNN 8.9""",
        {"cpu-only-tensorflow"},
        {"libcudnn-missing", "driver-too-old", "no-device-visible"},
    ),
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected, never = TICKETS[name]
    report = diagnosed(text)
    assert expected <= tags(report)
    assert not never & error_tags(report)


def test_tensorflow_noise_is_no_error() -> None:
    report = diagnosed("W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT")
    assert tags(report) == {"benign-tf-import-noise"}
    assert error_tags(report) == set()


def test_gpu_in_the_text_makes_it_an_error() -> None:
    with_card = text_only(python=python_of(torch_version=known("2.6.0+cpu")), gpus=known((gpu("NVIDIA A100", "8.0"),)))
    assert names(judged(with_card), Severity.ERROR) == ["cpu-only-torch"]
