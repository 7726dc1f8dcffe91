"""The stack of a machine as rows: what is there, where that was read, and which findings concern it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, describe_missing, maybe
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Gpu, Libraries, LibraryCopy, Toolkit, Torch
from cudadoctor.report.marks import OF_SEVERITY, Mark
from cudadoctor.report.ranges import number_ranges, target_span

GIBIBYTE = 2**30

NO_GPU = "no-nvidia-gpu"
"""The finding of the driver's area that is about the GPU's row."""

PACKAGE = "package "
"""Subjects that begin so are installed packages: they have a row of their own."""
MOST_PACKAGES = 4

_GPU_NUMBERS = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class StackRow:
    """One line of the stack table; all fields are raw text."""

    label: str
    value: str
    mark: Mark
    words: str
    """The verdict in words, beside the mark: `ok`, a finding's code, or why it is unknown."""
    source: str


def stack_rows(report: Report) -> tuple[StackRow, ...]:
    """The stack from the GPU up; parts that nobody looked for are left out unless a finding concerns them."""
    return (
        *_gpu_rows(report),
        *_links_row(report),
        *_driver_row(report),
        *_toolkit_rows(report),
        *_torch_row(report),
        *_packages_row(report),
        *_cudnn_row(report),
        *_nccl_row(report),
        *_container_row(report),
        *_wsl_row(report),
        *_environment_row(report),
    )


def header_parts(report: Report) -> tuple[str, ...]:
    """Tool, version and the day of its data, system and architecture, node, and the examined interpreter with the reason."""
    host, python = report.snapshot.host, report.snapshot.python
    system = " ".join(text for fact in (host.os_name, host.architecture) if (text := maybe(fact)))
    as_of = f" (data of {report.tool.matrices_as_of})" if report.tool.matrices_as_of else ""
    parts = [f"cudadoctor {report.tool.version}{as_of}", system, f"node {report.node}" if report.node else ""]
    executable, python_version = maybe(python.executable), maybe(python.python_version)
    if executable:
        release = f" {python_version}" if python_version else ""
        parts.append(f"examining Python{release} {executable}" + (f" ({python.chosen_because})" if python.chosen_because else ""))
    return tuple(part for part in parts if part)


# Verdicts


def _verdict(report: Report, area: str, concerning: Sequence[Finding], missing: Missing | None = None) -> tuple[Mark, str]:
    """The worst of: the findings that concern a row, its missing value, and rules of its area that could not be judged."""
    bad = sorted((f for f in concerning if f.severity is not Severity.NOTE), key=lambda f: f.severity.rank)
    if bad:
        codes = list(dict.fromkeys(finding.code for finding in bad))
        more = f" +{len(codes) - 1}" if len(codes) > 1 else ""
        return OF_SEVERITY[bad[0].severity], codes[0] + more
    if missing is not None:
        return (Mark.ABSENT, "absent") if _is_absence(missing) else (Mark.UNKNOWN, missing.reason.value.replace("_", " "))
    unjudged = list(dict.fromkeys(rule.code for rule in report.unknown if rule.code.startswith(f"CD{area}")))
    if unjudged:
        return Mark.UNKNOWN, f"{unjudged[0]} not judged" if len(unjudged) == 1 else f"{len(unjudged)} not judged"
    return Mark.OK, "ok"


def _is_absence(missing: Missing) -> bool:
    return missing.reason in (MissingReason.NOT_FOUND, MissingReason.NOT_APPLICABLE)


def _in_area(report: Report, area: str) -> list[Finding]:
    found = (f for f in report.findings if f.code.startswith(f"CD{area}") or (area == "5" and f.name == NO_GPU))
    return [finding for finding in found if not finding.subject.startswith(PACKAGE)]


def _missing_row(report: Report, label: str, area: str, missing: Missing) -> Iterator[StackRow]:
    concerning = _in_area(report, area)
    if missing.reason is MissingReason.NOT_ASKED and not concerning:
        return
    mark, words = _verdict(report, area, concerning, missing)
    value = "not found" if missing.reason is MissingReason.NOT_FOUND else "unknown"
    yield StackRow(label, f"{value}: {missing.detail}" if missing.detail else value, mark, words, missing.source)


# Sources


