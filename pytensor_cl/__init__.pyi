"""The public names for type checkers and editors; `__init__.py` loads each on first use.

A stub, as the import contracts count imports under ``TYPE_CHECKING``, and every interpreter would read them.
"""

from pytensor_cl.errors import OpenCLError as OpenCLError
from pytensor_cl.linker.reports.explain import explain as explain
from pytensor_cl.linker.reports.profile import profile as profile
from pytensor_cl.mode import devices as devices
from pytensor_cl.mode import shared as shared
from pytensor_cl.mode import use as use
from pytensor_cl.ops.transfer import gpu_from_host as gpu_from_host
from pytensor_cl.ops.transfer import host_from_gpu as host_from_gpu
from pytensor_cl.ops.user_kernels.as_op import as_op as as_op
from pytensor_cl.runtime.array import GpuArray as GpuArray
from pytensor_cl.runtime.registry import free_memory as free_memory
from pytensor_cl.runtime.registry import memory_info as memory_info
from pytensor_cl.runtime.registry import sync as sync
from pytensor_cl.type import GpuArrayType as GpuArrayType
from pytensor_cl.user_kernels.arguments import LocalMemory as LocalMemory
from pytensor_cl.user_kernels.elementwise import ElementwiseKernel as ElementwiseKernel
from pytensor_cl.user_kernels.module import RawModule as RawModule
from pytensor_cl.user_kernels.raw import RawKernel as RawKernel
from pytensor_cl.user_kernels.reduction import ReductionKernel as ReductionKernel
from pytensor_cl.variable import GpuArrayVariable as GpuArrayVariable

__version__: str
