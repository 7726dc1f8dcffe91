"""The shipped matrices, read once for all tests here."""

import pytest

from cudadoctor.matrices import Matrices


@pytest.fixture(scope="session")
def matrices() -> Matrices:
    return Matrices.load()
