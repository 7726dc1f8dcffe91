from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.binary.contents import read_contents
from cudadoctor.binary.coverage import Gpu, Judgement, ModuleOutcome, Verdict, judge, judge_module
from cudadoctor.binary.source import FileSource
from cudadoctor.model.binaries import Code, ModuleGroup, Place
from cudadoctor.model.versions import ComputeCapability, PtxIsa, SmTarget


def gpu(cc: str, ptx_isa: str | None = None) -> Gpu:
    return Gpu(ComputeCapability.parse(cc), None if ptx_isa is None else PtxIsa.parse(ptx_isa))


def code(text: str) -> Code:
    """`sm_90a`, `compute_90@8.4` or `unknown`."""
    target, _, isa = text.partition("@")
    return Code(None if target == "unknown" else SmTarget.parse(target), PtxIsa.parse(isa) if isa else None)


def group(*codes: str, count: int = 1, place: Place = Place.REGISTERED, **flags: bool) -> ModuleGroup:
    return ModuleGroup(place, tuple(code(text) for text in codes), count, **flags)


def judge_sample(path: Path, cc: str, ptx_isa: str | None = None) -> Judgement:
    with FileSource(path) as source:
        contents = read_contents(source)
    assert contents is not None
    return judge(contents.groups, gpu(cc, ptx_isa))


@pytest.mark.parametrize(
    ("codes", "cc", "ptx_isa", "outcome"),
    [
        (("sm_80",), "8.6", None, ModuleOutcome.SASS),
        (("sm_89",), "8.6", None, ModuleOutcome.NO_IMAGE),
        (("sm_86",), "8.9", None, ModuleOutcome.SASS),
        (("sm_120",), "12.1", None, ModuleOutcome.SASS),
        (("sm_90a",), "9.0", None, ModuleOutcome.SASS),
        (("sm_90a",), "10.0", None, ModuleOutcome.NO_IMAGE),
        (("sm_100f",), "10.3", None, ModuleOutcome.SASS),
        (("sm_75", "compute_75@7.8"), "12.0", None, ModuleOutcome.JIT),
        (("sm_75", "compute_75@7.8"), "12.0", "7.8", ModuleOutcome.JIT),
        (("sm_75", "compute_75@9.0"), "12.0", "8.8", ModuleOutcome.PTX_TOO_NEW),
        (("sm_75", "compute_90@9.0", "compute_75@7.8"), "12.0", "8.8", ModuleOutcome.JIT),
        (("compute_90a@8.0",), "10.0", None, ModuleOutcome.NO_IMAGE),
        (("lto_90",), "9.0", None, ModuleOutcome.RUN_TIME_LINKED),
        (("lto_80", "sm_80"), "9.0", None, ModuleOutcome.NO_IMAGE),
        (("sm_80", "unknown"), "9.0", None, ModuleOutcome.UNKNOWN),
        (("sm_80", "unknown"), "8.0", None, ModuleOutcome.SASS),
        (("sm_80",), "8.7", None, ModuleOutcome.UNCERTAIN),
    ],
)
def test_one_module(codes: tuple[str, ...], cc: str, ptx_isa: str | None, outcome: ModuleOutcome) -> None:
    assert judge_module(group(*codes), gpu(cc, ptx_isa)) is outcome


def test_incomplete_module_is_unknown_unless_it_serves() -> None:
    assert judge_module(group("sm_80", is_complete=False), gpu("9.0")) is ModuleOutcome.UNKNOWN
    assert judge_module(group("sm_80", is_complete=False), gpu("8.0")) is ModuleOutcome.SASS


@pytest.mark.parametrize(
    ("groups", "verdict", "errors"),
    [
        ((group("sm_90", count=3),), Verdict.RUNS, ()),
        ((group("sm_90"), group("compute_80@7.0")), Verdict.RUNS_BY_JIT, ()),
        ((group("sm_90", count=59), group("sm_100a", count=41)), Verdict.PARTLY, (209,)),
        ((group("sm_80"), group("sm_75")), Verdict.FAILS, (209,)),
        ((group("compute_80@9.9"), group("sm_75")), Verdict.FAILS, (209, 222)),
        ((group("sm_80", is_tiny=True),), Verdict.NO_KERNELS, ()),
        ((group("sm_80", is_tiny=True), group("sm_90")), Verdict.RUNS, ()),
        ((group("sm_90", is_tiny=True), group("sm_80")), Verdict.FAILS, (209,)),
        ((group("lto_80"),), Verdict.NO_KERNELS, ()),
        ((group("unknown"),), Verdict.UNKNOWN, ()),
        ((group("unknown"), group("sm_80")), Verdict.UNKNOWN, (209,)),
        ((), Verdict.NO_KERNELS, ()),
    ],
)
def test_one_file(groups: tuple[ModuleGroup, ...], verdict: Verdict, errors: tuple[int, ...]) -> None:
    judgement = judge(groups, gpu("9.0", "9.0"))
    assert (judgement.verdict, judgement.errors) == (verdict, errors)
    assert judgement.prediction


