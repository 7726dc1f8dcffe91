"""Snapshots and reports to JSON and back: the version types travel as their text."""

import codecs
import re
from typing import Any, TypeVar

import msgspec

from cudadoctor.model.versions import (
    ComputeCapability,
    CudaVersion,
    DottedVersion,
    DriverRelease,
    Ordered,
    PtxIsa,
    SmTarget,
    VersionError,
)

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")

TEXT_TYPES: tuple[type[Ordered], ...] = (DriverRelease, CudaVersion, ComputeCapability, SmTarget, PtxIsa, DottedVersion)
"""The types that JSON holds as text."""


class DocumentError(ValueError):
    """The JSON is not a document of the wanted kind; the text says where it departs from it."""


def _encode(value: Any) -> Any:
    if isinstance(value, TEXT_TYPES):
        return str(value)
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, TEXT_TYPES) and isinstance(value, str):
        try:
            return kind.parse(value)
        except VersionError as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"expected the text of a {kind.__name__}, got {value!r:.80}")


def to_builtins(document: Any) -> Any:
    """The document as plain dicts, lists and scalars, keys in the order of the model's fields."""
    return msgspec.to_builtins(document, enc_hook=_encode)


def from_builtins(tree: Any, kind: type[T]) -> T:
    """The document of type `kind` that `to_builtins` took apart; raises DocumentError, naming the place, where it is none."""
    try:
        return msgspec.convert(tree, kind, dec_hook=_decode)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(str(error)) from error


def to_compact_json(document: Any) -> bytes:
    """The document as JSON in one line, for a stream of documents; bytes of a file name that are not UTF-8 become `\\xNN`."""
    try:
        return msgspec.json.encode(document, enc_hook=_encode)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(to_builtins(document)))


def to_json(document: Any) -> bytes:
    """The document as one indented JSON text."""
    return msgspec.json.format(to_compact_json(document), indent=2)


def _without_surrogates(tree: Any) -> Any:
    """The tree with each undecodable byte (which Python carries as a lone surrogate) spelled out."""
    if isinstance(tree, str):
        return spell_out_bytes(tree)
    if isinstance(tree, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_without_surrogates(item) for item in tree]
    return tree


def spell_out_bytes(text: str) -> str:
    """The text with undecodable bytes as `\\xNN` and other lone surrogates as `\\uNNNN`: always encodable."""
    return _SURROGATE.sub(lambda match: _spelled(ord(match[0])), text)


def _spelled(surrogate: int) -> str:
    return f"\\x{surrogate - 0xDC00:02x}" if 0xDC80 <= surrogate <= 0xDCFF else f"\\u{surrogate:04x}"


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The document of type `kind` in `data`; raises DocumentError, naming the place, where it is none."""
    try:
        return msgspec.json.decode(_as_utf8(data), type=kind, dec_hook=_decode)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise DocumentError(str(error)) from error


def _as_utf8(data: bytes | str) -> bytes | str:
    """Without the marks that Windows tools write: PowerShell 5 redirects a program's output into UTF-16."""
    if isinstance(data, bytes) and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    return data.removeprefix(codecs.BOM_UTF8) if isinstance(data, bytes) else data
