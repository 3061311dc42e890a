"""Disks that tear small writes too, for tests of what code leaves on them when it is interrupted."""

from __future__ import annotations

from random import Random

from harness.runtimes.simulation.disk.disk import SimulatedDisk


class PowerLoss(BaseException):
    """Raised in the middle of an operation. Not an Exception: no code may handle it."""


def simulated_disk() -> SimulatedDisk:
    return SimulatedDisk(Random(0), sector=64)
