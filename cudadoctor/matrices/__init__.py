"""The compatibility matrices: data files in matrices/, read into typed rows that answer questions."""

from cudadoctor.matrices.catalog import Matrices
from cudadoctor.matrices.platforms import DriverPlatform, WheelPlatform
from cudadoctor.matrices.source import MatrixError, Provenance, Verified

__all__ = ["DriverPlatform", "Matrices", "MatrixError", "Provenance", "Verified", "WheelPlatform"]
