from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from cudadoctor.gpu.cu_result import RESULTS
from cudadoctor.gpu.driver_api import Driver, DriverError, LibraryLoadError, MissingSymbolError, mapped_libraries


def test_results_are_named_by_the_driver(fake_libcuda: str) -> None:
    result = Driver.load(fake_libcuda).result(209)
    assert result == (209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device")


@pytest.mark.parametrize("code", [34, 46, 802, 803, 804, 999])
def test_results_that_the_driver_cannot_name_are_named_by_us(fake_libcuda: str, code: int) -> None:
    result = Driver.load(fake_libcuda).result(code)  # the stand-in knows a few codes only, as the toolkit's stub knows none
    assert (result.name, result.message) == RESULTS[code]
    assert result.name.startswith("CUDA_ERROR_")


def test_a_code_that_nobody_knows_keeps_its_number(fake_libcuda: str) -> None:
    assert Driver.load(fake_libcuda).result(12345).name == "CUDA_ERROR_12345"


def test_a_missing_function_is_a_typed_error(fake_libcuda: str) -> None:
    with pytest.raises(MissingSymbolError, match=r"cuOfTheFuture is not in .*libcuda\.so\.1"):
        Driver.load(fake_libcuda).call("cuOfTheFuture")


def test_a_bad_result_is_a_typed_error_with_the_call(fake_libcuda: str) -> None:
    with pytest.raises(DriverError, match=r"cuDeviceGet: CUDA_ERROR_INVALID_DEVICE \(101\)") as caught:
        Driver.load(fake_libcuda).get_int("cuDeviceGet", ctypes.c_int(99))
    assert caught.value.result.code == 101


def test_a_file_that_is_no_library_says_what_the_loader_says(tmp_path: Path) -> None:
    file = tmp_path / "libcuda.so.1"
    file.write_text("not an ELF file")
    with pytest.raises(LibraryLoadError, match="libcuda"):
        Driver.load(str(file))


def test_mapped_libraries_names_the_file_that_was_loaded(fake_libcuda: str) -> None:
    Driver.load(fake_libcuda)
    assert fake_libcuda in mapped_libraries("libcuda.so")


def test_the_child_imports_only_what_is_cheap() -> None:
    """Start-up of the child counts in every check; these modules cost more than the rest of it together."""
    program = "import sys, cudadoctor.gpu.driver_child, cudadoctor.gpu.nvrtc_child; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"msgspec", "typer", "rich", "dataclasses", "subprocess", "asyncio", "importlib.metadata", "inspect"}
