from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.snapshot import Toolkit
from cudadoctor.model.versions import CudaVersion, SmTarget, VersionError
from cudadoctor.probes.toolkit import (
    parse_cuda_header,
    parse_nvcc_version,
    parse_targets,
    parse_version_json,
    read_toolkits,
)
from tests.fakes.cuda_tools import fake_toolkit
from tests.fakes.fakebin import Says, fake_program, python_program
from tests.fakes.roots import linux

TARGETS = ("sm_80", "sm_90", "sm_90a")


def read(root: Path, environ: dict[str, str] | None = None, packages: tuple[str, ...] = ()) -> tuple[Toolkit, ...]:
    """The toolkits of a fake machine."""
    return known(read_toolkits(linux(root, environ=environ or {"PATH": "/usr/bin"}), 20, lambda: packages))


def test_one_toolkit_reached_in_many_ways_is_one(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "usr/local/cuda-12.6", "12.6", "12.6.85", TARGETS)
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.6")
    environ = {"PATH": "/usr/local/cuda/bin:/usr/bin", "CUDA_HOME": "/usr/local/cuda/"}
    (kit,) = read(tmp_path, environ)
    assert kit.root == "/usr/local/cuda-12.6"
    assert known(kit.nvcc) == "/usr/local/cuda-12.6/bin/nvcc"
    assert known(kit.toolkit_version) == CudaVersion.parse("12.6.85")
    assert known(kit.targets) == tuple(SmTarget.parse(target) for target in TARGETS)
    assert kit.found_by == ("CUDA_HOME", "PATH", "/usr/local/cuda", "/usr/local/cuda-12.6")
    assert kit.aliases == ("/usr/local/cuda",)
    assert kit.chosen_for_builds
    assert kit.packaging == "runfile"
    assert kit.missing_parts == ("libnvrtc.so",)


def test_version_json_is_kept_beside_what_nvcc_says(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "usr/local/cuda", "12.6", "12.6.85", TARGETS)
    (tmp_path / "usr/local/cuda/version.json").write_text(json.dumps({"cuda": {"version": "12.4.1"}}))
    (kit,) = read(tmp_path)
    fact = kit.toolkit_version
    assert not isinstance(fact, Missing)
    assert [other.value for other in fact.others] == ["12.4.1"]


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        ({"PATH": "/usr/bin"}, "/usr/local/cuda-12.6"),
        ({"PATH": "/opt/b/bin"}, "/opt/b"),
        ({"PATH": "/opt/b/bin", "CUDA_PATH": "/opt/a"}, "/opt/a"),
        ({"PATH": "/opt/b/bin", "CUDA_HOME": "/opt/a", "CUDA_PATH": "/opt/b"}, "/opt/a"),
        ({"PATH": "/opt/b/bin", "CUDA_HOME": "/nowhere"}, None),
    ],
)
def test_builds_take_the_variable_then_the_path_then_the_default(
    tmp_path: Path, environ: dict[str, str], chosen: str | None
) -> None:
    for root in ("opt/a", "opt/b", "usr/local/cuda-12.6"):
        fake_toolkit(tmp_path / root, "12.6", "12.6.85", TARGETS)
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.6")
    assert [kit.root for kit in read(tmp_path, environ) if kit.chosen_for_builds] == ([chosen] if chosen else [])


def test_a_script_on_the_path_is_followed_to_the_real_toolkit(tmp_path: Path) -> None:
    real = fake_toolkit(tmp_path / "opt/real", "12.6", "12.6.85", TARGETS)
    body = "if '--dryrun' in sys.argv:\n    print('#$ _HERE_=/opt/real/bin', file=sys.stderr)\nelse:\n"
    python_program(tmp_path / "usr/bin/nvcc", body + f"    os.execv({str(real)!r}, [{str(real)!r}, *sys.argv[1:]])\n")
    (kit,) = read(tmp_path)
    assert kit.root == "/opt/real"
    assert kit.found_by == ("PATH",)
    assert kit.chosen_for_builds


def test_debian_s_package_has_its_headers_among_the_system_s(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "usr/lib/nvidia-cuda-toolkit", "12.0", "12.0.140", TARGETS)
    (tmp_path / "usr/lib/nvidia-cuda-toolkit/include").rename(tmp_path / "usr/include")
    (kit,) = read(tmp_path)
    assert kit.packaging == "distribution package"
    assert not [part for part in kit.missing_parts if "headers" in part]


def test_pip_s_wheels_are_toolkits(tmp_path: Path) -> None:
    site = "/venv/lib/python3.12/site-packages"
    fake_toolkit(tmp_path / site[1:] / "nvidia/cu13", "13.0", "13.0.88", TARGETS)
    fake_toolkit(tmp_path / site[1:] / "nvidia/cuda_nvcc", "12.8", "12.8.93", TARGETS)
    nvrtc = tmp_path / site[1:] / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    nvrtc.parent.mkdir(parents=True)
    nvrtc.touch()
    kits = {kit.root: kit for kit in read(tmp_path, packages=(site,))}
    assert {kit.packaging for kit in kits.values()} == {"wheel"}
    assert {kit.found_by for kit in kits.values()} == {("nvidia wheels",)}
    assert known(kits[f"{site}/nvidia/cuda_nvcc"].nvrtc) == f"{site}/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"


