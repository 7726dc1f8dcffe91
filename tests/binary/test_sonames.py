from __future__ import annotations

import pytest

from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.matrices.catalog import Matrices


def test_knows_every_library_of_the_matrix() -> None:
    matrix = Matrices.load().sonames
    names = [row.soname for row in matrix.cuda] + [name for row in matrix.other for name in row.sonames]
    assert names
    assert [name for name in names if not is_nvidia(name)] == []


@pytest.mark.parametrize(
    "name", ["libc.so.6", "libtorch_cuda.so", "libcurl.so.4", "libcurses.so", "libcupsfilters.so.1", "libncurses.so.6"]
)
def test_other_libraries(name: str) -> None:
    assert not is_nvidia(name)
