"""One proof on one device: load, launch, check, time. Each step that fails says so in the terms of a `Proof`.

Runs in the driver child; standard library only.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any

from cudadoctor.gpu import verify
from cudadoctor.gpu.cases import Case, checked_cases, timed_case
from cudadoctor.gpu.device import Buffer, Device, Function, Module, ModuleLoadError
from cudadoctor.gpu.driver_api import DriverError, MissingSymbolError

TIMED_LAUNCHES = 5
LAUNCH_BUDGET_MS = 5.0
"""Longest single launch for timing, estimated from the checked launches: slow or busy GPUs are not kept busy for long."""
ALL_PASSES = slice(None)

Answer = dict[str, Any]


class WrongResultError(Exception):
    """The kernel ran and its output is wrong; the text says how."""

    def __init__(self, text: str, check: verify.Check | None = None) -> None:
        super().__init__(text)
        self.check = check


def prove(device: Device, image: bytes, kernel: Mapping[str, Any], seed: int) -> Answer:
    """The fields of a Proof for `kernel`, plus `load_s`, `step` (where it ended) and `seed`; raises nothing but crashes."""
    answer: Answer = {"outcome": "failed", "step": "load", "seed": seed}
    try:
        started = perf_counter()
        module = device.load(image)
        answer["load_s"] = perf_counter() - started
        answer["step"] = "launch"
        rng = random.Random(seed)  # noqa: S311  # test data, repeatable from the seed in the message
        _run(device, functions_of(module, kernel), kernel, rng, answer)
        module.unload()
        answer["outcome"] = "passed"
    except ModuleLoadError as failure:
        answer.update(error=failure.error.result._asdict(), because=_load_failure(failure))
    except DriverError as failure:
        answer.update(error=failure.result._asdict(), because=f"{failure.call} failed")
    except MissingSymbolError as failure:
        answer.update(outcome="unknown", because=f"not a complete CUDA driver library: {failure}")
    except WrongResultError as failure:
        answer.update(step="verify", because=f"{failure} (seed {seed})")
        if failure.check is not None:
            answer.update(_figures(failure.check))
    return answer


def functions_of(module: Module, kernel: Mapping[str, Any]) -> list[Function]:
    """One for each pass, in order."""
    functions = [module.function(entry) for entry in kernel["entries"]]
    if kernel["dynamic_smem_bytes"]:
        for function in functions:
            function.use_dynamic_smem(kernel["dynamic_smem_bytes"])
    return functions


def _figures(check: verify.Check) -> Answer:
    """Error and tolerance; an error that is no number is left out, as JSON has none such."""
    return {"max_error": check.error if math.isfinite(check.error) else None, "tolerance": check.tolerance}


def _load_failure(failure: ModuleLoadError) -> str:
    first_line = failure.log.split("\n", 1)[0]
    return f"{failure.error.call} failed" + (f": {first_line}" if first_line else "")


def _run(device: Device, functions: list[Function], kernel: Mapping[str, Any], rng: random.Random, answer: Answer) -> None:
    checks, speeds = [], []
    for case in checked_cases(kernel, rng):
        with Launch(device, functions, case, kernel["block"]) as launch:
            check, milliseconds = launch.checked()
        checks.append(check)
        speeds.append((case.flops / max(milliseconds, 1e-6), milliseconds))
    flops_per_ms, milliseconds = max(speeds)
    case_to_time = timed_case(kernel, rng, flops_per_ms * LAUNCH_BUDGET_MS)
    if case_to_time is not None:
        with Launch(device, functions, case_to_time, kernel["block"]) as launch:
            check, milliseconds = launch.timed()
        checks.append(check)
        flops_per_ms = case_to_time.flops / max(milliseconds, 1e-6)
    answer.update(**_figures(verify.worst(checks)), run_ms=milliseconds, tflops=flops_per_ms * 1e-9)


class Launch:
    """A case with its buffers on the device."""

    def __init__(self, device: Device, functions: list[Function], case: Case, block: list[int]) -> None:
        self._device, self._functions, self._case, self._block = device, functions, case, block
        self._stack = ExitStack()

    def __enter__(self) -> Launch:
        with ExitStack() as stack:
            buffers = []
            for content in self._case.inputs:
                buffers.append(stack.enter_context(self._device.buffer(content.size_bytes)))
                buffers[-1].write(content)
            self.output: Buffer = stack.enter_context(self._device.buffer(self._case.output_bytes))
            self._parameters = self._parameters_of([*(buffer.address for buffer in buffers), self.output.address])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _parameters_of(self, addresses: list[ctypes.c_uint64]) -> tuple[Any, ...]:
        """The kernel's parameters for buffers at `addresses`, the output last."""
        boxes = self._case.boxes
        if not boxes:
            return self._case.parameters(addresses[:-1], addresses[-1])
        precision = self._case.precision
        maps = [
            address if box is None else self._device.tensor_map(address, box, precision)
            for address, box in zip(addresses, boxes, strict=True)
        ]
        return self._case.parameters(maps[:-1], maps[-1])

    def checked(self) -> tuple[verify.Check, float]:
        """The check of the whole output and the milliseconds of a second launch, whose output must equal the first's."""
        first, _ = self._output_of_launch()
        check = self._case.check(first)
        if not check.passed:
            raise WrongResultError(
                f"wrong numbers: {check.where} is off by {check.error:.3g}, allowed {check.tolerance:.3g}", check
            )
        second, milliseconds = self._output_of_launch()
        if self._case.repeats_exactly and second != first:
            raise WrongResultError("two launches with the same input gave different output")
        return check, milliseconds

    def _output_of_launch(self) -> tuple[bytes, float]:
        self.output.fill_nan()
        milliseconds = self._time()
        if not self.output.guard_intact():
            raise WrongResultError("the kernel wrote behind the end of its output")
        return self.output.read(0, self.output.size_bytes), milliseconds

    def timed(self) -> tuple[verify.Check, float]:
        """The check of sampled outputs and the median of the timed launches in milliseconds, after one to warm up."""
        self._time()
        milliseconds = median(self._time() for _ in range(TIMED_LAUNCHES))
        check = self._case.check_samples(self.output.read)
        if not check.passed:
            raise WrongResultError(
                f"wrong numbers: {check.where} is off by {check.error:.3g}, allowed {check.tolerance:.3g}", check
            )
        return check, milliseconds

    def _time(self) -> float:
        milliseconds = self._device.time(self.enqueue)
        self._device.synchronize()
        return milliseconds

    def enqueue(self, passes: slice = ALL_PASSES, stream: ctypes.c_void_p | None = None) -> None:
        """The passes, one after the other."""
        grids = self._case.grids(self._device.multiprocessors)
        for function, grid in list(zip(self._functions, grids, strict=True))[passes]:
            function.launch(grid, self._block, self._parameters, stream)
