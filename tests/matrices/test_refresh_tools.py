"""The pure parts of the refresh scripts; their downloads are not tested here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cudadoctor.binary.contents import Contents
from cudadoctor.binary.formats import FileKind
from cudadoctor.matrices import Matrices
from cudadoctor.model.binaries import Code, ModuleGroup, Place
from cudadoctor.model.versions import CudaVersion, SmTarget

TOOLS = Path(__file__).parents[2] / "tools"

HOST_CONFIG = """
#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 20))
#error -- unsupported Grace clang version! The version must be 16.x to 20.x.
#if defined(__ICC)
#error -- ICC is not supported as a host compiler!
#error -- unsupported Intel ICX compiler!
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#if (__clang_major__ >= 21) || (__clang_major__ < 3)
#error -- unsupported clang version! clang version must be less than 21 and greater than 3.2 .
#if _MSC_VER < 1920 || _MSC_VER >= 1950
#error -- unsupported Microsoft Visual Studio version! Only the versions between 2019 and 2022 (inclusive) are supported!
"""
MATH_FUNCTIONS = "double sinpi(double x) __NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER;"


@pytest.fixture
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of the name that the test gives, imported from tools/."""
    monkeypatch.syspath_prepend(str(TOOLS))
    name: str = request.param
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("tool", ["refresh_compilers"], indirect=True)
def test_bounds_are_read_from_the_header_and_compared(tool: ModuleType, matrices: Matrices) -> None:
    bounds = tool.bounds_of(HOST_CONFIG)
    assert bounds == {
        "gcc_max": 15,
        "clang_max": 20,
        "msc_ver_min": 1920,
        "msc_ver_below": 1950,
        "visual_studio": "2019-2022",
        "grace_clang": [16, 20],
        "icc": "rejected",
        "icx": "rejected",
    }
    glibc = tool.glibc_state(MATH_FUNCTIONS)
    build = CudaVersion.parse("13.0.88")
    assert tool.differences(build, bounds, glibc, matrices) == []
    assert tool.differences(build, {**bounds, "gcc_max": 16}, glibc, matrices) == ["nvcc 13.0.88: gcc_max 16, the matrix has 15"]
    assert "glibc 2.41" in tool.differences(build, bounds, tool.glibc_state(""), matrices)[0]
    assert tool.differences(CudaVersion.parse("13.9.1"), bounds, glibc, matrices) == ["nvcc 13.9.1 is not in the matrix"]


@pytest.mark.parametrize("tool", ["refresh_compilers"], indirect=True)
def test_a_header_of_another_form_is_refused(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="no bound for gcc, clang, msvc, years"):
        tool.bounds_of("#error")


@pytest.mark.parametrize("tool", ["refresh_toolkits"], indirect=True)
def test_a_probe_is_compared_with_the_matrix(tool: ModuleType, matrices: Matrices) -> None:
    targets = [str(target) for target in matrices.toolkits.targets(CudaVersion.of(12, 6)) or ()]
    found = {"cuda": "12.6", "targets": targets, "ptx_isa": "8.5"}
    assert tool.differences(found, matrices) == []
    assert tool.differences({**found, "targets": [*targets, "sm_100"]}, matrices) == ["CUDA 12.6: targets differ: sm_100"]
    assert tool.differences({**found, "ptx_isa": "8.6"}, matrices) == ["CUDA 12.6: PTX ISA 8.6, the matrix has 8.5"]
    assert tool.differences({**found, "cuda": "13.9"}, matrices) == ["CUDA 13.9 is not in the matrix"]
    assert 'cuda = "12.6"' in tool.row_text("nvidia-cuda-nvrtc-cu12==12.6.85", found)


@pytest.mark.parametrize("tool", ["refresh_torch"], indirect=True)
def test_pins_in_all_spellings_of_the_index(tool: ModuleType, matrices: Matrices) -> None:
    old = tool.pins_of(
        [
            'nvidia-cuda-runtime-cu12 (==12.4.127) ; platform_system == "Linux"',
            'nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux"',
            'triton (==3.1.0) ; python_version < "3.13"',
            "filelock",
        ]
    )
    assert old == {"toolkit_pin": "12.4.127", "cudnn": "9.1.0.70", "triton": "3.1.0"}
    new = tool.pins_of(["cuda-toolkit[cublas,cudart]==13.0.3", "triton~=3.8.0", "nvidia-nccl-cu13==2.30.7"])
    assert new == {"toolkit_pin": "13.0.3", "triton": "3.8.0", "nccl": "2.30.7"}
    row = {"torch": "2.5.1", "python": ["3.9", "3.10", "3.11", "3.12", "3.13"], "requires_python": ">=3.8.0", "nccl": "2.21.5"}
    assert tool.differences({**row, **old}, matrices) == []
    assert "requires_python" in tool.differences({**row, **old, "requires_python": ">=3.9"}, matrices)[0]


@pytest.mark.parametrize("tool", ["refresh_wheels"], indirect=True)
def test_the_row_of_a_wheel_keeps_suffixes(tool: ModuleType) -> None:
    code = tuple(Code(SmTarget.parse(text)) for text in ("sm_80", "sm_90a", "compute_80"))
    contents = Contents(FileKind.ELF, (ModuleGroup(Place.REGISTERED, code, 11),), ("libcudart.so.12", "libc.so.6"))
    assert tool.targets_of(contents)[SmTarget.parse("sm_90a")] == 11
    text = tool.row_text(Path("some_package-1.2.3-cp312-cp312-manylinux_2_28_x86_64.whl"), {"lib.so": contents})
    assert 'package = "some-package"\nversion = "1.2.3"\nsm = ["sm_80", "sm_90a"]\nptx = ["compute_80"]' in text
    assert 'needed = ["libcudart.so.12"]' in text


@pytest.mark.parametrize("tool", ["refresh_wheels"], indirect=True)
def test_the_arch_string_of_torch(tool: ModuleType) -> None:
    data = b"\0junk sm_\0sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120\0more"
    match = tool.ARCH_STRING.search(data)
    assert match[0] == b"sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"
