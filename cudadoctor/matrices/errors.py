"""Answers about errors: CUDA runtime and driver codes, NVML codes, nvidia-smi texts, Xids, library symptoms."""

from __future__ import annotations

from datetime import date
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.source import Document, Note, Order, Provenance, Row, Schema, Verified


class CudaError(Struct, frozen=True):
    """One code of the runtime and driver API, which share their numbers since CUDA 10.1."""

    code: int
    runtime_name: str | None
    """`cudaErrorNoKernelImageForDevice`; None where the runtime has no such code."""
    driver_name: str | None
    """`CUDA_ERROR_NO_BINARY_FOR_GPU`; None where the driver API has no such code."""
    message: str | None
    seen_as: tuple[str, ...]
    """Texts that frameworks print for it."""
    causes: tuple[str, ...]
    """Likeliest first."""
    checks: tuple[str, ...]
    fixes: tuple[str, ...]
    verified_advice: Verified | None
    origin: Provenance

    @property
    def name(self) -> str:
        """The driver's name, or the runtime's where the driver has none."""
        return self.driver_name or self.runtime_name or str(self.code)


class NvmlError(Struct, frozen=True):
    """One return code of NVML."""

    code: int
    message: str
    causes: tuple[str, ...]
    fixes: tuple[str, ...]
    origin: Provenance


class SmiMessage(Struct, frozen=True):
    """A text that nvidia-smi prints instead of its table."""

    message: str
    exit_code: int
    cause: str
    verified_exit_code: Verified | None
    origin: Provenance


class SmiExit(Struct, frozen=True):
    """One exit code of nvidia-smi."""

    code: int
    meaning: str
    origin: Provenance


class Xid(Struct, frozen=True):
    """One Xid, the error number that the kernel driver logs."""

    number: int
    name: str | None
    description: str | None
    """The catalogue's words."""
    meaning: str | None
    likely: str | None
    """Whose fault it is: application, driver, hardware."""
    action: str | None
    immediate_action: str | None
    """The catalogue's word, e.g. RESTART_APP; `action_word` explains it."""
    investigatory_action: str | None
    verified_advice: Verified | None
    verified_catalogue: Verified | None
    source_advice: str | None
    origin: Provenance


class ActionWord(Struct, frozen=True):
    """What an action word of the Xid catalogue asks for."""

    word: str
    meaning: str
    origin: Provenance


class Symptom(Struct, frozen=True):
    """A text of a loader, compiler or framework, its cause and fix."""

    text: str
    cause: str
    fix: str
    origin: Provenance


class ErrorMatrix(Struct, frozen=True, dict=True):
    """matrices/cuda_errors.toml."""

    title: str
    as_of: date
    codes: tuple[CudaError, ...]
    nvml_codes: tuple[NvmlError, ...]
    smi_messages: tuple[SmiMessage, ...]
    smi_exits: tuple[SmiExit, ...]
    xids: tuple[Xid, ...]
    action_words: tuple[ActionWord, ...]
    symptoms: tuple[Symptom, ...]
    notes: tuple[Note, ...]

    @cached_property
    def _codes(self) -> dict[int, CudaError]:
        return {row.code: row for row in self.codes}

    @cached_property
    def _names(self) -> dict[str, CudaError]:
        return {name.lower(): row for row in self.codes for name in (row.runtime_name, row.driver_name) if name}

    def by_code(self, code: int) -> CudaError | None:
        """The CUDA error of a number (CUDA 10.1 and later); None: unknown."""
        return self._codes.get(code)

    def by_name(self, name: str) -> CudaError | None:
        """The CUDA error of a runtime or driver name in any case; None: unknown."""
        return self._names.get(name.strip().lower())

    def by_text(self, text: str) -> tuple[CudaError, ...]:
        """The CUDA errors whose message, name or known wording stands in a text; a longer wording comes first."""
        lowered = text.lower()
        found = {}
        for row in self.codes:
            lengths = [len(wording) for wording in _wordings(row) if wording in lowered]
            if lengths:
                found[row.code] = max(lengths)
        return tuple(self._codes[code] for code in sorted(found, key=lambda code: -found[code]))

    def nvml(self, code: int) -> NvmlError | None:
        return next((row for row in self.nvml_codes if row.code == code), None)

    def xid(self, number: int) -> Xid | None:
        return next((row for row in self.xids if row.number == number), None)

    def smi_message(self, text: str) -> SmiMessage | None:
        """The known text that nvidia-smi's output begins with or contains; None: unknown."""
        lowered = text.lower()
        return next((row for row in self.smi_messages if row.message.lower() in lowered), None)

    def smi_exit(self, code: int) -> SmiExit | None:
        return next((row for row in self.smi_exits if row.code == code), None)

    def action_word(self, word: str) -> ActionWord | None:
        return next((row for row in self.action_words if row.word == word), None)


