"""What the binaries of installed packages hold and would load, as it was read: GPU code by module, libraries by name."""

from enum import Enum

from msgspec import Struct

from cudadoctor.model.versions import PtxIsa, SmTarget


class Place(Enum):
    """Where in the file a module lies, which decides how it is loaded."""

    REGISTERED = "registered"
    """In `.nv_fatbin`: loaded when one of its kernels is launched."""
    RELOCATABLE = "relocatable"
    """In `__nv_relfatbin`: input of the device linker, not loaded by itself."""
    DATA = "data"
    """In another data section: loaded, or not, by the library's own code."""
    LOOSE = "loose"
    """A cubin without a container in a data section: likewise."""
    FILE = "file"
    """The file is GPU code itself (.fatbin, .cubin, .ptx)."""


class Code(Struct, frozen=True, omit_defaults=True):
    """Code for one target; `target` is None where its kind or architecture is not known to this release."""

    target: SmTarget | None
    ptx_isa: PtxIsa | None = None


class ModuleGroup(Struct, frozen=True, omit_defaults=True):
    """`count` modules that carry the same code and lie in the same kind of place."""

    place: Place
    code: tuple[Code, ...]
    count: int = 1
    is_tiny: bool = False
    is_complete: bool = True
    is_device_linked: bool = False


class Wanted(Enum):
    """How a file names a library."""

    NEEDED = "needed"
    MAY_DLOPEN = "may-dlopen"
    """Its text has the name; whether and when it is loaded is not known."""


class LibraryUse(Struct, frozen=True, omit_defaults=True):
    """One library that a file wants. `path` is None where nothing of that name would be found."""

    name: str
    wanted: Wanted
    requester: str
    path: str | None = None
    via: str = ""
    shadowed: tuple[str, ...] = ()
    """Other copies of that name further down the search."""
    rejected: tuple[str, ...] = ()
    """Files of that name that the loader does not take, with the reason."""


class LibraryProblemKind(Enum):
    """What is wrong with what would be loaded."""

    MISSING = "missing"
    MISSING_SYMBOL_VERSION = "missing-symbol-version"
    SEVERAL_CUDA_MAJORS = "several-cuda-majors"
    MIXED_CUDNN = "mixed-cudnn"
    """The parts of cuDNN come from different folders."""


class LibraryProblem(Struct, frozen=True):
    """One problem, its libraries and the sentence that says it."""

    kind: LibraryProblemKind
    libraries: tuple[str, ...]
    what: str


class MissingLibrary(Struct, frozen=True, omit_defaults=True):
    """A CUDA library that the loader would not find for a file; for an extension of torch, that torch does not bring either."""

    name: str
    requester: str
    wanted: Wanted = Wanted.NEEDED
    elsewhere: tuple[str, ...] = ()
    """Copies in folders where CUDA libraries usually lie: a program that loads them by path finds them there."""


class BinaryFile(Struct, frozen=True, omit_defaults=True):
    """One file of a package that has GPU code or needs CUDA libraries; size in bytes."""

    path: str
    size: int
    modules: tuple[ModuleGroup, ...] = ()
    needed: tuple[str, ...] = ()
    """All libraries that it names as needed, CUDA's and torch's only."""
    missing: tuple[MissingLibrary, ...] = ()
    shadowing: tuple[LibraryUse, ...] = ()
    """CUDA libraries that LD_LIBRARY_PATH puts in front of the copies that the file would else load."""
    problems: tuple[LibraryProblem, ...] = ()
    """What else is wrong with the libraries that it would load, missing ones apart."""
    assembles: tuple[SmTarget, ...] = ()
    """Of a ptxas: the targets that it may know; it certainly knows no other."""
    unread: str = ""
    """Why the file could not be read, or not to its end; the modules are then what was read."""


class BinaryPackage(Struct, frozen=True, omit_defaults=True):
    """An installed package with such files; `complete` is False where time ran out, or its files are not known."""

    name: str
    files: tuple[BinaryFile, ...]
    complete: bool = True
    package_version: str = ""
    """From the name of its metadata folder."""
