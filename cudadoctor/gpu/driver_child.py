"""The process that talks to the CUDA driver: one JSON request a line on stdin, one JSON answer a line on stdout.

The driver may hang or crash; then only this process does, and the parent (`driver_session`) says so. Standard library only, so
that it starts quickly. Requests, in this order: {"do": "load", "library": PATH|null}, {"do": "init"}, {"do": "devices"}, then any
number of {"do": "peers"}, {"do": "open", "device": N}, {"do": "prove", "image": PATH, "kernel": {...}, "device": N, "seed": N},
{"do": "copy", "device": N, "peer": N, "seed": N} and {"do": "measure", "device": N, "step": ...} (see `measure.Bench`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from cudadoctor.gpu.driver_api import Driver, DriverError, LibraryLoadError, MissingSymbolError

Answer = dict[str, Any]


class DriverServer:
    """Answers requests; keeps the loaded driver and the devices in use."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._devices: dict[int, Any] = {}
        self._benches: dict[int, Any] = {}

    def answer(self, request: dict[str, Any]) -> Answer:
        """The answer to one request; raises KeyError or TypeError for a malformed one."""
        if request["do"] == "load":
            return self._load(request["library"])
        if self._driver is None:
            return {"load_error": "no driver library is loaded"}
        from cudadoctor.gpu import describe  # only what a request needs is imported: start-up counts

        if request["do"] == "init":
            return describe.initialise(self._driver)
        if request["do"] == "devices":
            return describe.describe_devices(self._driver)
        if request["do"] == "peers":
            return describe.describe_peers(self._driver)
        if request["do"] == "open":
            return self._open(self._driver, request["device"])
        if request["do"] == "copy":
            return self._copy(self._driver, request)
        if request["do"] == "measure":
            return self._measure(self._driver, request)
        return self._prove(self._driver, request)

    def _load(self, library: str | None) -> Answer:
        from cudadoctor.gpu import describe

        try:
            self._driver = Driver.load(library)
        except LibraryLoadError as error:
            return {"load_error": str(error)}
        return describe.describe_library(self._driver)

    def _open(self, driver: Driver, ordinal: int) -> Answer:
        """Make the context of a device; empty where that worked."""
        from cudadoctor.gpu.device import Device

        try:
            if ordinal not in self._devices:
                self._devices[ordinal] = Device(driver, ordinal)
        except DriverError as error:
            return {"outcome": "failed", "step": "context", "error": error.result._asdict(), "because": f"{error.call} failed"}
        except MissingSymbolError as error:
            return {"outcome": "unknown", "step": "context", "because": f"not a complete CUDA driver library: {error}"}
        return {}

    def _prove(self, driver: Driver, request: dict[str, Any]) -> Answer:
        from cudadoctor.gpu.run_proof import prove

        refused = self._open(driver, request["device"])
        if refused:
            return refused
        try:
            image = Path(request["image"]).read_bytes()
        except OSError as error:
            return {"outcome": "unknown", "step": "image", "because": f"cannot read the compiled kernel: {error}"}
        return prove(self._devices[request["device"]], image, request["kernel"], request["seed"])

    def _copy(self, driver: Driver, request: dict[str, Any]) -> Answer:
        from cudadoctor.gpu.peer_copy import copy_between

        refused = self._open(driver, request["device"]) or self._open(driver, request["peer"])
        if refused:
            return refused
        return copy_between(self._devices[request["device"]], self._devices[request["peer"]], request["seed"])

    def _measure(self, driver: Driver, request: dict[str, Any]) -> Answer:
        from cudadoctor.gpu.measure import Bench

        ordinal = request["device"]
        refused = self._open(driver, ordinal)
        if refused:
            return refused
        if ordinal not in self._benches:
            self._benches[ordinal] = Bench(self._devices[ordinal])
        answer: Answer = self._benches[ordinal].answer(request)
        return answer

    def close(self) -> None:
        """Give the contexts back. The result is not needed: after a fault it is the same fault again, reported before."""
        for device in self._devices.values():
            device.release()


def private_stdout() -> IO[str]:
    """The real stdout, while what libraries print goes to stderr from now on."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def main() -> None:
    """Serve until stdin ends."""
    channel = private_stdout()
    server = DriverServer()
    for line in sys.stdin:
        channel.write(json.dumps(server.answer(json.loads(line))) + "\n")
        channel.flush()
    server.close()


if __name__ == "__main__":
    main()