def _sources(*facts: Fact[object]) -> str:
    """Every source of the facts, once; with agreeing other sources."""
    names: dict[str, None] = {}
    for fact in facts:
        if isinstance(fact, Known):
            names[fact.source] = None
            names.update({other.source: None for other in fact.others if other.value == str(fact.value)})
    return ", ".join(name for name in names if name)


def _with_disagreement(fact: Known[object]) -> str:
    """The value, and every other source that says something else."""
    others = [f"{other.source} says {other.value}" for other in fact.others if other.value != str(fact.value)]
    return f"{fact.value} (but {', '.join(others)})" if others else str(fact.value)


# Rows


def _gpu_rows(report: Report) -> Iterator[StackRow]:
    gpus = report.snapshot.gpus
    if isinstance(gpus, Missing):
        yield from _missing_row(report, "GPU", "5", gpus)
        return
    if not gpus.value:
        yield from _missing_row(report, "GPU", "5", Missing(MissingReason.NOT_FOUND, source=gpus.source))
    groups: dict[StackRow, list[int]] = {}
    for gpu in gpus.value:
        groups.setdefault(_gpu_row(report, gpu, gpus.source), []).append(gpu.index)
    for row, numbers in groups.items():
        many = f"{len(numbers)} x " if len(numbers) > 1 else ""
        yield StackRow(f"GPU {number_ranges(numbers)}", many + row.value, row.mark, row.words, row.source)


def _gpu_row(report: Report, gpu: Gpu, source: str) -> StackRow:
    """The row of one GPU, without its number, so that identical ones are equal."""
    concerning = [finding for finding in _in_area(report, "5") if _names_gpu(finding.subject, gpu.index)]
    unread = gpu.compute_capability if isinstance(gpu.compute_capability, Missing) else None
    mark, words = _verdict(report, "5", concerning, unread)
    if gpu.error and mark in (Mark.OK, Mark.UNKNOWN, Mark.ABSENT):
        mark, words = Mark.UNKNOWN, "does not answer"
    return StackRow("", _gpu_value(gpu), mark, words, _sources(gpu.name, gpu.compute_capability) or source)


def _gpu_value(gpu: Gpu) -> str:
    if gpu.error:
        return ", ".join(part for part in (maybe(gpu.name), gpu.error) if part)
    parts = [maybe(gpu.name) or "name unknown"]
    capability, memory = gpu.compute_capability, maybe(gpu.memory_total_bytes)
    parts.append(f"CC {capability.value}" if isinstance(capability, Known) else f"CC unknown ({describe_missing(capability)})")
    if memory is not None:
        parts.append(f"{memory / GIBIBYTE:.0f} GiB")
    if maybe(gpu.mig_enabled):
        parts.append(f"MIG {', '.join(maybe(gpu.mig_devices) or ('without devices',))}")
    return ", ".join(parts)


def _names_gpu(subject: str, index: int) -> bool:
    """Is GPU `index` meant by a subject such as `GPU 0`, `GPU 0..7`, `GPU 1, 3` or something that names no GPU?"""
    if not subject.startswith("GPU "):
        return True
    ranges = _GPU_NUMBERS.findall(subject.partition("(")[0])
    return not ranges or any(int(first) <= index <= int(last or first) for first, last in ranges)


LINK_RULES = frozenset({"CD516", "CD517", "CD804", "CD806"})


def _links_row(report: Report) -> Iterator[StackRow]:
    """What connects the GPUs: how many pairs by NVLink and over which ways of PCIe, and how many have peer access."""
    pairs = report.snapshot.gpu_pairs
    if not isinstance(pairs, Known):
        return
    ways = Counter(f"NVLink x{links}" if (links := maybe(pair.nvlinks)) else maybe(pair.topology) for pair in pairs.value)
    shown = [f"{count} {'pair' if count == 1 else 'pairs'} by {way or 'an unknown way'}" for way, count in ways.most_common()]
    access = [maybe(pair.access) for pair in pairs.value]
    if None not in access:
        shown.append(f"{sum(map(bool, access))} of {len(access)} with peer access")
    mark, words = _verdict(report, "X", [finding for finding in report.findings if finding.code in LINK_RULES])
    yield StackRow("Links", ", ".join(shown), mark, words, _sources(pairs, pairs.value[0].access))


