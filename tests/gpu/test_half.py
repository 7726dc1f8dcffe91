"""The stand-ins' own fp16 conversions agree with Python's for every half and for values between halves."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from pathlib import Path

from tests.fakes.build import FAKES, build_shared_library


def test_conversions_agree_with_python(tmp_path: Path) -> None:
    source = tmp_path / "half.c"
    source.write_text(
        f'#include "{FAKES / "half.h"}"\n'
        "float widen(uint16_t bits) { return half_to_float(bits); }\n"
        "uint16_t narrow(float value) { return float_to_half(value); }\n"
    )
    library = ctypes.CDLL(str(build_shared_library(source, tmp_path / "libhalf.so")))
    library.widen.restype, library.widen.argtypes = ctypes.c_float, [ctypes.c_uint16]
    library.narrow.restype, library.narrow.argtypes = ctypes.c_uint16, [ctypes.c_float]
    for bits in range(65536):
        expected = struct.unpack("<e", struct.pack("<H", bits))[0]
        got = library.widen(bits)
        assert got == expected or (math.isnan(got) and math.isnan(expected)), bits
    rng = random.Random(1)
    values = [rng.uniform(-1, 1) * 2.0 ** rng.randint(-30, 15) for _ in range(20000)]
    values += [1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-25, 2.0**-24 * 1.5, 65519.0, 0.0, -0.0]
    for value in (struct.unpack("<f", struct.pack("<f", value))[0] for value in values):
        assert library.narrow(value) == struct.unpack("<H", struct.pack("<e", value))[0], value
    assert library.narrow(math.inf) == 0x7C00
    assert library.narrow(70000.0) == 0x7C00
