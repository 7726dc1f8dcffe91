"""Timed launches on one device: kernels side by side in short bursts, copies to and from the host, the SM clock under load.

Runs in the driver child; standard library only. Times in milliseconds, between two events, the L2 replaced before each launch.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cudadoctor.gpu.cases import AttentionCase, AttentionShape, Case, GemmCase, GemmShape
from cudadoctor.gpu.device import Device, Function, Module, ModuleLoadError
from cudadoctor.gpu.driver_api import DriverError, MissingSymbolError
from cudadoctor.gpu.inputs import Input
from cudadoctor.gpu.memory_cases import MemoryCase, MemoryShape
from cudadoctor.gpu.run_proof import Launch, functions_of

Answer = dict[str, Any]

L2_CACHE_SIZE = 38
"""Number of CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE in `CUdevice_attribute` (cuda.h)."""
STATIC_SMEM_BYTES, REGISTERS = 1, 4
"""Numbers of CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES and _NUM_REGS in `CUfunction_attribute` (cuda.h)."""
NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: does not wait for the default stream."""
USING = ("burst", "clock", "drop")
"""Steps with something that was prepared."""
FLUSH_TIMES_L2 = 4
LEAST_FLUSH_BYTES = 32 << 20
CLOCK_HEAD_START_MS = 3.0
"""Load before and during the clock's window: power management answers within some milliseconds."""
TRANSFER_PATTERN_BYTES = 1 << 20


class Prepared:
    """A kernel with its problem on the device, found right, ready to be timed."""

    def __init__(self, device: Device, image: bytes, kernel: Mapping[str, Any], shape: Mapping[str, Any], seed: int) -> None:
        """Load, launch once and check samples; raises DriverError, ModuleLoadError, MissingSymbolError."""
        self._device = device
        self.case = case_of(kernel, shape, random.Random(seed))  # noqa: S311  # test data, repeatable from the seed
        self.module: Module = device.load(image)
        self.functions: list[Function] = functions_of(self.module, kernel)
        self._stack = ExitStack()
        try:
            self.launch = self._stack.enter_context(Launch(device, self.functions, self.case, kernel["block"]))
            self.first_ms = device.time(self.launch.enqueue)
            self.check = self.case.check_samples(self.launch.output.read)
        except BaseException:
            self.close()
            raise
        self._timed = slice(-1, None) if kernel["op"] == "chase" else slice(None)

    def enqueue(self) -> None:
        """Launch what is timed: of the chase only the walk."""
        self.launch.enqueue(self._timed)

    def facts(self) -> Answer:
        """Resources of the pass that is timed last, work of a launch, and the check."""
        last = self.functions[-1]
        return {
            "registers": last.attribute(REGISTERS),
            "static_smem": last.attribute(STATIC_SMEM_BYTES),
            "flops": flops_of(self.case),
            "bytes": bytes_of(self.case),
            "right": self.check.passed,
            "where": self.check.where,
            "first_ms": self.first_ms,
        }

    def close(self) -> None:
        """Free its memory and its code; raises DriverError after a fault."""
        self._stack.close()
        self.module.unload()


