from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.sonames import SonameMatrix
from cudadoctor.model.binaries import BinaryPackage
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.probes import binaries
from cudadoctor.probes.binaries import THE_OTHERS, BinaryScan, packages_of
from cudadoctor.system import System
from tests.binary.conftest import compile_library, samples
from tests.fakes.roots import linux
from tests.fakes.stub_torch import add_distribution

__all__ = ["compile_library", "samples"]
SITE = "/venv/lib/python3.12/site-packages"


def sonames() -> SonameMatrix:
    return Matrices.load().sonames


def no_tables() -> SonameMatrix:
    raise AssertionError("nothing is to be read here")


def install(root: Path, name: str, files: dict[str, Path]) -> None:
    """A package with these files, and the list of them."""
    site = root / SITE.lstrip("/")
    add_distribution(site, name, "1.0")
    for path, source in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(source.read_bytes())
    (site / f"{name.replace('-', '_')}-1.0.dist-info/RECORD").write_text("".join(f"{path},,\n" for path in files))


def read(system: System, is_over: Callable[[], bool] = lambda: False) -> dict[str, BinaryPackage]:
    return {package.name: package for package in packages_of(system, (SITE,), sonames, "", is_over)}


@pytest.fixture
def site(samples: Path, tmp_path: Path, compile_library: Callable[..., Path]) -> Path:
    """A root folder whose site-packages has a known package, a user's extension, and packages without GPU code."""
    install(tmp_path, "flash-attn", {"flash_attn/a.so": samples / "plain.so", "flash_attn/b.so": samples / "linked.so"})
    install(tmp_path, "aaa-mine", {"mine.so": samples / "compressed.so"})
    install(tmp_path, "numpy", {"numpy/core.so": compile_library(tmp_path / "built/core.so")})
    install(tmp_path, "nvidia-cublas", {"nvidia/cublas/lib/libcublas.so.13": samples / "lz4.so"})
    return tmp_path


def test_known_packages_come_first_then_all_with_gpu_code(site: Path) -> None:
    found = read(linux(site))
    assert list(found) == ["flash-attn", "aaa-mine"]
    assert all(package.complete for package in found.values())
    assert [file.path for file in found["flash-attn"].files] == [f"{SITE}/flash_attn/a.so", f"{SITE}/flash_attn/b.so"]
    (mine,) = found["aaa-mine"].files
    assert {str(code.target) for group in mine.modules for code in group.code} == {"sm_75", "sm_120", "compute_120"}


def test_nothing_is_started_where_no_such_package_is_installed(tmp_path: Path) -> None:
    install(tmp_path, "requests", {})
    system = linux(tmp_path)
    assert list(packages_of(system, (SITE, "/nowhere"), no_tables, "", lambda: False)) == []
    assert list(packages_of(system, (), no_tables, "", lambda: False)) == []


def test_a_user_s_extension_alone_is_found_where_a_device_is(samples: Path, tmp_path: Path) -> None:
    install(tmp_path, "mine", {"mine.so": samples / "plain.so"})
    assert read(linux(tmp_path)) == {}
    assert list(read(linux(tmp_path, {"/dev/nvidiactl": ""}))) == ["mine"]


def test_what_time_did_not_allow_is_said_to_be_incomplete(site: Path) -> None:
    asked = iter([False])
    found = read(linux(site), lambda: next(asked, True))
    assert list(found) == ["flash-attn", THE_OTHERS]
    assert [package.complete for package in found.values()] == [False, False]
    assert len(found["flash-attn"].files) == 1


def test_the_scan_gives_what_the_reading_gave(site: Path) -> None:
    fact, run = BinaryScan(linux(site), lambda: (SITE,), sonames, "").result(time.monotonic() + 30)
    assert isinstance(fact, Known)
    assert [package.name for package in fact.value] == ["flash-attn", "aaa-mine"]
    assert (run.probe, run.outcome) == ("binaries", "ok")


def test_the_report_is_never_delayed(site: Path) -> None:
    """The interpreter does not say where its packages are: the report does not wait beyond the budget."""
    silent = threading.Event()

    def folders() -> tuple[str, ...]:
        silent.wait(30)
        return (SITE,)

    scan = BinaryScan(linux(site), folders, sonames, "")
    fact, run = scan.result(time.monotonic() + 0.1)
    silent.set()
    assert fact == Known((BinaryPackage(THE_OTHERS, (), complete=False),), binaries.SOURCE)
    assert run.outcome == "timeout"


def test_a_crash_is_a_missing_fact(site: Path) -> None:
    def folders() -> tuple[str, ...]:
        raise KeyError("oops")

    fact, run = BinaryScan(linux(site), folders, sonames, "").result(time.monotonic() + 30)
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.FAILED
    assert run.outcome == "crashed"


def test_macos_has_none(tmp_path: Path) -> None:
    system = linux(tmp_path)
    system.platform = "darwin"
    fact, _ = BinaryScan(system, lambda: (SITE,), no_tables, "").result(time.monotonic() + 30)
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.NOT_APPLICABLE


def test_a_second_reading_comes_from_the_cache(samples: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.so"
    large.write_bytes((samples / "plain.so").read_bytes() + bytes(2 << 20))
    install(tmp_path, "vllm", {"vllm/a.so": large})
    system = linux(tmp_path, environ={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    first = read(system)
    saved = tmp_path / "cache/cudadoctor/scan.json"
    assert "vllm/a.so" in saved.read_text()
    assert read(system) == first


def test_the_cache_of_this_user_is_not_used_for_an_image(samples: Path, tmp_path: Path) -> None:
    install(tmp_path, "vllm", {"vllm/a.so": samples / "plain.so"})
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert list(read(linux(tmp_path, environ=environ, uname=None))) == ["vllm"]
    assert not (tmp_path / "cache").exists()