def _driver_row(report: Report) -> Iterator[StackRow]:
    driver = report.snapshot.driver
    release, supported = driver.driver_release, driver.driver_cuda_version
    if isinstance(release, Missing) and isinstance(supported, Missing):
        yield from _missing_row(report, "Driver", "1", release if release.reason is not MissingReason.NOT_ASKED else supported)
        return
    parts = [_with_disagreement(release) if isinstance(release, Known) else f"release unknown ({describe_missing(release)})"]
    parts.append(f"CUDA up to {supported.value}" if isinstance(supported, Known) else "CUDA unknown")
    module = maybe(driver.kernel_module)
    if module is not None:
        parts.append(f"{module.flavour.value} module")
    mark, words = _verdict(report, "1", _in_area(report, "1"), release if isinstance(release, Missing) else None)
    yield StackRow("Driver", ", ".join(parts), mark, words, _sources(release, supported))


def _toolkit_rows(report: Report) -> Iterator[StackRow]:
    toolkits = report.snapshot.toolkits
    if isinstance(toolkits, Missing):
        yield from _missing_row(report, "Toolkit", "2", toolkits)
        return
    if not toolkits.value:
        yield from _missing_row(report, "Toolkit", "2", Missing(MissingReason.NOT_FOUND, source=toolkits.source))
    findings = _in_area(report, "2")
    ordered = sorted(toolkits.value, key=lambda toolkit: not toolkit.chosen_for_builds)
    named = {id(t): [f for f in findings if _names_toolkit(f.subject, t)] for t in ordered}
    nameless = [f for f in findings if not any(f in found for found in named.values())]
    for position, toolkit in enumerate(ordered):
        concerning = [*named[id(toolkit)], *(nameless if position == 0 else ())]
        yield _toolkit_row(report, toolkit, concerning, len(ordered))


def _names_toolkit(subject: str, toolkit: Toolkit) -> bool:
    release = maybe(toolkit.toolkit_version)
    names = [toolkit.root, *toolkit.aliases, *((release.text, release.release) if release else ())]
    return any(word.strip("(),") in names for word in subject.split())


def _toolkit_row(report: Report, toolkit: Toolkit, concerning: Sequence[Finding], count: int) -> StackRow:
    release, targets = toolkit.toolkit_version, maybe(toolkit.targets)
    value = str(release.value) if isinstance(release, Known) else f"release unknown ({describe_missing(release)})"
    if targets:
        value += f", targets {target_span(targets)}"
    if isinstance(toolkit.nvcc, Missing) and toolkit.nvcc.reason is MissingReason.NOT_FOUND:
        value += ", no nvcc"
    if count > 1:
        value += f", {_short_root(toolkit.root)}" + (" (used for builds)" if toolkit.chosen_for_builds else "")
    mark, words = _verdict(report, "2", concerning, release if isinstance(release, Missing) else None)
    return StackRow("Toolkit", value, mark, words, ", ".join(toolkit.found_by[:3]) or _sources(release))


def _short_root(root: str) -> str:
    """The folder; of one inside a Python's packages only the part that tells it apart, since the Python stands in the header."""
    _, packages, inside = root.partition("/site-packages/")
    return f"site-packages/{inside}" if packages else root


def _torch_row(report: Report) -> Iterator[StackRow]:
    torch = report.snapshot.python.torch
    if isinstance(torch, Missing):
        yield from _missing_row(report, "torch", "4", torch)
        return
    release = torch.value.torch_version
    mark, words = _verdict(report, "4", _in_area(report, "4"), release if isinstance(release, Missing) else None)
    yield StackRow("torch", ", ".join(_torch_parts(torch.value)), mark, words, _sources(release, torch.value.arch_list))


def _torch_parts(torch: Torch) -> Iterator[str]:
    release, build, targets = torch.torch_version, maybe(torch.build), maybe(torch.arch_list)
    yield release.value if isinstance(release, Known) else f"release unknown ({describe_missing(release)})"
    built_with = maybe(torch.torch_cuda_version)
    if built_with is not None:
        yield f"CUDA {built_with}"
    elif build is not None:
        yield f"{build.value.upper()} build"
    if targets:
        yield f"code for {target_span(targets)}"


