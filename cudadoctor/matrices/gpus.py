"""Answers about GPU products: which one a name or PCI id means, its compute capability, memory and peak rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from functools import cached_property, partial
from pathlib import Path

import msgspec
from msgspec import Struct

from cudadoctor.matrices.capabilities import CapabilityMatrix, Limits
from cudadoctor.matrices.gpu_names import Segment, holds_in_order, holds_run, is_shortened, segment_of, words
from cudadoctor.matrices.source import Document, MatrixError, Note, Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import ComputeCapability, VersionError

MAX_ANSWERS = 256
"""Names that are remembered; a fleet has few, a hostile text could bring any number."""


class Peaks(Struct, frozen=True):
    """Nominal dense peak rates at boost clock with fp32 accumulation, in TFLOPS; None where not known."""

    fp32: float | None
    fp16_tensor: float | None
    bf16_tensor: float | None
    fp8_tensor: float | None
    fp4_tensor: float | None
    bandwidth_gb_s: float | None
    verified: Verified | None
    source: str | None


class GpuModel(Struct, frozen=True):
    """One product."""

    name: str
    """The catalogue's name; a bare driver or PCI name where the catalogue has no row."""
    driver_names: tuple[str, ...]
    """What drivers print, where that is not the catalogue's name in other spelling."""
    chip: str
    """Code name; empty where only a driver's name is known."""
    compute_capability: ComputeCapability
    year: int | None
    memory_gb: float | None
    peaks: Peaks
    good_for_roofline: bool
    """Whether the peaks are complete and checked enough for a roofline."""
    verified_cc: Verified | None
    source_cc: str | None
    origin: Provenance

    @property
    def segment(self) -> Segment:
        return segment_of(self.name)


class Chip(Struct, frozen=True):
    """A chip's code name and the compute capability that all its products have."""

    name: str
    compute_capability: ComputeCapability
    origin: Provenance


class PciEntry(Struct, frozen=True):
    """What matrices/gpu_pci_ids.json says about one device id; `name` may join several with ` / `, or be empty."""

    cc: str
    chip: str
    name: str
    driver_names: tuple[str, ...] = ()


class PciMeta(Struct, frozen=True):
    title: str
    as_of: date
    source: str
    source_driver_products: str
    verified: str
    note: str = ""


class PciTable(Struct, frozen=True):
    """matrices/gpu_pci_ids.json: device ids (vendor 10de, four lower-case hex digits) and the names that drivers print."""

    meta: PciMeta
    devices: dict[str, PciEntry]
    driver_products: dict[str, tuple[str, ...]]


class NameIndex(Struct, frozen=True):
    """Products by the words of their names."""

    entries: tuple[tuple[tuple[str, ...], GpuModel], ...]
    exact: dict[tuple[str, ...], tuple[GpuModel, ...]]
    """By sorted words."""

    @classmethod
    def of(cls, named: Iterable[tuple[str, GpuModel]]) -> NameIndex:
        entries = tuple((words(name), model) for name, model in named)
        exact: dict[tuple[str, ...], tuple[GpuModel, ...]] = {}
        for have, model in entries:
            key = tuple(sorted(have))
            if model not in exact.get(key, ()):
                exact[key] = (*exact.get(key, ()), model)
        return cls(entries, exact)


