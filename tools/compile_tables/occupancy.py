"""Work-items that a multiprocessor (NVIDIA) or compute unit (AMD) holds, from the resources of a kernel.

Sources of the limits: NVIDIA, "CUDA C++ Programming Guide", tables "Technical Specifications per Compute Capability",
and the sheet "CUDA Occupancy Calculator" (granularity of the allocation). AMD: LLVM, ``AMDGPUBaseInfo.cpp`` (namespace
IsaInfo: number and granularity of registers, wavefronts of a SIMD), and "User Guide for AMDGPU Backend" (local memory).
"""

from typing import NamedTuple

from tools.compile_tables.compilers import Kernel

__all__ = ["LIMITS", "occupancy"]


class Limits(NamedTuple):
    """Resources of a multiprocessor or compute unit."""

    lanes: int  # work-items of a warp or wavefront
    simds: int  # parts with registers of their own; the warps of a work-group are spread over them
    waves: int  # the most warps or wavefronts of one part
    # registers, unit: vector registers of a part for each lane, and in which units a wavefront gets them
    registers: int
    unit: int
    # local, local_unit, reserved: bytes of local memory, in which units a work-group gets it, and what the system takes
    # of it for each
    local: int
    local_unit: int
    groups: int  # the most work-groups at a time
    reserved: int = 0
    # scalars, scalar_unit: scalar registers of a part and their units; 0 where every wavefront has all it can address
    scalars: int = 0
    scalar_unit: int = 1


_KIB = 1 << 10
LIMITS = {
    "sm_70": Limits(32, 4, 16, 512, 8, 96 * _KIB, 256, 32),
    "sm_80": Limits(32, 4, 16, 512, 8, 164 * _KIB, 128, 32, reserved=_KIB),
    "sm_90": Limits(32, 4, 16, 512, 8, 228 * _KIB, 128, 32, reserved=_KIB),
    "gfx906": Limits(64, 4, 10, 256, 4, 64 * _KIB, 512, 40, scalars=800, scalar_unit=16),
    "gfx90a": Limits(64, 4, 8, 512, 8, 64 * _KIB, 512, 32, scalars=800, scalar_unit=16),
    "gfx1100": Limits(32, 4, 16, 1536, 24, 128 * _KIB, 1024, 64),  # a work-group processor: two compute units
}


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def occupancy(target: str, kernel: Kernel, group: int) -> float:
    """Return the share of the wavefronts that could be resident which are."""
    limits = LIMITS[target]
    waves = -(-group // limits.lanes)
    a_part = min(limits.waves, limits.registers // _up(max(kernel.registers, 1), limits.unit))
    if limits.scalars:
        a_part = min(a_part, limits.scalars // _up(max(kernel.scalar_registers, 1), limits.scalar_unit))
    groups = min(limits.groups, a_part * limits.simds // waves)
    if kernel.local:
        groups = min(groups, limits.local // _up(kernel.local + limits.reserved, limits.local_unit))
    return groups * waves / (limits.simds * limits.waves)
