"""Drives the `hemi` binary and foreign NBD tools from outside, and cleans up after.

Everything a test starts (servers, mounts, loop devices, temporary files) belongs to one `Sandbox`
and ends with it, also when the test fails. Children die with the test process. Every wait has a
limit. The black-box tests, the crash scripts and the benchmarks use it.
"""

from .client import Client, NbdError
from .fio import Fio, FioResult
from .hemi import HEMI, CommandFailed, Volume, hemi, hemi_fails
from .nbdkit import Nbdkit
from .sandbox import Arg, Process, Sandbox, run, run_fails, wait_until

__all__ = [
    "HEMI",
    "Arg",
    "Client",
    "CommandFailed",
    "Fio",
    "FioResult",
    "NbdError",
    "Nbdkit",
    "Process",
    "Sandbox",
    "Volume",
    "hemi",
    "hemi_fails",
    "run",
    "run_fails",
    "wait_until",
]