class GpuMatrix(Struct, frozen=True, dict=True):
    """matrices/gpus.toml and gpu_pci_ids.json, with the capabilities they point to."""

    title: str
    as_of: date
    models: tuple[GpuModel, ...]
    chips: tuple[Chip, ...]
    pci: PciTable
    capabilities: CapabilityMatrix
    notes: tuple[Note, ...]

    def by_name(self, text: str) -> tuple[GpuModel, ...]:
        """The products that a name means: exactly that one, else those whose name has it as a part; empty where none.

        Spelling is that of people, catalogues, drivers or an nvidia-smi that cuts names off. Where drivers print one name
        for several chips, each chip has its row.
        """
        wanted = words(text)
        if not wanted:
            return ()
        if is_shortened(text):
            return self._beginning_with(" ".join(wanted))
        return self._exactly(wanted) or self._containing(wanted) or self._without_endings(wanted)

    def _exactly(self, wanted: tuple[str, ...]) -> tuple[GpuModel, ...]:
        """Products with just these words, in any order (catalogues and drivers place `Mobile` differently)."""
        key = tuple(sorted(wanted))
        found: dict[ComputeCapability, list[GpuModel]] = {}
        for index in (self._catalogue, self._driver_names, self._pci_names):
            known = set(found)
            for model in index.exact.get(key, ()):
                if model.compute_capability not in known:
                    found.setdefault(model.compute_capability, []).append(model)
        return tuple(model for models in found.values() for model in models)

    def _containing(self, wanted: tuple[str, ...]) -> tuple[GpuModel, ...]:
        joined = " ".join(wanted)
        return (
            self._where(lambda have: holds_run(have, wanted))
            or self._where(lambda have: joined in " ".join(have))
            or self._where(lambda have: holds_in_order(have, wanted))
        )

    def _without_endings(self, wanted: tuple[str, ...]) -> tuple[GpuModel, ...]:
        """Products for the longest beginning of a driver's name, which may go on with a memory size, form or vGPU profile."""
        for length in range(len(wanted) - 1, 0, -1):
            part = wanted[:length]
            if not any(character.isdigit() for character in "".join(part)):
                break
            found = self._exactly(part) or self._where(partial(holds_run, part=part))
            if found:
                return found
        return ()

    def _beginning_with(self, start: str) -> tuple[GpuModel, ...]:
        return self._where(lambda have: " ".join(have).startswith(start))

    def _where(self, matches: Callable[[tuple[str, ...]], bool]) -> tuple[GpuModel, ...]:
        """Matching products of the catalogue, else of the drivers' own names (the PCI list has too many code names)."""
        for index in (self._catalogue, self._driver_names):
            found = tuple(dict.fromkeys(model for have, model in index.entries if matches(have)))
            if found:
                return found
        return ()

    @cached_property
    def _catalogue(self) -> NameIndex:
        return NameIndex.of((name, model) for model in self.models for name in (model.name, *model.driver_names))

    @cached_property
    def _driver_names(self) -> NameIndex:
        meta = self.pci.meta
        origin = Provenance(meta.source_driver_products, meta.as_of, Verified.MECHANICAL)
        return NameIndex.of((name, _bare(name, "", cc, origin)) for name, ccs in self.pci.driver_products.items() for cc in ccs)

    @cached_property
    def _pci_names(self) -> NameIndex:
        return NameIndex.of(
            (name, _bare(name, entry.chip, entry.cc, self._pci_origin))
            for entry in self.pci.devices.values()
            for name in entry.name.split(" / ")
            if name
        )

    @cached_property
    def _pci_origin(self) -> Provenance:
        return Provenance(self.pci.meta.source, self.pci.meta.as_of, Verified.MECHANICAL)

    def compute_capability_of(self, name: str) -> ComputeCapability | None:
        """The compute capability of a product name; None where no product or several capabilities have it."""
        ccs = self.compute_capabilities_of(name)
        return ccs[0] if len(ccs) == 1 else None

    def compute_capabilities_of(self, name: str) -> tuple[ComputeCapability, ...]:
        """All compute capabilities that a product name leaves, in order."""
        answers = self._answers
        if name not in answers:
            if len(answers) >= MAX_ANSWERS:
                answers.clear()
            answers[name] = tuple(sorted({model.compute_capability for model in self.by_name(name)}))
        return answers[name]

    @cached_property
    def _answers(self) -> dict[str, tuple[ComputeCapability, ...]]:
        """Names asked for already: each rule asks again for the GPUs of one machine, and a name costs a walk of the catalogue."""
        return {}

    def by_pci_id(self, device: str) -> GpuModel | None:
        """The product of a PCI device id (`0x2684`, `2684` or `10de:2684`); None where it is not in the list."""
        key = device.lower().removeprefix("10de:").removeprefix("0x")
        entry = self.pci.devices.get(key)
        if entry is None:
            return None
        for name in (*entry.driver_names, *entry.name.split(" / ")):
            wanted = words(name) if name else ()
            for model in self._catalogue.exact.get(tuple(sorted(wanted)), ()):
                if str(model.compute_capability) == entry.cc:
                    return model
        return _bare(entry.driver_names[0] if entry.driver_names else entry.name, entry.chip, entry.cc, self._pci_origin)

    def chip(self, name: str) -> Chip | None:
        """The row of a chip's code name such as GA102; None where it is not known."""
        return next((row for row in self.chips if row.name == name.upper()), None)

    def limits(self, cc: ComputeCapability) -> Limits | None:
        return self.capabilities.limits(cc)

    def architecture_name(self, cc: ComputeCapability) -> str | None:
        return self.capabilities.architecture_name(cc)

    def all_ccs(self) -> tuple[ComputeCapability, ...]:
        return self.capabilities.all_ccs()

    def peaks(self, name: str) -> Peaks | None:
        """The peak rates of exactly one product; None where the name leaves several sets of peaks, or none."""
        found = {model.peaks for model in self.by_name(name)}
        return next(iter(found)) if len(found) == 1 else None


