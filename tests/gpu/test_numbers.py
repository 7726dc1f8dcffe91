from __future__ import annotations

import math
import random
import struct

import pytest

from cudadoctor.gpu.numbers import F16, F32, NAN_BYTE, Precision, decode, random_bytes


@pytest.mark.parametrize("precision", [F32, F16])
def test_values_lie_in_their_two_binades(precision: Precision) -> None:
    for top, low, high in ((precision.small_top, 0.125, 0.5), (precision.large_top, 0.5, 2.0)):
        values = decode(random_bytes(random.Random(1), 4000, precision, top), precision)
        assert len(values) == 4000
        assert all(low <= abs(value) < high for value in values)
        assert 0.2 < sum(value < 0 for value in values) / 4000 < 0.3, "a quarter is negative"
        assert len(set(values)) > 1500, "mantissas are random"


def test_mantissas_are_full() -> None:
    """Inputs that tf32 or fp16 could hold would hide a computation in less than fp32."""
    values = decode(random_bytes(random.Random(1), 1000, F32, F32.small_top), F32)
    assert sum(math.frexp(value)[0] * 2**11 % 1 != 0 for value in values) > 990


def test_decoding_is_exact() -> None:
    numbers = [0.0, -1.5, 65504.0, 2.0**-24]
    assert list(decode(struct.pack("<4e", *numbers), F16)) == numbers
    assert list(decode(struct.pack("<4f", *numbers), F32)) == numbers


@pytest.mark.parametrize("precision", [F32, F16])
def test_the_fill_is_nan(precision: Precision) -> None:
    assert all(math.isnan(value) for value in decode(NAN_BYTE * 64, precision))


@pytest.mark.parametrize("precision", [F32, F16])
def test_unit_roundoff_is_that_of_the_format(precision: Precision) -> None:
    code = {2: "<e", 4: "<f"}[precision.size_bytes]
    above, tie = 1 + 1.01 * precision.unit_roundoff, 1 + 0.99 * precision.unit_roundoff
    assert struct.unpack(code, struct.pack(code, above))[0] == 1 + 2 * precision.unit_roundoff
    assert struct.unpack(code, struct.pack(code, tie))[0] == 1.0
