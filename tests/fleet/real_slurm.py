"""A Slurm on this machine, in a folder of its own and as the user who runs the tests: munged, slurmctld, a slurmd a node."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
SBIN = "/usr/sbin"
"""Not on the PATH of every user."""
START_S = 60
CONF = """ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def missing_daemons() -> str:
    """The programs that are not installed, for the reason of a skip."""
    return ", ".join(name for name in DAEMONS if shutil.which(name, path=f"{SBIN}:{os.environ['PATH']}") is None)


class RealSlurm:
    """Nodes `node1`, `node2` ... of a running Slurm; `absent` more stand in its configuration and have no slurmd."""

    def __init__(self, folder: Path, nodes: int, absent: int = 0, settings: str = "") -> None:
        """Starts it; raises RuntimeError with the last lines of its logs where it does not come up."""
        self.folder = folder
        self.env = {**os.environ, "PATH": f"{os.environ['PATH']}:{SBIN}", "SLURM_CONF": str(folder / "slurm.conf")}
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "munge.key").write_bytes(os.urandom(64))
        (folder / "munge.key").chmod(0o600)
        (folder / "slurm.conf").write_text(self._configuration(nodes + absent) + settings)
        files = {name: f"{folder}/munge.{name}" for name in ("socket", "pid", "log", "seed")}
        options = (
            f"--socket={files['socket']}",
            f"--pid-file={files['pid']}",
            f"--log-file={files['log']}",
            f"--seed-file={files['seed']}",
        )
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={folder}/munge.key", *options)
        self._wait(lambda: (folder / "munge.socket").exists())
        self._start("slurmctld", "slurmctld", "-D")
        for node in self.nodes:
            self._start(node, "slurmd", "-D", "-N", node)
        self._wait(lambda: self.states(self.nodes) == {"idle"})

    def _configuration(self, nodes: int) -> str:
        host, (port, *ports) = socket.gethostname(), _free_ports(nodes + 1)
        rows = [
            f"NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={of_node}\n"
            for number, of_node in enumerate(ports, 1)
        ]
        return "".join(rows) + CONF.format(host=host, port=port, folder=self.folder, user=getpass.getuser())

    def _start(self, name: str, *argv: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        limit = time.monotonic() + START_S
        while not is_so():
            if time.monotonic() > limit:
                said = (self.folder / "daemons.log").read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"Slurm does not start:\n{said}")
            time.sleep(0.2)

    def ask(self, *argv: str) -> str:
        """What one of Slurm's programs prints."""
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60).stdout.strip()

    def states(self, nodes: Sequence[str]) -> set[str]:
        """The states of these nodes."""
        return set(self.ask("sinfo", "--noheader", "--Node", "--format=%T", f"--nodes={','.join(nodes)}").split())

    def kill(self, name: str) -> None:
        """Ends a node's slurmd, or another daemon, at once."""
        self._daemons[name].kill()
        self._daemons[name].wait()

    def stop(self) -> None:
        """Ends all daemons, the last started first."""
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
