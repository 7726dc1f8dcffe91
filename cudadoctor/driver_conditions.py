"""Reads NVIDIA_REQUIRE_CUDA and its like as the container runtime does, and says whether a driver and GPU satisfy them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cudadoctor.matrices.gpu_names import Segment
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease, VersionError

MAX_ALTERNATIVES = 2_000
CONDITION = re.compile(r"^(cuda|driver|arch|brand)(>=|<=|!=|==|=|>|<)([\w.]{1,40})$")
RELATIONS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ">=": operator.ge,
        "<=": operator.le,
        "!=": operator.ne,
        "==": operator.eq,
        "=": operator.eq,
        ">": operator.gt,
        "<": operator.lt,
    }
)
BRANDS: Mapping[Segment, frozenset[str]] = MappingProxyType(
    {
        Segment.GEFORCE: frozenset({"geforce", "geforcertx", "titan", "titanrtx"}),
        Segment.DATA_CENTER: frozenset({"tesla", "nvidia"}),
        Segment.WORKSTATION: frozenset({"quadro", "quadrortx", "nvidiartx"}),
    }
)
"""The brands that NVML gives to the products of a market (nvml.h, nvmlBrandType_t)."""
TRUE_WORDS = frozenset({"1", "t", "true"})


@dataclass(frozen=True, slots=True)
class Machine:
    """What the conditions are about; None where it is not known."""

    driver: DriverRelease | None = None
    cuda: CudaVersion | None = None
    capability: ComputeCapability | None = None
    segment: Segment = Segment.UNKNOWN


def satisfied(value: str, machine: Machine) -> bool | None:
    """Whether one of the alternatives holds (a blank is OR, a comma AND); None where that depends on what is not known."""
    alternatives = value.split(None, MAX_ALTERNATIVES)
    answers = [_all(alternative.split(","), machine) for alternative in alternatives[:MAX_ALTERNATIVES]]
    if not answers or True in answers:
        return True
    return None if None in answers or len(alternatives) > MAX_ALTERNATIVES else False


def _all(conditions: list[str], machine: Machine) -> bool | None:
    answers = [_one(condition, machine) for condition in conditions if condition]
    if False in answers:
        return False
    return None if None in answers else True


def _one(condition: str, machine: Machine) -> bool | None:
    match = CONDITION.match(condition.strip().strip("\"'"))
    if match is None:
        return None
    name, relation, wanted = match.groups()
    if name == "brand":
        brands = BRANDS.get(machine.segment)
        return None if brands is None else RELATIONS[relation](wanted in brands, True)
    try:
        have, want = _compared(name, wanted, machine)
    except VersionError:
        return None
    return None if have is None else RELATIONS[relation](have, want)


def _compared(name: str, wanted: str, machine: Machine) -> tuple[object, object]:
    if name == "cuda":
        return machine.cuda, CudaVersion.parse(wanted if "." in wanted else f"{wanted}.0")
    if name == "arch":
        return machine.capability, ComputeCapability.parse(wanted)
    return machine.driver, DriverRelease.parse(wanted)


def requirements_of(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables of the family that hold conditions; nothing where the image switches the check off."""
    if environment.get("NVIDIA_DISABLE_REQUIRE", "").strip().lower() in TRUE_WORDS:
        return ()
    return tuple(
        (name, value) for name, value in sorted(environment.items()) if name.startswith("NVIDIA_REQUIRE_") and value.strip()
    )
