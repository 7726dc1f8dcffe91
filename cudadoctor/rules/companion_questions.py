"""Which torch a package on top of it belongs to: questions that rules ask, never a judgement."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from cudadoctor.model.snapshot import Package
from cudadoctor.rules.engine import Case
from cudadoctor.rules.questions import torch, torch_version_text
from cudadoctor.rules.software_questions import is_wheel_of_an_index, packages, version_of

TORCHVISION_BEHIND = {1: 1, 2: 15}
"""Major of torch to the difference of minors: torchvision 0.(n + 15) belongs to torch 2.n (README of torchvision)."""
LAST_BOUND_TORCHAUDIO = (2, 8)
"""Later releases of torchaudio are not bound to one release of torch (release notes of torchaudio 2.9)."""


def misfits(case: Case) -> Iterable[tuple[Package, str]]:
    """The installed packages that do not belong to the installed torch, and which torch they want."""
    build = torch(case.snapshot)
    if build is None or not packages(case.snapshot) or not is_wheel_of_an_index(build):
        return
    installed = version_of(torch_version_text(build).partition("+")[0])
    if installed is None or len(installed.release) < 2:
        return
    for each in packages(case.snapshot):
        version = version_of(each.package_version)
        why = _misfit(case, each.name, version, installed) if version is not None and not each.build else None
        if why is not None:
            yield each, why


def _misfit(case: Case, name: str, version: Version, installed: Version) -> str | None:
    """Which torch the package wants instead; None where it fits, or is not bound to one."""
    if name == "torchvision":
        return _torchvision(version, installed)
    if name == "torchaudio":
        return _torchaudio(version, installed)
    if name in ("vllm", "xformers"):
        return _pinned(case, name, version, installed)
    return _triton(case, version, installed) if name == "triton" else None


def _torchvision(version: Version, installed: Version) -> str | None:
    behind = TORCHVISION_BEHIND.get(installed.major)
    if behind is None or version.major != 0 or version.minor - behind == installed.minor:
        return None
    wanted = version.minor - behind
    return f"it is for torch {installed.major}.{wanted}" if wanted >= 0 else "it is for an older torch"


def _torchaudio(version: Version, installed: Version) -> str | None:
    bound = version.major == installed.major and installed.release[:2] <= LAST_BOUND_TORCHAUDIO
    return f"it is for torch {version.major}.{version.minor}" if bound and version.release[:2] != installed.release[:2] else None


def _pinned(case: Case, name: str, version: Version, installed: Version) -> str | None:
    """vllm and xformers: a patch release of the pinned minor still fits."""
    pin = case.matrices.ecosystem.torch_for(name, version)
    if pin is None or pin.contains(installed.public, prereleases=True):
        return None
    same_minor = any((wanted := version_of(each.version)) and wanted.release[:2] == installed.release[:2] for each in pin)
    return None if same_minor else f"it wants torch{pin}"


def _triton(case: Case, version: Version, installed: Version) -> str | None:
    rows = [row for row in case.matrices.ecosystem.triton if any(pin.release == installed.release for pin in row.torch)]
    fits = not rows or any(row.version.release[:2] == version.release[:2] for row in rows)
    return None if fits else f"this torch wants triton {rows[0].version}"
