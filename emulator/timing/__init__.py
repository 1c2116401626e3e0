"""Time: a run's events become start and end times on each pipe. Values never depend on it."""

from emulator.timing.critical_path import CriticalPath, Segment, critical_path, dependency_floor_ps
from emulator.timing.parameters import Parameter, TimingParameters, timing_parameters
from emulator.timing.timeline import Timeline, time_run
from emulator.timing.utilisation import Utilisation, utilisation

__all__ = [
    "CriticalPath",
    "Parameter",
    "Segment",
    "Timeline",
    "TimingParameters",
    "Utilisation",
    "critical_path",
    "dependency_floor_ps",
    "time_run",
    "timing_parameters",
    "utilisation",
]
