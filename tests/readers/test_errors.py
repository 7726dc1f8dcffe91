"""Error texts: recognised as printed, wrapped, quoted and mangled; told apart from their neighbours; with line and values."""

from __future__ import annotations

import pytest

from cudadoctor.matrices.error_patterns import PatternError, compile_sentence, error_patterns, parse_error_patterns
from cudadoctor.readers.errors import MAX_OF_A_KIND, recognise


def kinds(text: str) -> list[str]:
    return [error.kind for error in recognise(text, "test")]


ONE_OF_EACH = [
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernel-image", {}),
    ("cudaGetDeviceCount returned 35", "cuda-error-35", {"code": "35"}),
    ("CUDA error 803: whatever", "cuda-error-803", {"code": "803"}),
    ("what(): CUDA_ERROR_SYSTEM_NOT_READY", "cuda-error-802", {}),
    ("THCudaCheck FAIL file=x line=47 error=999 : unknown error", "cuda-error-999", {"code": "999"}),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "unsupported-gpu-architecture", {"arch": "compute_120a"}),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_'", "cmake-arch-invalid", {}),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_native'", "cmake-arch-invalid", {"value": "native"}),
    ("ptxas fatal   : Value 'sm_121' is not defined for option 'gpu-name'", "ptxas-too-old", {"arch": "sm_121"}),
    (
        "#error -- unsupported GNU version! gcc versions later than 12 are not supported!",
        "host-compiler-too-new",
        {"limit": "12"},
    ),
    (
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file",
        "libcudart-missing",
        {"library": "libcudart.so.11.0"},
    ),
    ("OSError: libcudnn.so.8: cannot open shared object file", "libcudnn-missing", {"library": "libcudnn.so.8"}),
    ("libcublas.so.12: cannot open shared object file", "cuda-lib-missing", {"library": "libcublas.so.12"}),
    ("/usr/bin/ld: cannot find -lcudart: No such file or directory", "toolkit-libs-missing-at-link", {"library": "-lcudart"}),
    ("x.cu:3:10: fatal error: cusparse.h: No such file or directory", "toolkit-headers-missing", {"header": "cusparse.h"}),
    ("Python.h:44:10: fatal error: crypt.h: No such file or directory", "system-header-missing", {"header": "crypt.h"}),
    ("ext.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "extension-abi-mismatch", {"symbol": "_ZN3c104cuda9SetDeviceEi"}),
    (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "container-no-gpu-driver",
        {"driver": ""},
    ),
    (
        "unsatisfied condition: cuda>=12.8, please update your driver",
        "container-require-unsatisfied",
        {"condition": "cuda>=12.8"},
    ),
    ("Failed to initialize NVML: Driver/library version mismatch", "nvml-version-mismatch", {}),
    ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "secure-boot-blocking", {"module": "nvidia"}),
    ("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=x, Ch 8", "xid", {"bus_id": "PCI:0000:01:00", "xid": "31"}),
    ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "xid-bus-error", {"bus_id": "PCI:0000:01:00"}),
    (
        "ERROR: No matching distribution found for torch==2.1.0+cu121",
        "pip-no-matching-version",
        {"requirement": "torch==2.1.0+cu121"},
    ),
    ("[WinError 126] The specified module could not be found", "windows-dll-load-failed", {}),
]


@pytest.mark.parametrize(("text", "kind", "values"), ONE_OF_EACH, ids=[kind for _, kind, _ in ONE_OF_EACH])
def test_text_is_recognised_with_its_values(text: str, kind: str, values: dict[str, str]) -> None:
    found = {error.kind: error.values for error in recognise(text, "test")}
    assert found.get(kind) == values


NEIGHBOURS = [
    ("gcc: error: Xid 795 is a part number", "xid-bus-error"),
    ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "cuda-not-initialized"),
    ("Could not find CUDA drivers on your machine, GPU will not be used.", "nvcc-not-found"),
    ("libcudart.so.12 => /usr/local/cuda/lib64/libcudart.so.12", "libcudart-missing"),
    ("Failed to initialize NVML: Driver/library version mismatch", "nvml-init-failed"),
    ("could not insert 'nvidia': Key was rejected by service", "kernel-module-not-loaded"),
    ("the description of error 8030 in part 35", "cuda-error-803"),
]


@pytest.mark.parametrize(("text", "kind"), NEIGHBOURS, ids=[kind for _, kind in NEIGHBOURS])
def test_neighbour_is_not_recognised(text: str, kind: str) -> None:
    assert kind not in kinds(text)


