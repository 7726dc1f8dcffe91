"""The readers give the rules what they need: each ticket yields an error text or facts from which its first tag can follow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudadoctor.matrices.error_patterns import error_patterns
from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.snapshot import Snapshot, Torch, TorchBuild
from cudadoctor.readers.paste import read_paste
from tests.tickets.scoring import Case, cases


def leading_kinds(tag: str) -> set[str]:
    """Kinds of error texts to which the table ascribes this cause, or that are named after it."""
    return {kind for kind, row in error_patterns().rows.items() if kind == tag or any(c.finding == tag for c in row.causes)}


def torch(snapshot: Snapshot) -> Torch:
    return maybe(snapshot.python.torch) or Torch()


def knows_gpu_and_archs(snapshot: Snapshot) -> bool:
    return isinstance(snapshot.gpus, Known) and isinstance(torch(snapshot).arch_list, Known)


def knows_cpu_build(snapshot: Snapshot) -> bool:
    build = torch(snapshot)
    return (
        "+cpu" in (maybe(build.torch_version) or "") or maybe(build.build) is TorchBuild.CPU or maybe(build.is_available) is False
    )


def knows_driver_and_toolkit(snapshot: Snapshot) -> bool:
    toolkit = isinstance(snapshot.toolkits, Known) or isinstance(snapshot.libraries.copies, Known)
    return isinstance(snapshot.driver.driver_cuda_version, Known) and toolkit


def knows_torch_and_toolkit(snapshot: Snapshot) -> bool:
    return isinstance(snapshot.toolkits, Known) and isinstance(torch(snapshot).torch_cuda_version, Known)


FACTS: dict[str, Callable[[Snapshot], bool]] = {
    "benign-same-major-arch": knows_gpu_and_archs,
    "cpu-only-torch": knows_cpu_build,
    "benign-smi-vs-nvcc": knows_driver_and_toolkit,
    "benign-torch-vs-toolkit": knows_torch_and_toolkit,
    "jetson-generic-wheel": lambda snapshot: isinstance(snapshot.host.jetson, Known),
    "benign-smi-limits": lambda snapshot: any(reading.kind == "nvidia_smi" for reading in snapshot.readings),
    "kernel-module-missing-for-kernel": lambda snapshot: isinstance(snapshot.host.kernel_release, Known),
}


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case.id))
def test_first_tag_can_follow(case: Case) -> None:
    snapshot = read_paste(case.pasted).snapshot
    tag = case.must_find[0]
    kinds = {error.kind for error in snapshot.errors}
    assert kinds & leading_kinds(tag) or (tag in FACTS and FACTS[tag](snapshot)), sorted(kinds)


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case.id))
def test_browser_mangling_keeps_the_errors(case: Case) -> None:
    """Lost indentation, smart quotes, quote marks and entities leave the same kinds of errors."""
    lines = [f"> {line.strip()}" for line in case.pasted.split("\n")]
    mangled = "\r\n".join(lines).replace("'", "\u2019").replace(" - ", " \u2013 ").replace("&", "&amp;")
    before = {error.kind for error in read_paste(case.pasted).snapshot.errors}
    after = {error.kind for error in read_paste(mangled).snapshot.errors}
    assert before == after