_NO_PEAKS = Peaks(None, None, None, None, None, None, None, None)


def _bare(name: str, chip: str, cc: str, origin: Provenance) -> GpuModel:
    return GpuModel(name, (), chip, ComputeCapability.parse(cc), None, None, _NO_PEAKS, False, None, None, origin)


def _peaks(row: Row) -> Peaks:
    return Peaks(
        fp32=row.number_or_none("fp32_tflops"),
        fp16_tensor=row.number_or_none("fp16_dense_tflops"),
        bf16_tensor=row.number_or_none("bf16_dense_tflops"),
        fp8_tensor=row.number_or_none("fp8_dense_tflops"),
        fp4_tensor=row.number_or_none("fp4_dense_tflops"),
        bandwidth_gb_s=row.number_or_none("bandwidth_gb_s"),
        verified=row.grade("peak"),
        source=row.text_or_none("source_peak"),
    )


def _model(row: Row) -> GpuModel:
    return GpuModel(
        name=row.text("name"),
        driver_names=row.texts("driver_names"),
        chip=row.text("chip"),
        compute_capability=row.parsed("cc", ComputeCapability.parse),
        year=row.integer_or_none("year"),
        memory_gb=row.number_or_none("memory_gb"),
        peaks=_peaks(row),
        good_for_roofline=row.flag_or_none("roofline") or False,
        verified_cc=row.grade("cc"),
        source_cc=row.text_or_none("source_cc"),
        origin=row.origin(),
    )


def _chip(row: Row) -> Chip:
    return Chip(row.text("chip"), row.parsed("cc", ComputeCapability.parse), row.origin())


MODELS = Schema(_model, lambda row: row.name, Order.ASCENDING, order_by=lambda row: row.compute_capability)
CHIPS = Schema(_chip, lambda row: row.name, Order.ASCENDING, order_by=lambda row: row.compute_capability)


def load(document: Document, pci: PciTable, capabilities: CapabilityMatrix) -> GpuMatrix:
    """The matrix in a parsed gpus.toml and the PCI list; raises MatrixError."""
    matrix = GpuMatrix(
        title=document.title,
        as_of=document.as_of,
        models=document.table("gpu", MODELS),
        chips=document.table("chip", CHIPS),
        pci=pci,
        capabilities=capabilities,
        notes=document.notes(),
    )
    document.finish()
    return matrix


def read_pci(path: Path) -> PciTable:
    """The PCI list in a JSON file; raises MatrixError."""
    try:
        table = msgspec.json.decode(path.read_bytes(), type=PciTable)
        for entry in table.devices.values():
            ComputeCapability.parse(entry.cc)
        for ccs in table.driver_products.values():
            tuple(ComputeCapability.parse(cc) for cc in ccs)
    except OSError as error:
        raise MatrixError(f"{path.name}: cannot be read: {error}") from error
    except (msgspec.DecodeError, VersionError) as error:
        raise MatrixError(f"{path.name}: {error}") from error
    return table