def _packages_row(report: Report) -> Iterator[StackRow]:
    """The packages on top of torch whose binaries were read: those that findings concern first."""
    binaries = report.snapshot.binaries
    read = [package for package in maybe(binaries) or () if package.name != "torch" and package.files]
    if not isinstance(binaries, Known) or not read:
        return
    concerning = [finding for finding in report.findings if finding.subject.startswith(PACKAGE)]
    named = {finding.subject.removeprefix(PACKAGE) for finding in concerning if finding.severity is not Severity.NOTE}
    ordered = sorted(read, key=lambda package: package.name not in named)
    shown = [f"{package.name} {package.package_version}".strip() for package in ordered[:MOST_PACKAGES]]
    more = f" and {len(read) - len(shown)} more" if len(read) > len(shown) else ""
    unread = not all(package.complete for package in binaries.value)
    mark, words = _verdict(report, "X", concerning, Missing(MissingReason.TIMEOUT, source=binaries.source) if unread else None)
    yield StackRow("Packages", ", ".join(shown) + more, mark, words, binaries.source)


def _cudnn_row(report: Report) -> Iterator[StackRow]:
    found = _cudnn(report)
    if found is None:
        return
    mentioned = [f for f in _in_area(report, "3") if "cudnn" in f"{f.name} {f.subject}".lower()]
    mark, words = _verdict(report, "3", mentioned)
    yield StackRow("cuDNN", found[0], mark, words, found[1])


def _cudnn(report: Report) -> tuple[str, str] | None:
    """Version and source of the cuDNN in use: what torch says, else the library that the loader picks, else the header."""
    torch, libraries = maybe(report.snapshot.python.torch), report.snapshot.libraries
    if torch is not None and isinstance(torch.cudnn_version, Known):
        return str(torch.cudnn_version.value), torch.cudnn_version.source
    for copy in _cudnn_copies(libraries):
        if isinstance(copy.library_version, Known):
            return str(copy.library_version.value), copy.path
    for header in maybe(libraries.cudnn_headers) or ():
        return f"{header.cudnn_version} (header only)", header.path
    return None


def _cudnn_copies(libraries: Libraries) -> Iterable[LibraryCopy]:
    copies = (copy for copy in maybe(libraries.copies) or () if copy.soname.startswith(("libcudnn.so", "cudnn64_")))
    return sorted(copies, key=lambda copy: not copy.wins)


def _nccl_row(report: Report) -> Iterator[StackRow]:
    torch = maybe(report.snapshot.python.torch)
    several = len(maybe(report.snapshot.gpus) or ()) > 1
    if torch is not None and several and isinstance(torch.nccl_version, Known):
        mentioned = [f for f in _in_area(report, "3") if "nccl" in f"{f.name} {f.subject}".lower()]
        mark, words = _verdict(report, "3", mentioned)
        yield StackRow("NCCL", str(torch.nccl_version.value), mark, words, torch.nccl_version.source)


def _container_row(report: Report) -> Iterator[StackRow]:
    container = report.snapshot.container
    if not isinstance(container.kind, Known):
        return
    parts = [container.kind.value]
    injected = maybe(container.injected_libraries)
    if injected:
        parts.append(f"{len(injected)} driver libraries mounted in")
    mark, words = _verdict(report, "6", _in_area(report, "6"))
    yield StackRow("Container", ", ".join(parts), mark, words, container.kind.source)


def _wsl_row(report: Report) -> Iterator[StackRow]:
    wsl = report.snapshot.wsl
    if not isinstance(wsl.wsl_version, Known):
        return
    build = maybe(wsl.windows_build)
    value = f"WSL{wsl.wsl_version.value}" + (f", Windows build {build}" if build else "")
    mark, words = _verdict(report, "6", _in_area(report, "6"))
    yield StackRow("WSL", value, mark, words, wsl.wsl_version.source)


def _environment_row(report: Report) -> Iterator[StackRow]:
    """The variables that are set, only where a finding is about one of them."""
    concerning = [finding for finding in _in_area(report, "7") if finding.severity is not Severity.NOTE]
    if concerning:
        environment = report.snapshot.environment
        mark, words = _verdict(report, "7", concerning)
        names = sorted(maybe(environment) or ())
        yield StackRow("Variables", ", ".join(names) or "none read", mark, words, _sources(environment))
