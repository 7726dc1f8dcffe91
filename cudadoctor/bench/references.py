"""torch's library calls as references: a child in the user's interpreter, timed in turns with our kernels."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudadoctor.bench.model import Reference, Timing
from cudadoctor.gpu.child import Child, ChildError

CHILD = Path(__file__).parents[1] / "probes" / "_torch_bench_child.py"
IMPORT_LIMIT_S = 60.0
STEP_LIMIT_S = 30.0


class TorchReferences:
    """A torch at work; its failures matter to the ratios alone, and `because` says why there are none."""

    def __init__(self, python: str, env: Mapping[str, str], device: int) -> None:
        """Start `python`; where it is empty, the GPU allows no second process."""
        self.because = ""
        self.version = ""
        self._device = device
        self._times: dict[str, dict[str, list[float]]] = {}
        self._child: Child | None = None
        if not python:
            self.because = "the GPU's compute mode allows one process at a time"
            return
        try:
            self._child = Child((python, str(CHILD)), env)
        except ChildError as error:
            self.because = str(error)

    @property
    def pid(self) -> int | None:
        """The number of its process."""
        return self._child.pid if self._child is not None else None

    def load(self) -> None:
        """Import torch and make its context; `because` tells where that failed."""
        if self._child is None:
            return
        answer = self._ask({"do": "load", "device": self._device}, IMPORT_LIMIT_S)
        if "torch" in answer:
            self.version = str(answer["torch"])
        else:
            self.close()

    def prepare(self, name: str, problem: Mapping[str, Any]) -> None:
        """Have the problem ready, where it can be."""
        if problem:
            self._ask({"do": "prepare", "name": name, **problem}, STEP_LIMIT_S)

    def burst(self, name: str, launches: int, flush_bytes: int) -> None:
        """Time some launches of each call; without a child nothing happens."""
        answer = self._ask({"do": "burst", "name": name, "launches": launches, "flush_bytes": flush_bytes}, STEP_LIMIT_S)
        calls = self._times.setdefault(name, {})
        for number, (label, milliseconds) in enumerate(answer.get("ms", ())):
            calls.setdefault(f"{number} {label}", []).extend(milliseconds)

    def finish(self, name: str) -> Reference | None:
        """The fastest call for a problem; None where none ran."""
        self._ask({"do": "drop", "name": name}, STEP_LIMIT_S)
        timed = {label: each for label, each in self._times.get(name, {}).items() if each}
        if not timed:
            return None
        label = min(timed, key=lambda each: statistics.median(timed[each]))
        return Reference(name=label.split(" ", 1)[1], timing=Timing.of(timed[label]))

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._child is None:
            return {}
        try:
            answer = self._child.ask(request, timeout_s)
        except ChildError as error:
            self.because = f"the process that uses torch {error}"
            self.close()
            return {}
        if "error" in answer and request["do"] == "load":
            self.because = str(answer["error"])
        return answer

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._child = None
