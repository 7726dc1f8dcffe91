"""Extensions built for another torch, CUDA or Python."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    PASS,
    Table,
    healthy,
    judged,
    known,
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
)
from tests.rules.software import cpu_torch, diagnosed, error_tags, python_of, tags, with_packages

ABI = said("extension-abi-mismatch", "flash_attn_2_cuda.cpython-310.so: undefined symbol", symbol="_ZN3c104cuda9SetDeviceEi")
CUDART_11 = said("libcudart-missing", "libcudart.so.11.0: cannot open shared object file", library="libcudart.so.11.0")
CUDA_12 = python_of(torch_version=known("2.1.2+cu121"))
CUDA_11 = python_of(torch_version=known("2.1.2+cu118"))
VISION = with_packages(healthy(), torch="2.9.1+cu128", torchvision="0.18.1")
FITTING = with_packages(
    healthy(), torch="2.9.1+cu128", torchvision="0.24.1", torchaudio="2.9.1", triton="3.5.1", xformers="0.0.33.post2"
)
TWO_CUPYS = with_packages(healthy(), cupy_cuda11x="12.3.0", cupy_cuda12x="13.3.0")
TABLE: Table = {
    "extension-abi-mismatch": (
        ("undefined symbol", text_only(ABI), FAIL),
        ("healthy", healthy(), PASS),
    ),
    "extension-torch-mismatch": (
        ("says so", text_only(said("extension-torch-mismatch", "xFormers was built for: PyTorch 2.0.1+cu118")), FAIL),
        ("torchvision of another torch", VISION, FAIL),
        ("all fit", FITTING, PASS),
        ("vllm of another torch", with_packages(healthy(), vllm="0.33.0"), FAIL),
        ("vllm of another patch release", with_packages(healthy(torch="2.9.0+cu128"), xformers="0.0.33.post2"), PASS),
        ("triton of another torch", with_packages(healthy(), triton="2.1.0"), FAIL),
        ("conda's packages are not judged", with_packages(healthy(), torchvision="0.18.1@cuda_0"), PASS),
        ("newer than every table", with_packages(healthy(torch="3.4.0+cu150"), torchvision="0.55.0", vllm="9.9.9"), PASS),
        ("operators missing", text_only(said("cpu-only-build-of-extension", "operator torchvision::nms does not exist")), FAIL),
        ("numpy", text_only(said("extension-torch-mismatch", "NumPy: A module that was compiled using NumPy 1.x")), PASS),
    ),
    "extension-cuda-major-mismatch": (
        ("libcudart of another major", text_only(CUDART_11, python=CUDA_12), FAIL),
        ("libcudart of this major", text_only(CUDART_11, python=CUDA_11), PASS),
        ("torch unknown", text_only(CUDART_11), PASS),
        ("two CuPys", TWO_CUPYS, FAIL),
        ("one CuPy", with_packages(healthy(), cupy_cuda12x="13.3.0"), PASS),
        ("says so", text_only(said("extension-cuda-major-mismatch", "built for CUDA 11.x but")), FAIL),
    ),
    "extension-binary-missing": (
        ("says so", text_only(said("extension-binary-missing", "Could not find the bitsandbytes CUDA binary")), FAIL),
        ("bitsandbytes without this CUDA", with_packages(healthy(torch="2.9.1+cu134"), bitsandbytes="0.50.2"), FAIL),
        ("bitsandbytes with this CUDA", with_packages(healthy(), bitsandbytes="0.50.2"), PASS),
        ("unknown bitsandbytes", with_packages(healthy(), bitsandbytes="0.99.0"), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_versions_that_do_not_fit_are_warnings_on_a_machine() -> None:
    assert names(judged(VISION), Severity.WARNING) == ["extension-torch-mismatch"]
    assert names(judged(VISION), Severity.ERROR) == []


def test_another_major_explains_the_missing_library() -> None:
    assert roots(judged(text_only(CUDART_11, python=CUDA_12))) == ["extension-cuda-major-mismatch"]


def test_operators_missing_beside_a_cpu_torch_are_not_an_extension_fault() -> None:
    snapshot = structs.replace(cpu_torch(healthy()), errors=(said("cpu-only-build-of-extension"),))
    assert "extension-torch-mismatch" not in names(judged(snapshot), Severity.ERROR)


def test_abi_of_symbol_and_wheel_are_told() -> None:
    report = diagnosed(
        "$ pip install flash_attn-2.6.3+cu123torch2.4cxx11abiTRUE-cp310-cp310-linux_x86_64.whl\n"
        '$ python -c "import torch; print(torch.__version__)"\n2.5.1+cu121\n'
        "ImportError: flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    )
    (finding,) = [each for each in report.findings if each.name == "extension-abi-mismatch"]
    assert finding.subject == "flash_attn_2_cuda"
    assert "new C++ ABI" in finding.why
    assert "for torch 2.4, torch 2.5.1 is installed" in finding.why


TICKETS = {
    "CuPy of another major": (
        """ImportError: CuPy is not correctly installed.
libnvrtc.so.11.2: cannot open shared object file: No such file or directory
$ pip list | grep cupy
cupy-cuda11x   12.3.0
$ nvcc --version
Cuda compilation tools, release 12.2, V12.2.140""",
        {"extension-cuda-major-mismatch"},
        {"driver-too-old"},
    ),
    "vLLM's own library": (
        "ImportError: /opt/venv/lib/python3.10/site-packages/vllm/_C.abi3.so: undefined symbol: "
        "_ZN5torch7LibraryC1ENS0_4KindESsSt8optionalIN3c1011DispatchKeyEEPKcj\n"
        "$ pip list | grep -E 'torch|vllm'\ntorch       2.5.1\nvllm        0.6.2",
        {"extension-abi-mismatch"},
        {"arch-missing-in-wheel"},
    ),
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected, never = TICKETS[name]
    report = diagnosed(text)
    assert expected <= tags(report)
    assert not never & error_tags(report)
