from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.binary.cubin import is_cubin, read_cubin
from cudadoctor.binary.source import BytesSource
from cudadoctor.model.binaries import Place


def label(data: bytes) -> str | None:
    module = read_cubin(BytesSource(data), 0, len(data), Place.FILE, "")
    return None if module is None else module.entries[0].label


def patched(samples: Path, os_abi: int, flags: int) -> bytes:
    """The sample with the identification and flags of another toolkit and architecture, and without its `.nv.compat` section."""
    data = bytearray((samples / "specific.cubin").read_bytes())
    data[7], data[48:52] = os_abi, flags.to_bytes(4, "little")
    section_table = int.from_bytes(data[40:48], "little")
    for index in range(int.from_bytes(data[60:62], "little")):
        at = section_table + 64 * index + 4
        if data[at : at + 4] == (0x70000086).to_bytes(4, "little"):
            data[at : at + 4] = (1).to_bytes(4, "little")
    return bytes(data)


def test_suffix_of_cuda_13_stands_in_the_compat_section(samples: Path) -> None:
    data = (samples / "specific.cubin").read_bytes()
    assert is_cubin(data[:20])
    assert int.from_bytes(data[48:52], "little") == 0x06005A04
    assert label(data) == "sm_90a"
    assert label(patched(samples, 0x41, 0x06005A04)) == "sm_90"


@pytest.mark.parametrize(
    ("os_abi", "flags", "expected"),
    [
        (0x33, 0x0032055A, "sm_90"),  # 11.8
        (0x33, 0x005A0D5A, "sm_90a"),  # 12.4
        (0x33, 0x003C0D3C, "sm_60"),  # the bit means something else there
        (0x41, 0x0600640A, "sm_100a"),  # 12.9
        (0x41, 0x06006B02, "sm_107"),  # 13.5
        (0x41, 0x00000000, "unknown"),
    ],
)
def test_flags_seen_in_real_cubins(os_abi: int, flags: int, expected: str, samples: Path) -> None:
    assert label(patched(samples, os_abi, flags)) == expected


def test_what_is_no_cubin(samples: Path) -> None:
    data = (samples / "specific.cubin").read_bytes()
    assert label((samples / "plain.so").read_bytes()) is None
    assert label(data[:64]) is None
    assert label(data[:-1]) is None
    assert label(b"") is None
