"""The pieces of GPU code that a file carries: entries (one target each) in modules (one compilation unit each)."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from cudadoctor.model.binaries import Place
from cudadoctor.model.versions import PtxIsa, SmTarget

TINY_SASS, TINY_PTX = 2300, 80
"""Unpacked bytes below which an image is likely a stub without kernels: constants, device-link leftovers, a compiler's default
architecture. A hint, not a proof: nvcc 13.0 makes 1,464 to 1,960 bytes of SASS (56 of PTX) of a file without kernels and 2,856
(92) of an empty kernel; in cuDNN and others stubs have 0.7-5.3 kB and one-kernel cubins at least 2.5 kB."""


PTX_KIND, SASS_KIND, LTO_KIND = 1, 2, 8
"""Values of an entry's kind field."""
UNKNOWN_LABEL = "unknown"


class Compression(Enum):
    """How the payload of an entry is stored."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    SCRAMBLED = "scrambled"
    """LTO-IR of CUDA 13: flagged as zstd, but no zstd frame."""


class Entry(Struct, frozen=True, gc=False):
    """Code for one target. `target` is None where the kind or architecture is unknown; sizes in bytes.

    `label` is the same for all entries of one target and PTX version: cheap to group thousands of modules by.
    """

    target: SmTarget | None
    ptx_isa: PtxIsa | None
    label: str
    kind_number: int
    compression: Compression
    offset: int
    stored_size: int
    unpacked_size: int


class Module(Struct, frozen=True, gc=False):
    """One container, loaded as a whole or not at all. `complete` is False where its headers run out of the file.

    `device_linked`: the result of a device link (nvcc -rdc=true) of the relocatable modules of the same file.
    """

    place: Place
    section: str
    offset: int
    size: int
    entries: tuple[Entry, ...]
    complete: bool = True
    device_linked: bool = False

    @property
    def is_tiny(self) -> bool:
        """True where every image is so small that the module is probably a stub without kernels."""
        largest = max((entry.unpacked_size for entry in self.entries if entry.kind_number == SASS_KIND), default=-1)
        if largest >= 0:
            return largest < TINY_SASS
        return all(entry.kind_number == PTX_KIND and entry.unpacked_size < TINY_PTX for entry in self.entries)
