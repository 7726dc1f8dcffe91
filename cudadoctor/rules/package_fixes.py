"""Builds the fixes for packages on top of torch."""

from __future__ import annotations

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Fix, Where
from cudadoctor.rules.engine import Case, Remedy
from cudadoctor.rules.fixes import interpreter
from cudadoctor.rules.questions import local_tag, torch, torch_cuda_version, torch_release
from cudadoctor.rules.software_questions import package


def install_companions(case: Case) -> tuple[Remedy, ...]:
    """Installing torchvision and torchaudio anew beside the torch that is here, from its index."""
    build = torch(case.snapshot)
    release, tag = (torch_release(build), local_tag(build)) if build is not None else (None, "")
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    where = tag or (runtime.tag if runtime is not None else "")
    if release is None or not where:
        return ()
    pin = f"torch=={release}+{where}"
    names = [name for name in ("torchvision", "torchaudio", "xformers") if package(case.snapshot, name) is not None] or [
        "torchvision"
    ]
    python = interpreter(case.snapshot)
    return (
        Remedy(
            Fix(
                title="Install them together with the torch that is here, from its index, so that the installer picks matching releases",
                commands=(
                    f"{python} -m pip install --force-reinstall --no-cache-dir {pin} {' '.join(names)} "
                    f"--index-url https://download.pytorch.org/whl/{where}",
                ),
                where=Where.VENV,
            )
        ),
    )
