"""A copy from one device to another: allowed or not, every byte checked, timed.

Runs in the driver child; standard library only.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cudadoctor.gpu.copy_names import DIRECT, STAGED
from cudadoctor.gpu.device import Buffer, Device
from cudadoctor.gpu.driver_api import DriverError, MissingSymbolError
from cudadoctor.gpu.inputs import Input

COPY_BYTES = 16 << 20
"""Large enough that a link reaches most of its rate, small enough for all pairs of eight GPUs in a second or two."""
PATTERN_BYTES = 1_000_003
"""The random data repeats after this prime, so that pages or stripes that change places do not look right."""
TIMED_COPIES = 8
"""Enqueued in a row between two events."""
ALREADY_ENABLED = 704
"""cuda.h, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED."""

Answer = dict[str, Any]


class WrongBytesError(Exception):
    """The copy ended without an error and its data are wrong; the text says where."""


def copy_between(source: Device, target: Device, seed: int) -> Answer:
    """The fields of a Proof of a copy, its `kernel`, and `step`, where it ended; raises nothing but crashes."""
    answer: Answer = {"outcome": "failed", "step": "access", "seed": seed}
    try:
        direct = source.can_access(target) and target.can_access(source)
        answer["kernel"] = DIRECT if direct else STAGED
        with ExitStack() as stack:
            if direct:
                stack.enter_context(_access(source, target))
                stack.enter_context(_access(target, source))
            answer["step"] = "copy"
            answer.update(_checked_and_timed(source, target, seed))
        answer["outcome"] = "passed"
    except DriverError as failure:
        answer.update(error=failure.result._asdict(), because=f"{failure.call} failed")
    except MissingSymbolError as failure:
        answer.update(outcome="unknown", because=f"not a complete CUDA driver library: {failure}")
    except WrongBytesError as failure:
        answer.update(because=f"{failure} (seed {seed})")
    return answer


@contextmanager
def _access(device: Device, peer: Device) -> Iterator[None]:
    """Access of `device` to the memory of `peer`, given back at the end: a context without NVSwitch may have eight peers."""
    device.make_current()
    code = device.driver.code("cuCtxEnablePeerAccess", peer.context, ctypes.c_uint(0))
    if code not in (0, ALREADY_ENABLED):
        raise DriverError("cuCtxEnablePeerAccess", device.driver.result(code))
    try:
        yield
    finally:
        device.make_current()
        device.driver.code("cuCtxDisablePeerAccess", peer.context)


def _checked_and_timed(source: Device, target: Device, seed: int) -> Answer:
    pattern = random.Random(seed).randbytes(PATTERN_BYTES)  # noqa: S311  # test data, repeatable from the seed in the message
    target.make_current()
    with target.buffer(COPY_BYTES) as arrived:
        target.synchronize()  # NaN everywhere before the copy begins: work of two contexts has no order of its own
        source.make_current()
        with source.buffer(COPY_BYTES) as sent:
            sent.write(Input(pattern, COPY_BYTES))
            source.synchronize()
            _enqueue(source, target, sent, arrived)
            source.synchronize()
            target.make_current()
            _check(arrived, pattern)
            source.make_current()
            milliseconds = source.time(lambda: _enqueue(source, target, sent, arrived, TIMED_COPIES)) / TIMED_COPIES
    return {"run_ms": milliseconds, "gb_s": COPY_BYTES / max(milliseconds, 1e-6) * 1e-6}


def _enqueue(source: Device, target: Device, sent: Buffer, arrived: Buffer, times: int = 1) -> None:
    size = ctypes.c_size_t(COPY_BYTES)
    addresses = (arrived.address, target.context, sent.address, source.context)
    for _ in range(times):
        source.driver.call("cuMemcpyPeerAsync", *addresses, size, ctypes.c_void_p())


def _check(arrived: Buffer, pattern: bytes) -> None:
    expected = (pattern * (COPY_BYTES // PATTERN_BYTES + 1))[:COPY_BYTES]
    data = arrived.read(0, COPY_BYTES)
    if data != expected:
        wrong = [at for at in range(0, COPY_BYTES, 4096) if data[at : at + 4096] != expected[at : at + 4096]]
        raise WrongBytesError(f"wrong data: {len(wrong)} of {COPY_BYTES // 4096} pages differ, the first at byte {wrong[0]}")
    if not arrived.guard_intact():
        raise WrongBytesError("the copy wrote behind the end of its target")