DRIVER = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver."

MANGLED = {
    "wrapped at words": DRIVER.replace("system is", "system\nis"),
    "indented": "        " + DRIVER.replace("old (", "old\n        ("),
    "quoted": "\n".join(f"> {line}" for line in ("Hello", DRIVER.replace("your system", "your\n> system"))),
    "smart quotes and no-break spaces": "\u201c" + DRIVER.replace(" ", "\u00a0") + "\u201d",
    "entities": DRIVER.replace(" ", "&nbsp;").replace("(", "&#40;"),
    "ansi": "\x1b[31m" + DRIVER.replace("driver", "\x1b[1mdriver\x1b[0m") + "\x1b[0m",
    "crlf in a fence": f"```\r\n{DRIVER}\r\n```",
    "zero width": DRIVER.replace("NVIDIA", "NV\u200bIDIA"),
    "upper case": DRIVER.upper(),
}


@pytest.mark.parametrize("text", MANGLED.values(), ids=MANGLED.keys())
def test_mangled_text_is_recognised(text: str) -> None:
    (error,) = recognise(text, "test")
    assert (error.kind, error.values) == ("torch-driver-too-old", {"driver_cuda": "11040"})


def test_words_cut_by_a_terminal_are_joined() -> None:
    long = "x" * 70 + " RuntimeError: CUDA error: no kernel image is available for execution on the device, as this line is long"
    lines = [long[start : start + 80] for start in range(0, len(long), 80)]
    text = "\n".join([("The words before it fill one line of the same width " * 2)[:80].replace(" ", "_"), *lines])
    assert "no-kernel-image" in kinds(text)


def test_line_numbers_count_from_one_in_the_original() -> None:
    text = "```\nfirst\r\n\r\nCUDA driver version is insufficient for CUDA\nruntime version\n```"
    (error,) = recognise(text, "test")
    assert error.line == 4
    assert error.text == "CUDA driver version is insufficient for CUDA\nruntime version"


def test_one_text_said_twice_is_told_once() -> None:
    text = "CUDA error: invalid device ordinal\n" * 40
    assert kinds(text) == ["cuda-invalid-device-ordinal"]


def test_errors_of_a_kind_are_limited() -> None:
    text = "\n".join(f"lib{name}.so.1: cannot open shared object file" for name in [f"npp{i}" for i in range(40)])
    assert len(kinds(text)) == MAX_OF_A_KIND


def test_secrets_are_not_echoed() -> None:
    text = "RuntimeError: No CUDA GPUs are available HF_TOKEN=hf_abcdefghijklmnopqrstuvwx password=hunter22"
    (error,) = recognise(text, "test")
    assert "hf_abc" not in error.text
    assert "hunter22" not in error.text


def test_every_row_recognises_its_own_plain_sentences() -> None:
    """A sentence without placeholders must be found where it stands alone, or a kind that it yields to."""
    patterns = error_patterns()
    for kind, row in patterns.rows.items():
        for matcher in row.says:
            if "{" in matcher.text or "..." in matcher.text:
                continue
            found = kinds(f"before\n{matcher.text}\nafter")
            assert kind in found or set(found) & set(row.yields_to), (kind, matcher.text, found)


def test_every_code_and_name_leads_to_its_row() -> None:
    for row in error_patterns().rows.values():
        for code in row.codes:
            assert kinds(f"CUDA error {code}: x") == [row.kind]
        for name in row.names:
            assert row.kind in kinds(f"failed with {name} in launch")


def test_causes_are_ranked_findings_in_kebab_case() -> None:
    for row in error_patterns().rows.values():
        for cause in row.causes:
            assert cause.finding == cause.finding.lower().replace("_", "-")
            assert " " not in cause.finding


def test_table_refuses_unknown_kinds_and_doubles() -> None:
    row = '[[error]]\nkind="a-b"\nlayer="x"\nmeans="m."\nsays=["some words"]\ncauses=[["c","",""]]\nsource="s"\n'
    head = "code=[]\ncode_context=[]\n"
    with pytest.raises(PatternError, match="two rows"):
        parse_error_patterns(head + row + row)
    with pytest.raises(PatternError, match="without a row"):
        parse_error_patterns(head + row + 'yields_to=["nowhere"]\n')
    with pytest.raises(PatternError, match="no whole word"):
        compile_sentence("{x:word}")
    with pytest.raises(PatternError, match="unknown shape"):
        compile_sentence("word {x:nothing}")
