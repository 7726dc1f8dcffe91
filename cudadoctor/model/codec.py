"""Snapshots and reports to JSON and back: the version types travel as their text."""

from typing import Any, TypeVar

import msgspec

from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, PtxIsa, SmTarget, VersionError

T = TypeVar("T")

_TEXT_TYPES = (DriverRelease, CudaVersion, ComputeCapability, SmTarget, PtxIsa, DottedVersion)


class DocumentError(ValueError):
    """The JSON is not a document of the wanted kind; the text says where it departs from it."""


def _encode(value: Any) -> Any:
    if isinstance(value, _TEXT_TYPES):
        return str(value)
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def _decode(kind: type, value: Any) -> Any:
    if kind in _TEXT_TYPES and isinstance(value, str):
        try:
            return kind.parse(value)  # type: ignore[attr-defined]  # every type in _TEXT_TYPES has parse
        except VersionError as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"expected the text of a {kind.__name__}, got {value!r:.80}")


def to_builtins(document: Any) -> Any:
    """The document as plain dicts, lists and scalars, keys in the order of the model's fields."""
    return msgspec.to_builtins(document, enc_hook=_encode)


def to_json(document: Any) -> bytes:
    """The document as one indented JSON text."""
    return msgspec.json.format(msgspec.json.encode(document, enc_hook=_encode), indent=2)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The document of type `kind` in `data`; raises DocumentError, naming the place, where it is none."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DocumentError(str(error)) from error


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of a document type."""
    return msgspec.json.schema(kind, schema_hook=lambda part: {"type": "string", "description": f"A {part.__name__} as text"})