_SHORTEST_WORDING = 12
"""Shorter messages (`no error`, `unknown`) stand in too many texts to tell anything."""


def _wordings(row: CudaError) -> tuple[str, ...]:
    texts = (row.runtime_name, row.driver_name, row.message, *row.seen_as)
    return tuple(text.lower() for text in texts if text and len(text) >= _SHORTEST_WORDING)


def _code(row: Row) -> CudaError:
    return CudaError(
        code=row.integer("code"),
        runtime_name=row.text_or_none("runtime_name"),
        driver_name=row.text_or_none("driver_name"),
        message=row.text_or_none("message"),
        seen_as=row.texts("seen_as"),
        causes=row.texts("causes"),
        checks=row.texts("checks"),
        fixes=row.texts("fixes"),
        verified_advice=row.grade("advice"),
        origin=row.origin(),
    )


def _nvml(row: Row) -> NvmlError:
    return NvmlError(row.integer("code"), row.text("message"), row.texts("causes"), row.texts("fixes"), row.origin())


def _smi(row: Row) -> SmiMessage:
    grade = row.grade("exit_code")
    return SmiMessage(row.text("message"), row.integer("exit_code"), row.text("cause"), grade, row.origin())


def _smi_exit(row: Row) -> SmiExit:
    return SmiExit(row.integer("code"), row.text("meaning"), row.origin())


def _xid(row: Row) -> Xid:
    return Xid(
        number=row.integer("number"),
        name=row.text_or_none("name"),
        description=row.text_or_none("description"),
        meaning=row.text_or_none("meaning"),
        likely=row.text_or_none("likely"),
        action=row.text_or_none("action"),
        immediate_action=row.text_or_none("immediate_action"),
        investigatory_action=row.text_or_none("investigatory_action"),
        verified_advice=row.grade("advice"),
        verified_catalogue=row.grade("catalogue"),
        source_advice=row.text_or_none("source_advice"),
        origin=row.origin(),
    )


def _action(row: Row) -> ActionWord:
    return ActionWord(row.text("word"), row.text("meaning"), row.origin())


def _symptom(row: Row) -> Symptom:
    return Symptom(row.text("text"), row.text("cause"), row.text("fix"), row.origin())


CODES = Schema(_code, lambda row: row.code, Order.ASCENDING)
NVML_CODES = Schema(_nvml, lambda row: row.code, Order.ASCENDING)
SMI_MESSAGES = Schema(_smi, lambda row: row.message)
SMI_EXITS = Schema(_smi_exit, lambda row: row.code, Order.ASCENDING)
XIDS = Schema(_xid, lambda row: row.number, Order.ASCENDING)
ACTION_WORDS = Schema(_action, lambda row: row.word)
SYMPTOMS = Schema(_symptom, lambda row: row.text)


def load(document: Document) -> ErrorMatrix:
    """The matrix in a parsed cuda_errors.toml; raises MatrixError."""
    matrix = ErrorMatrix(
        title=document.title,
        as_of=document.as_of,
        codes=document.table("code", CODES),
        nvml_codes=document.table("nvml", NVML_CODES),
        smi_messages=document.table("nvidia_smi", SMI_MESSAGES),
        smi_exits=document.table("nvidia_smi_exit", SMI_EXITS),
        xids=document.table("xid", XIDS),
        action_words=document.table("action_word", ACTION_WORDS),
        symptoms=document.table("symptom", SYMPTOMS),
        notes=document.notes(),
    )
    document.finish()
    return matrix