def test_conda_and_hpc_sdk_toolkits(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "opt/conda/envs/x", "12.4", "12.4.131", TARGETS)
    fake_toolkit(tmp_path / "opt/nvidia/hpc_sdk/Linux_x86_64/24.9/cuda/12.6", "12.6", "12.6.85", TARGETS)
    kits = read(tmp_path, {"PATH": "/usr/bin", "CONDA_PREFIX": "/opt/conda/envs/x"})
    assert [(kit.packaging, kit.found_by) for kit in kits] == [("conda", ("conda",)), ("HPC SDK", ("HPC SDK",))]


def test_nvidia_s_debian_package_is_told_from_the_runfile(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "usr/local/cuda-12.6", "12.6", "12.6.85", TARGETS)
    (tmp_path / "var/lib/dpkg/info").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/info/cuda-nvcc-12-6.list").touch()
    assert [kit.packaging for kit in read(tmp_path)] == ["NVIDIA package"]


def test_a_toolkit_without_nvcc_is_a_part_of_one(tmp_path: Path) -> None:
    library = tmp_path / "usr/local/cuda/lib64/libcudart.so"
    header = tmp_path / "usr/local/cuda/include/cuda.h"
    for path, text in ((library, ""), (header, "#define CUDA_VERSION 12060\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (kit,) = read(tmp_path)
    assert isinstance(kit.nvcc, Missing)
    assert kit.nvcc.reason is MissingReason.NOT_FOUND
    assert known(kit.toolkit_version) == CudaVersion.of(12, 6), "cuda.h says it where there is no compiler"
    assert "nvcc" in kit.missing_parts
    assert "libcudart.so" not in kit.missing_parts


@pytest.mark.parametrize(
    ("says", "reason", "words"),
    [
        (Says(hangs=True), MissingReason.TIMEOUT, "no answer within"),
        (Says(signal=11), MissingReason.CRASHED, "SIGSEGV"),
        (Says(stderr="nvcc fatal : oops", exit_code=1), MissingReason.FAILED, "nvcc fatal : oops"),
        (Says(b"\xff\x00 nonsense"), MissingReason.PARSE_ERROR, "\ufffd"),
        (Says(megabytes=100), MissingReason.FAILED, "printed more than"),
    ],
)
def test_a_broken_nvcc_is_missing_with_the_reason(tmp_path: Path, says: Says, reason: MissingReason, words: str) -> None:
    fake_toolkit(tmp_path / "usr/local/cuda", "12.6", "12.6.85", TARGETS)
    (tmp_path / "usr/local/cuda/version.json").unlink()
    fake_program(tmp_path / "usr/local/cuda/bin/nvcc", says)
    (kit,) = known(read_toolkits(linux(tmp_path), 1))
    for fact in (kit.toolkit_version, kit.targets):
        assert isinstance(fact, Missing)
        assert fact.reason is reason
        assert words in fact.detail


def test_a_broken_nvcc_does_not_hide_another_one(tmp_path: Path) -> None:
    fake_toolkit(tmp_path / "usr/local/cuda-12.6", "12.6", "12.6.85", TARGETS)
    fake_toolkit(tmp_path / "usr/local/cuda-11.8", "11.8", "11.8.89", TARGETS)
    fake_program(tmp_path / "usr/local/cuda-11.8/bin/nvcc", Says(hangs=True))
    kits = {kit.root: kit for kit in known(read_toolkits(linux(tmp_path), 3))}
    assert known(kits["/usr/local/cuda-12.6"].toolkit_version) == CudaVersion.of(12, 6)


def test_no_toolkit_is_an_empty_list_and_odd_files_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "usr/local").mkdir(parents=True)
    (tmp_path / "usr/local/cuda-9.9").write_text("a file")
    (tmp_path / "usr/local/cuda-loop").symlink_to("cuda-loop")
    (tmp_path / "usr/local/cuda-gone").symlink_to("nowhere")
    (tmp_path / "usr/bin/nvcc").mkdir(parents=True)
    assert read(tmp_path, {"PATH": "/usr/bin", "CUDA_HOME": "/usr/local/cuda-loop", "CUDA_PATH": "\0"}) == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Cuda compilation tools, release 12.6, V12.6.85\nBuild cuda_12.6.r12.6/compiler.35059454_0", "12.6.85"),
        ("Cuda compilation tools, release 9.1, V9.1.85", "9.1.85"),
        ("...\nCuda compilation tools, release 13.1\n...", "13.1"),
    ],
)
def test_versions_that_nvcc_prints(text: str, version: str) -> None:
    assert str(parse_nvcc_version(text)) == version


def test_texts_without_a_version_are_errors() -> None:
    for text in ("", "release x.y", "release 99999.1", "\0" * 1000):
        with pytest.raises(VersionError):
            parse_nvcc_version(text)
    for text in ("", "[]", "{}", '{"cuda": []}', '{"cuda": {"version": 12}}', '{"cuda": {"version": "x"}}', "[" * 100_000):
        with pytest.raises(VersionError):
            parse_version_json(text)
    for text in ("", "#define CUDA_VERSION x", "#define CUDA_VERSION 12"):
        with pytest.raises(VersionError):
            parse_cuda_header(text)
    with pytest.raises(VersionError):
        parse_targets("sm_90 bogus")
