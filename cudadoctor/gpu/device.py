"""Contexts, modules, buffers and timed launches on one device, over the driver API.

Runs in the driver child; standard library only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cudadoctor.gpu.driver_api import Driver, DriverError
from cudadoctor.gpu.inputs import Input
from cudadoctor.gpu.numbers import NAN_BYTE, Precision
from cudadoctor.gpu.tensor_map import Box, encode_tensor_map

GUARD_BYTES = 256
"""Bytes after every buffer that hold NaN and must still do so afterwards."""
LOG_BYTES = 8192
ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE = 5, 6
"""Numbers of CU_JIT_ERROR_LOG_BUFFER and its size in `CUjit_option` (cuda.h)."""
MULTIPROCESSOR_COUNT = 16
"""Number of CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT in `CUdevice_attribute` (cuda.h)."""
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""Number of CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES in `CUfunction_attribute` (cuda.h)."""


class ModuleLoadError(Exception):
    """The driver rejected the image; `log` holds what its JIT compiler said, often nothing."""

    def __init__(self, error: DriverError, log: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.log = log


class Device:
    """A device with its primary context current in this thread."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        """Retain the primary context of device `ordinal`; raises DriverError."""
        self.driver = driver
        self._handle = ctypes.c_int(driver.get_int("cuDeviceGet", ctypes.c_int(ordinal)))
        self.context = driver.get_handle("cuDevicePrimaryCtxRetain", self._handle)
        self.make_current()

    def make_current(self) -> None:
        """Make its context this thread's, where another device's was; raises DriverError."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def can_access(self, peer: Device) -> bool:
        """May this device read and write the memory of `peer`? Raises DriverError, MissingSymbolError."""
        return bool(self.driver.get_int("cuDeviceCanAccessPeer", self._handle, peer._handle))

    def release(self) -> None:
        """Give the primary context back; what the driver answers does not matter any more."""
        name = "cuDevicePrimaryCtxRelease_v2" if self.driver.has("cuDevicePrimaryCtxRelease_v2") else "cuDevicePrimaryCtxRelease"
        self.driver.code(name, self._handle)

    def load(self, image: bytes) -> Module:
        """Load a cubin or PTX text (terminated by NUL here); raises ModuleLoadError."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        try:
            handle = self.driver.get_handle("cuModuleLoadDataEx", image + b"\0", ctypes.c_uint(2), options, values)
        except DriverError as error:
            raise ModuleLoadError(error, log.value.decode("utf-8", "replace").strip()) from error
        return Module(self.driver, handle)

    def multiprocessors(self) -> int:
        """How many multiprocessors the device has; raises DriverError."""
        return self.attribute(MULTIPROCESSOR_COUNT)

    def attribute(self, number: int) -> int:
        """An attribute of the device, by its number in `CUdevice_attribute`; raises DriverError."""
        return self.driver.get_int("cuDeviceGetAttribute", ctypes.c_int(number), self._handle)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of memory; raises DriverError."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def tensor_map(self, address: ctypes.c_uint64, box: Box, precision: Precision) -> ctypes.Array[ctypes.c_ubyte]:
        """The kernel parameter that describes the matrix at `address`; raises DriverError, MissingSymbolError."""
        return encode_tensor_map(self.driver, address, box, precision)

    @contextmanager
    def buffer(self, size_bytes: int) -> Iterator[Buffer]:
        """Memory for `size_bytes` and a guard, all NaN; freed at the end."""
        address = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes + GUARD_BYTES))
        try:
            buffer = Buffer(self.driver, address, size_bytes)
            buffer.fill_nan()
            yield buffer
        finally:
            # After a fault on the device every call fails with the same error; that first one is being raised already.
            self.driver.code("cuMemFree_v2", address)

    def time(self, enqueue: Callable[[], None]) -> float:
        """Milliseconds of what `enqueue` enqueues, between two events; raises DriverError."""
        with self.event() as begin, self.event() as end:
            self.driver.call("cuEventRecord", begin, ctypes.c_void_p())
            enqueue()
            self.driver.call("cuEventRecord", end, ctypes.c_void_p())
            self.driver.call("cuEventSynchronize", end)
            return self.elapsed_ms(begin, end)

    @contextmanager
    def event(self) -> Iterator[ctypes.c_void_p]:
        """An event; destroyed at the end."""
        event = self.driver.get_handle("cuEventCreate", ctypes.c_uint(0))
        try:
            yield event
        finally:
            self.driver.code("cuEventDestroy_v2", event)

    def elapsed_ms(self, begin: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Milliseconds between two events that have passed; raises DriverError."""
        milliseconds = ctypes.c_float()
        self.driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
        return milliseconds.value

    def synchronize(self) -> None:
        """Wait for all launches; raises DriverError with the fault of any of them."""
        self.driver.call("cuCtxSynchronize")


class Buffer:
    """Device memory with a guard after it."""

    def __init__(self, driver: Driver, address: ctypes.c_uint64, size_bytes: int) -> None:
        self._driver = driver
        self.address = address
        self.size_bytes = size_bytes

    def fill_nan(self) -> None:
        """Set the buffer and its guard to NaN."""
        self._driver.call(
            "cuMemsetD8_v2", self.address, ctypes.c_ubyte(NAN_BYTE[0]), ctypes.c_size_t(self.size_bytes + GUARD_BYTES)
        )

    def write(self, content: Input) -> None:
        """Copy the data to the device once and double it there until the buffer is full."""
        filled = len(content.data)
        self._driver.call("cuMemcpyHtoD_v2", self.address, content.data, ctypes.c_size_t(filled))
        while filled < content.size_bytes:
            step = min(filled, content.size_bytes - filled)
            target = ctypes.c_uint64(self.address.value + filled)
            self._driver.call("cuMemcpyDtoD_v2", target, self.address, ctypes.c_size_t(step))
            filled += step

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`."""
        host = ctypes.create_string_buffer(size)
        self._driver.call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(self.address.value + offset), ctypes.c_size_t(size))
        return host.raw

    def guard_intact(self) -> bool:
        """True if nothing was written behind the buffer."""
        return self.read(self.size_bytes, GUARD_BYTES) == NAN_BYTE * GUARD_BYTES


class Module:
    """A loaded image."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self._driver = driver
        self._handle = handle

    def function(self, entry: str) -> Function:
        """The kernel named `entry`; raises DriverError (CUDA_ERROR_NOT_FOUND)."""
        return Function(self._driver, self._driver.get_handle("cuModuleGetFunction", self._handle, entry.encode()))

    def variable(self, name: str) -> int:
        """The address of the __device__ variable `name`; raises DriverError (CUDA_ERROR_NOT_FOUND)."""
        address, size_bytes = ctypes.c_uint64(), ctypes.c_size_t()
        self._driver.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size_bytes), self._handle, name.encode())
        return address.value

    def unload(self) -> None:
        """Free the image; raises DriverError."""
        self._driver.call("cuModuleUnload", self._handle)


class Function:
    """A kernel."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self._driver = driver
        self._handle = handle
        self._dynamic_smem_bytes = 0

    def use_dynamic_smem(self, size_bytes: int) -> None:
        """Launch with `size_bytes` of dynamic shared memory from now on; raises DriverError where the device has less."""
        self._driver.call(
            "cuFuncSetAttribute", self._handle, ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES), ctypes.c_int(size_bytes)
        )
        self._dynamic_smem_bytes = size_bytes

    def attribute(self, number: int) -> int:
        """An attribute of the code, by its number in `CUfunction_attribute`; raises DriverError."""
        return self._driver.get_int("cuFuncGetAttribute", ctypes.c_int(number), self._handle)

    def launch(
        self, grid: Sequence[int], block: Sequence[int], parameters: Sequence[Any], stream: ctypes.c_void_p | None = None
    ) -> None:
        """Enqueue one launch on `stream` or the default one; raises DriverError."""
        pointers = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(parameter) for parameter in parameters))
        sizes = [ctypes.c_uint(extent) for extent in (*grid, *block, self._dynamic_smem_bytes)]
        self._driver.call("cuLaunchKernel", self._handle, *sizes, stream or ctypes.c_void_p(), pointers, ctypes.c_void_p())
