from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.snapshot import LibraryOrigin
from cudadoctor.model.versions import VersionError
from cudadoctor.probes.libraries import parse_cudnn_header, read_libraries
from cudadoctor.probes.library_files import origin_of, version_of
from tests.fakes.nvml import install_fake_libcuda
from tests.fakes.roots import linux, windows

SITE = "/venv/lib/python3.12/site-packages"
CUDNN_9 = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n"


def put(root: Path, path: str, soname: str) -> None:
    """A real shared library at `path`, reached by its soname beside it."""
    folder, _, name = path.rpartition("/")
    install_fake_libcuda(root / folder[1:], "libcuda.so.1")
    (root / folder[1:] / "libcuda.so.1").rename(root / path[1:])
    if soname != name:
        (root / folder[1:] / soname).symlink_to(name)


def test_the_winner_and_the_copies_out_of_reach_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path, "/usr/lib/x86_64-linux-gnu/libcudart.so.12.0.146", "libcudart.so.12")
    put(tmp_path, "/usr/local/cuda-12.6/lib64/libcudart.so.12.6.77", "libcudart.so.12")
    put(tmp_path, f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12", "libcudart.so.12")
    environ = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/usr/local/cuda-12.6/lib64/:/nowhere::"}
    libraries = read_libraries(linux(tmp_path, environ=environ), (SITE,))
    found = [(c.real_path, c.origin, c.wins, str(maybe(c.library_version))) for c in known(libraries.copies)]
    assert found == [
        ("/usr/local/cuda-12.6/lib64/libcudart.so.12.6.77", LibraryOrigin.TOOLKIT, True, "12.6.77"),
        ("/usr/lib/x86_64-linux-gnu/libcudart.so.12.0.146", LibraryOrigin.SYSTEM, False, "12.0.146"),
        (f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12", LibraryOrigin.WHEEL, False, "None"),
    ]
    folders = [(f.path, f.exists, f.shadows) for f in known(libraries.ld_library_path)]
    assert folders == [("/usr/local/cuda-12.6/lib64", True, ("libcudart.so.12",)), ("/nowhere", False, ())]


def test_a_folder_that_hides_nothing_shadows_nothing(tmp_path: Path) -> None:
    put(tmp_path, "/opt/x/libnccl.so.2.27.5", "libnccl.so.2")
    folders = read_libraries(linux(tmp_path, environ={"LD_LIBRARY_PATH": "/opt/x"})).ld_library_path
    assert [folder.shadows for folder in known(folders)] == [()]


def test_a_libcuda_on_the_path_shadows_the_driver_s(tmp_path: Path) -> None:
    put(tmp_path, "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "libcuda.so.1")
    put(tmp_path, "/opt/stubs/libcuda.so.1", "libcuda.so.1")
    folders = read_libraries(linux(tmp_path, environ={"LD_LIBRARY_PATH": "/opt/stubs"})).ld_library_path
    assert [folder.shadows for folder in known(folders)] == [("libcuda.so.1",)]


def test_a_part_of_cudnn_on_the_path_shadows_the_wheels(tmp_path: Path) -> None:
    put(tmp_path, f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", "libcudnn.so.9")
    put(tmp_path, f"{SITE}/nvidia/cudnn/lib/libcudnn_graph.so.9", "libcudnn_graph.so.9")
    put(tmp_path, "/opt/x/libcudnn_graph.so.9", "libcudnn_graph.so.9")
    put(tmp_path, "/opt/x/libcudnn_of_mine.so.9", "libcudnn_of_mine.so.9")
    folders = read_libraries(linux(tmp_path, environ={"LD_LIBRARY_PATH": "/opt/x"}), (SITE,)).ld_library_path
    assert [folder.shadows for folder in known(folders)] == [("libcudnn_graph.so.9",)]


def test_cudnn_s_header_gives_the_version_of_the_library_beside_it(tmp_path: Path) -> None:
    put(tmp_path, f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", "libcudnn.so.9")
    files = {
        f"{SITE}/nvidia/cudnn/include/cudnn_version.h": CUDNN_9,
        "/usr/include/cudnn.h": CUDNN_9.replace("9", "7"),
        "/usr/local/cuda-12.6/include/cudnn.h": "#include <cudnn_version.h>",
        "/usr/include/cudnn_version.h": None,
    }
    libraries = read_libraries(linux(tmp_path, files), (SITE,))
    headers = {header.path: str(header.cudnn_version) for header in known(libraries.cudnn_headers)}
    assert headers == {"/usr/include/cudnn.h": "7.1.0", f"{SITE}/nvidia/cudnn/include/cudnn_version.h": "9.1.0"}
    assert [str(known(copy.library_version)) for copy in known(libraries.copies)] == ["9.1.0"]


def test_files_that_are_no_libraries_do_not_win(tmp_path: Path) -> None:
    files = {"/usr/lib64/libcublas.so.12": "not ELF", "/usr/lib64/libcufft.so.11": None}
    links = {"/usr/lib64/libcurand.so.10": "libcurand.so.10", "/usr/lib64/libnccl.so.2": "nowhere"}
    copies = known(read_libraries(linux(tmp_path, files, links)).copies)
    assert not [copy for copy in copies if copy.wins]


def test_names_with_a_line_break_are_no_libraries(tmp_path: Path) -> None:
    system = linux(tmp_path, {"/usr/lib64/libcudart.so.12\n": b""}, environ={"LD_LIBRARY_PATH": "/usr/lib64"})
    libraries = read_libraries(system)
    assert known(libraries.copies) == ()
    assert [folder.shadows for folder in known(libraries.ld_library_path)] == [()]


def test_without_a_library_path_the_question_does_not_arise(tmp_path: Path) -> None:
    fact = read_libraries(linux(tmp_path)).ld_library_path
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.NOT_APPLICABLE
    on_windows = read_libraries(windows(tmp_path, {})).copies
    assert isinstance(on_windows, Missing)
    assert on_windows.reason is MissingReason.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", LibraryOrigin.DRIVER),
        ("/usr/lib64/libnvidia-ml.so.580.65.06", LibraryOrigin.DRIVER),
        ("/usr/lib/x86_64-linux-gnu/libcudart.so.11.5.117", LibraryOrigin.SYSTEM),
        ("/usr/local/cuda-12.6/compat/libcuda.so.560.35.05", LibraryOrigin.COMPAT),
        ("/usr/local/cuda-12.6/targets/x86_64-linux/lib/stubs/libcuda.so", LibraryOrigin.STUB),
        ("/usr/local/cuda-12.6/targets/x86_64-linux/lib/libcudart.so.12.6.77", LibraryOrigin.TOOLKIT),
        ("/usr/lib/wsl/lib/libcuda.so.1", LibraryOrigin.WSL),
        ("/home/x/miniconda3/envs/t/lib/libcudart.so.12", LibraryOrigin.CONDA),
        ("/home/x/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12", LibraryOrigin.WHEEL),
        ("/home/x/miniconda3/envs/t/lib/python3.12/site-packages/torch/lib/libcudart.so.12", LibraryOrigin.WHEEL),
        ("/run/opengl-driver/lib/libcuda.so.1", LibraryOrigin.DRIVER),
        ("/home/x/lib/libcuda.so.1", LibraryOrigin.OTHER),
    ],
)
def test_who_put_a_library_there(path: str, origin: LibraryOrigin) -> None:
    assert origin_of(path) is origin


def test_a_conda_environment_elsewhere_is_told_by_its_variable() -> None:
    assert origin_of("/data/env/lib/libcudart.so.12", "/data/env/") is LibraryOrigin.CONDA


def test_a_conda_environment_at_the_root_owns_nothing() -> None:
    assert origin_of("/data/env/lib/libcudart.so.12", "/") is LibraryOrigin.OTHER


def test_versions_in_file_names() -> None:
    assert str(known(version_of("/x/libcuda.so.580.65.06"))) == "580.65.06"
    assert isinstance(version_of("/x/libcuda.so.1"), Missing)


@pytest.mark.parametrize("text", ["", "#define CUDNN_MAJOR 9", CUDNN_9.replace("9", "x"), "#define CUDNN_MAJOR " * 10_000])
def test_headers_without_a_version_are_errors(text: str) -> None:
    with pytest.raises(VersionError):
        parse_cudnn_header(text)
