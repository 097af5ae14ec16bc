"""Databases on a target: MariaDB under sysbench, from a private instance to its figures.

    with Workplace() as place:
        run = OltpRun(OltpSettings(workload="tpcc"), {"A": DirectoryTarget(Path("/mnt/a"))})
        run.execute(place)

`OltpRun` runs the load at rising thread counts, `ScanRun` the comparisons of scans. Both return
plain data (`results.py`, `scans.py`), which stays valid when a run is interrupted. Plans run them
(`methods/database.py`, `methods/scans.py`).
"""

from hemi_lab.errors import LabError, ToolError

from .consistency import Condition, Finding
from .results import Audit, OltpResult, PlacementResult, Step
from .run import OltpRun
from .scans import Scan, ScanResult, ScanRun, ScanSettings
from .settings import BadSetting, OltpSettings, Placement, placement
from .sysbench import Report, Second, TransactionKind
from .targets import DeviceTarget, DirectoryTarget, HemiTarget, NbdTarget, OpenTarget, Target
from .tools import Command, CommandLog
from .workplace import Workplace, sweep, terminable

__all__ = [
    "Audit",
    "BadSetting",
    "Command",
    "CommandLog",
    "Condition",
    "DeviceTarget",
    "DirectoryTarget",
    "Finding",
    "HemiTarget",
    "LabError",
    "NbdTarget",
    "OltpResult",
    "OltpRun",
    "OltpSettings",
    "OpenTarget",
    "Placement",
    "PlacementResult",
    "Report",
    "Scan",
    "ScanResult",
    "ScanRun",
    "ScanSettings",
    "Second",
    "Step",
    "Target",
    "ToolError",
    "TransactionKind",
    "Workplace",
    "placement",
    "sweep",
    "terminable",
]