class Bench:
    """What is prepared on one device, by name."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._prepared: dict[str, Prepared] = {}
        l2_bytes = device.attribute(L2_CACHE_SIZE)
        self._flush_bytes = max(FLUSH_TIMES_L2 * l2_bytes, LEAST_FLUSH_BYTES)
        self._flush: ctypes.c_uint64 | None = None

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """The answer to one request, or `error` and `because`; raises KeyError for a malformed one."""
        steps = {
            "memory": self._memory,
            "prepare": self._prepare,
            "burst": self._burst,
            "clock": self._clock,
            "drop": self._drop,
            "transfer": self._transfer,
            "driver_copy": self._driver_copy,
        }
        missing = [request[key] for key in ("name", "window") if request["step"] in USING and key in request]
        if any(name not in self._prepared for name in missing):
            return {"error": None, "because": "it is not prepared any more: the process before this one ended"}
        try:
            return steps[request["step"]](request)
        except ModuleLoadError as failure:
            return {"error": failure.error.result._asdict(), "because": f"{failure.error.call} failed: {failure.log}"}
        except DriverError as failure:
            return {"error": failure.result._asdict(), "because": f"{failure.call} failed"}
        except (MissingSymbolError, OSError) as failure:
            return {"error": None, "because": str(failure)}

    def _memory(self, _: Mapping[str, Any]) -> Answer:
        free, total = self._device.memory()
        return {"free": free, "total": total, "flush_bytes": self._flush_bytes}

    def _prepare(self, request: Mapping[str, Any]) -> Answer:
        image = Path(request["image"]).read_bytes()
        prepared = Prepared(self._device, image, request["kernel"], request["shape"], request["seed"])
        self._prepared[request["name"]] = prepared
        return prepared.facts()

    def _drop(self, request: Mapping[str, Any]) -> Answer:
        self._prepared.pop(request["name"]).close()
        return {}

    def _burst(self, request: Mapping[str, Any]) -> Answer:
        """Milliseconds of each of some launches."""
        prepared = self._prepared[request["name"]]
        with self._events(2 * request["launches"]) as events:
            for begin, end in zip(events[::2], events[1::2], strict=True):
                self._replace_l2()
                self._record(begin)
                prepared.enqueue()
                self._record(end)
            self._device.synchronize()
            return {"ms": [self._device.elapsed_ms(*pair) for pair in zip(events[::2], events[1::2], strict=True)]}

    def _clock(self, request: Mapping[str, Any]) -> Answer:
        """Cycles and nanoseconds of a window in the midst of launches; the kernel that reads them is `window`."""
        prepared, window = self._prepared[request["name"]], self._prepared[request["window"]]
        before = max(1, int(CLOCK_HEAD_START_MS / max(request["ms"], 1e-3)))
        stream = self._device.driver.get_handle("cuStreamCreate", ctypes.c_uint(NON_BLOCKING))
        try:
            for number in range(2 * before + 1):
                if number == before:
                    window.launch.enqueue(stream=stream)
                self._replace_l2()
                prepared.enqueue()
            self._device.synchronize()
        finally:
            self._device.driver.code("cuStreamDestroy_v2", stream)
        words = window.launch.output.read(0, 8)
        return {"cycles": int.from_bytes(words[:4], "little"), "nanoseconds": int.from_bytes(words[4:], "little")}

    def _transfer(self, request: Mapping[str, Any]) -> Answer:
        """Milliseconds of copies of `bytes` between host and device, `pinned` or pageable, each way, and whether they arrived."""
        size = request["bytes"]
        pattern = random.Random(request["seed"]).randbytes(TRANSFER_PATTERN_BYTES)  # noqa: S311  # test data
        with self._host_memory(size, pinned=request["pinned"]) as host, self._device.buffer(size) as buffer:
            for offset in range(0, size, TRANSFER_PATTERN_BYTES):
                ctypes.memmove(host + offset, pattern, min(TRANSFER_PATTERN_BYTES, size - offset))
            there = [self._copy("cuMemcpyHtoD_v2", buffer.address, host, size) for _ in range(request["repeats"] + 1)]
            arrived = buffer.read(0, 4096) == pattern[:4096]
            ctypes.memset(host, 0, size)
            back = [self._copy("cuMemcpyDtoH_v2", host, buffer.address, size) for _ in range(request["repeats"] + 1)]
            end = size % TRANSFER_PATTERN_BYTES or TRANSFER_PATTERN_BYTES
            last = ctypes.string_at(host + size - end, end)
            arrived = arrived and ctypes.string_at(host, 4096) == pattern[:4096] and last == pattern[:end]
        return {"to_device_ms": there[1:], "to_host_ms": back[1:], "right": arrived}

    def _copy(self, call: str, target: Any, source: Any, size: int) -> float:
        values = [value if isinstance(value, ctypes.c_uint64) else ctypes.c_void_p(value) for value in (target, source)]
        return self._device.time(lambda: self._device.driver.call(call, *values, ctypes.c_size_t(size)))

    def _driver_copy(self, request: Mapping[str, Any]) -> Answer:
        """Milliseconds of the driver's own copy on the device of `bytes`."""
        size = request["bytes"]
        with self._device.buffer(size) as source, self._device.buffer(size) as target:
            times = [self._copy("cuMemcpyDtoD_v2", target.address, source.address, size) for _ in range(request["repeats"] + 2)]
        return {"ms": times[2:]}

    @contextmanager
    def _host_memory(self, size: int, *, pinned: bool) -> Iterator[int]:
        """The address of host memory."""
        if not pinned:
            memory = ctypes.create_string_buffer(size)
            yield ctypes.addressof(memory)
            return
        address = ctypes.c_void_p()
        self._device.driver.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(0))
        try:
            yield address.value or 0
        finally:
            self._device.driver.code("cuMemFreeHost", address)

    def _replace_l2(self) -> None:
        """Write over more memory than the L2 holds."""
        driver = self._device.driver
        if self._flush is None:
            address = ctypes.c_uint64()
            driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(self._flush_bytes))
            self._flush = address
        driver.call("cuMemsetD8_v2", self._flush, ctypes.c_ubyte(0), ctypes.c_size_t(self._flush_bytes))

    @contextmanager
    def _events(self, count: int) -> Iterator[list[ctypes.c_void_p]]:
        with ExitStack() as stack:
            yield [stack.enter_context(self._device.event()) for _ in range(count)]

    def _record(self, event: ctypes.c_void_p) -> None:
        self._device.driver.call("cuEventRecord", event, ctypes.c_void_p())


def case_of(kernel: Mapping[str, Any], shape: Mapping[str, Any], rng: random.Random) -> Case:
    """The problem that `shape` describes for the kernel's operation."""
    if kernel["op"] == "gemm":
        return GemmCase(GemmShape(**shape), kernel, rng)
    if kernel["op"] == "attention":
        return AttentionCase(AttentionShape(**{**shape, "kv_lengths": tuple(shape["kv_lengths"])}), kernel, rng)
    return MemoryCase(MemoryShape(**shape), kernel, rng)


def flops_of(case: Case) -> float:
    """Floating-point operations that the result needs: causal attention half of those of full attention."""
    if isinstance(case, MemoryCase):
        return 0.0
    return case.flops / 2 if isinstance(case, AttentionCase) and case.shape.causal else case.flops


def bytes_of(case: Case) -> int:
    """The least that must be moved: each input read once, each output written once."""
    if isinstance(case, MemoryCase):
        return case.bytes_asked
    inputs: tuple[Input, ...] = case.inputs[:4]  # a naive attention's scores are its own affair
    return sum(content.size_bytes for content in inputs) + case.output_bytes
