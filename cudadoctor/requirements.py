"""`--require`: conditions that a machine has to meet, such as `cc>=8.0,driver>=550,torch>=2.6`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, VersionError


class RequirementError(ValueError):
    """A condition cannot be read; the text says which and how it should look."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that can be required: how its value is written, and where a snapshot has it."""

    parse: Callable[[str], Any]
    read: Callable[[Snapshot], Fact[Any]]
    meaning: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition."""

    name: str
    relation: str
    wanted: str

    @property
    def text(self) -> str:
        """As it was written, `cc>=8.0`."""
        return f"{self.name}{self.relation}{self.wanted}"

    @property
    def fact(self) -> Callable[[Snapshot], Fact[Any]]:
        """Where a snapshot has the value."""
        return QUANTITIES[self.name].read

    def holds(self, value: Any) -> bool:
        """Does this value meet the condition? Of several values, does one?"""
        wanted = QUANTITIES[self.name].parse(self.wanted)
        values = value if isinstance(value, Several) else (value,)
        return any(RELATIONS[self.relation](each, wanted) for each in values)


class Several(tuple[Any, ...]):
    """Values of which one has to meet a condition."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self)) or "none"


RELATIONS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
)
_CONDITION = re.compile(r"\s{0,8}([a-z_]{1,20})\s{0,8}(>=|<=|==|!=|>|<)\s{0,8}([0-9][0-9A-Za-z.+_]{0,30})\s{0,8}")


def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """The conditions of a comma-separated list; raises RequirementError."""
    return tuple(_requirement(part) for part in text.split(",") if part.strip())


def _requirement(text: str) -> Requirement:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise RequirementError(f"cannot read the requirement {text.strip()[:60]!r}; write it like driver>=550")
    name, relation, wanted = match.groups()
    if name not in QUANTITIES:
        raise RequirementError(f"nothing is called {name!r}; what can be required: {', '.join(QUANTITIES)}")
    try:
        QUANTITIES[name].parse(wanted)
    except (VersionError, ValueError) as error:
        raise RequirementError(f"{text.strip()[:60]!r}: {error}") from error
    return Requirement(name, relation, wanted)


def _lowest_capability(snapshot: Snapshot) -> Fact[ComputeCapability]:
    """The lowest compute capability of the GPUs: what every one of them has at least."""
    if isinstance(snapshot.gpus, Missing):
        return snapshot.gpus
    facts = [gpu.compute_capability for gpu in snapshot.gpus.value]
    unknown = next((fact for fact in facts if isinstance(fact, Missing)), None)
    if unknown is not None or not facts:
        return unknown or Missing(MissingReason.NOT_FOUND, "no GPU")
    known = [fact for fact in facts if isinstance(fact, Known)]
    return min(known, key=lambda fact: fact.value)


def _capabilities(snapshot: Snapshot) -> Fact[Several]:
    """The compute capability of each GPU."""
    if isinstance(snapshot.gpus, Missing):
        return snapshot.gpus
    facts = [gpu.compute_capability for gpu in snapshot.gpus.value]
    unknown = next((fact for fact in facts if isinstance(fact, Missing)), None)
    if unknown is not None:
        return unknown
    return Known(Several(fact.value for fact in facts if isinstance(fact, Known)), snapshot.gpus.source, snapshot.gpus.line)


def _gpu_count(snapshot: Snapshot) -> Fact[int]:
    gpus = snapshot.gpus
    return gpus if isinstance(gpus, Missing) else Known(len(gpus.value), gpus.source, gpus.line)


def _toolkit_version(snapshot: Snapshot) -> Fact[CudaVersion]:
    if isinstance(snapshot.toolkits, Missing):
        return snapshot.toolkits
    chosen = [toolkit for toolkit in snapshot.toolkits.value if toolkit.chosen_for_builds]
    return chosen[0].toolkit_version if chosen else Missing(MissingReason.NOT_FOUND, "no toolkit would be chosen for builds")


def _of_torch(read: Callable[[Any], Fact[Any]]) -> Callable[[Snapshot], Fact[Any]]:
    def fact(snapshot: Snapshot) -> Fact[Any]:
        torch = snapshot.python.torch
        return torch if isinstance(torch, Missing) else read(torch.value)

    return fact


def _release(fact: Fact[str]) -> Fact[DottedVersion]:
    """The number of torch's version, without its local part."""
    if isinstance(fact, Missing):
        return fact
    try:
        return Known(DottedVersion.parse(fact.value.partition("+")[0]), fact.source, fact.line)
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), fact.source)


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        "cc": Quantity(ComputeCapability.parse, _lowest_capability, "lowest compute capability of the GPUs"),
        "gpu": Quantity(ComputeCapability.parse, _capabilities, "compute capability of the GPUs"),
        "gpus": Quantity(int, _gpu_count, "number of GPUs"),
        "driver": Quantity(DriverRelease.parse, lambda s: s.driver.driver_release, "driver release"),
        "driver_cuda": Quantity(CudaVersion.parse, lambda s: s.driver.driver_cuda_version, "newest CUDA the driver supports"),
        "toolkit": Quantity(CudaVersion.parse, _toolkit_version, "toolkit that builds would use"),
        "python": Quantity(DottedVersion.parse, lambda s: s.python.python_version, "examined Python"),
        "torch": Quantity(DottedVersion.parse, _of_torch(lambda torch: _release(torch.torch_version)), "torch"),
        "torch_cuda": Quantity(CudaVersion.parse, _of_torch(lambda torch: torch.torch_cuda_version), "CUDA of torch"),
        "cudnn": Quantity(DottedVersion.parse, _of_torch(lambda torch: torch.cudnn_version), "cuDNN that torch uses"),
        "glibc": Quantity(DottedVersion.parse, lambda s: s.host.glibc, "glibc"),
    }
)
"""What can be required, by its name on the command line."""