def test_union_of_architectures_does_not_count() -> None:
    """A file whose modules together have sm_80 and sm_90 runs neither GPU's kernels completely."""
    groups = (group("sm_80", count=10), group("sm_90", count=5))
    judgement = judge(groups, gpu("9.0"))
    assert judgement.verdict is Verdict.PARTLY
    assert judgement.modules == {"sass": 5, "no-image": 10}
    assert judgement.because == (
        "compute capability 9.0: 5 of 15 modules run as machine code, "
        "10 of 15 modules have no code for it (error 209, no kernel image is available)"
    )


@pytest.mark.parametrize(
    ("name", "cc", "ptx_isa", "verdict", "errors"),
    [
        ("plain.so", "8.0", None, Verdict.RUNS, ()),
        ("plain.so", "9.0", None, Verdict.RUNS, ()),
        ("plain.so", "7.5", None, Verdict.FAILS, (209,)),
        ("plain.so", "12.0", None, Verdict.RUNS_BY_JIT, ()),
        ("plain.so", "12.0", "8.7", Verdict.FAILS, (222,)),
        ("lz4.so", "9.0", None, Verdict.FAILS, (209,)),
        ("constants.so", "7.5", None, Verdict.NO_KERNELS, ()),
        ("linked_sass.so", "8.6", None, Verdict.RUNS, ()),
        ("linked_sass.so", "9.0", None, Verdict.FAILS, (500,)),
        ("linked_lld.so", "9.0", None, Verdict.FAILS, (500,)),
        ("linked.so", "9.0", None, Verdict.RUNS_BY_JIT, ()),
        ("linked.so", "7.5", None, Verdict.FAILS, (500,)),
        ("family.fatbin", "10.3", None, Verdict.RUNS, ()),
        ("family.fatbin", "12.1", None, Verdict.RUNS_BY_JIT, ()),
        ("family.fatbin", "9.0", None, Verdict.FAILS, (209,)),
        ("specific.cubin", "9.0", None, Verdict.RUNS, ()),
        ("specific.cubin", "10.0", None, Verdict.FAILS, (209,)),
        ("specific.ptx", "10.0", None, Verdict.FAILS, (209,)),
        ("lto.o", "9.0", None, Verdict.FAILS, (209,)),
        ("loose.so", "9.0", None, Verdict.PARTLY, (209,)),
    ],
)
def test_samples(name: str, cc: str, ptx_isa: str | None, verdict: Verdict, errors: tuple[int, ...], samples: Path) -> None:
    judgement = judge_sample(samples / name, cc, ptx_isa)
    assert (judgement.verdict, judgement.errors) == (verdict, errors)


def test_device_linked_module_needs_every_input() -> None:
    linked = group("sm_80", is_device_linked=True)
    inputs = (group("compute_80@7.0", place=Place.RELOCATABLE), group("sm_80", place=Place.RELOCATABLE))
    assert judge((linked, *inputs), gpu("9.0")).errors == (300,)
    assert judge((linked, inputs[1]), gpu("9.0")).errors == (500,)
    assert judge((linked, *inputs[:1]), gpu("9.0")).verdict is Verdict.RUNS_BY_JIT


def test_device_linked_module_whose_ptx_is_too_new_for_the_driver() -> None:
    """Seen on an H200, driver 580: PTX of every input too new gives 222, not 500."""
    linked = group("sm_80", is_device_linked=True)
    inputs = tuple(group("compute_80@9.9", "sm_80", place=Place.RELOCATABLE) for _ in range(2))
    assert judge((linked, *inputs), gpu("9.0", "9.0")).errors == (222,)
