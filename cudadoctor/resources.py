"""Finds the data files that ship with the package: CUDA sources and compatibility matrices."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(in_wheel: str, in_checkout: str) -> Path:
    """The folder inside an installed wheel, else the one of the checkout (editable installs); raises FileNotFoundError."""
    for candidate in (_PACKAGE / in_wheel, _PACKAGE.parent / in_checkout):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"the installation of cudadoctor is incomplete: {_PACKAGE / in_wheel} is missing")


def kernels_folder() -> Path:
    """The folder of the CUDA sources."""
    return _folder("kernels", "kernels")


def matrices_folder() -> Path:
    """The folder of the compatibility matrices (TOML)."""
    return _folder("matrices_data", "matrices")
