"""Model values with every field filled, built from the types themselves, so that a new field is covered when it is added."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from cudadoctor.model.codec import TEXT_TYPES
from cudadoctor.model.fact import Known, Missing, MissingReason, OtherSource
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, PtxIsa, SmTarget

TEXTS = {
    DriverRelease: "580.65.06",
    CudaVersion: "12.6.85",
    ComputeCapability: "12.0",
    SmTarget: "sm_100f",
    PtxIsa: "8.7",
    DottedVersion: "9.1.0rc1+x",
}
SCALARS: dict[Any, Any] = {
    str: 'é "quoted" \\ \n text',
    int: 2**53 + 1,
    float: 0.1,
    bool: True,
    Any: [1, "two", None, {"k": 3.5}],
}


def filled(kind: Any, *, missing: bool = False) -> Any:
    """A value of a type with every field set to something that is not its default; each fact missing where asked."""
    if kind in SCALARS:
        return SCALARS[kind]
    if isinstance(kind, type) and issubclass(kind, TEXT_TYPES):
        return kind.parse(TEXTS[kind])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: filled(hints[field.name], missing=missing) for field in fields(kind)})
    return _filled_generic(kind, missing=missing)


def _filled_generic(kind: Any, *, missing: bool) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Known:
        others = (OtherSource("other", "else"),)
        return Known(filled(arguments[0], missing=missing), "a source", line=7, others=others)
    if origin in (typing.Union, types.UnionType):
        if Missing in arguments and missing:
            return Missing(MissingReason.TIMEOUT, "no answer", "a source")
        return filled(next(a for a in arguments if a is not type(None) and a is not Missing), missing=missing)
    if origin is tuple:
        return (filled(arguments[0], missing=missing),)
    if origin is dict:
        return {"KEY": filled(arguments[1], missing=missing)}
    if origin is typing.Literal:
        return arguments[0]
    raise TypeError(f"no sample for {kind}")


def paths_of_defaults(value: Any, path: str = "") -> list[str]:
    """Where in a value a field still has its default: nowhere, if it is filled."""
    if isinstance(value, (tuple, list)):
        return [found for item in value for found in paths_of_defaults(item, path)]
    if not isinstance(value, Struct):
        return []
    found = []
    for field in fields(type(value)):
        here = f"{path}.{field.name}"
        item = getattr(value, field.name)
        if field.default is not NODEFAULT and item == field.default and item is not True and field.name != "schema":
            found.append(here)
        found.extend(paths_of_defaults(item, here))
    return found
