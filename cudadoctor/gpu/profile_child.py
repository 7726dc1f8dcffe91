"""Launches kernels for a profiler to look at: the program that Nsight Compute runs. Standard library only.

    python -I -S -c ... FOLDER REQUEST.json

The request holds `device`, `library` and `launches`, a list of {"image", "kernel", "shape", "seed"}. Each is launched twice: the
first time to be checked. It says on stderr what stopped it and ends with 1.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from cudadoctor.gpu.device import Device, ModuleLoadError
from cudadoctor.gpu.driver_api import Driver, DriverError, LibraryLoadError, MissingSymbolError
from cudadoctor.gpu.measure import Prepared


def main() -> None:
    """Launch what the file named last on the command line asks for."""
    request = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    try:
        driver = Driver.load(request["library"])
        driver.call("cuInit", ctypes.c_uint(0))
        device = Device(driver, request["device"])
        for each in request["launches"]:
            prepared = Prepared(device, Path(each["image"]).read_bytes(), each["kernel"], each["shape"], each["seed"])
            prepared.enqueue()
            device.synchronize()
            prepared.close()
    except (DriverError, LibraryLoadError, MissingSymbolError, ModuleLoadError) as error:
        sys.exit(str(error))
