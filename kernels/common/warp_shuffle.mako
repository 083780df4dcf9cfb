## Exchange of one value of a dtype between the work-items 32k to 32k + 31 of a work-group, by an instruction of PTX;
## only where the driver has it (-DWARP_SHUFFLES). All 32 work-items must exist and reach the call; it is a barrier for
## them. Beyond the 32 a work-item gets its own value.
##   warp_down_T(value, n), warp_up_T(value, n): the value of the work-item n after, or n before;
##   warp_from_T(value, k): that of work-item 32 * (item / 32) + k;
##   warp_xor_T(value, n): that of work-item item ^ n.
## T is the OpenCL C type that stores the dtype.
## Reference   NVIDIA, PTX ISA, shfl.sync.
<%page args="dtype"/>\
<%!
import numpy as np

from pytensor_cl.codegen.dtypes import ctype

MODES = {"down": ("down", 31), "up": ("up", 0), "from": ("idx", 31), "xor": ("bfly", 31)}
%>\
<%
T, size = ctype(dtype), np.dtype(dtype).itemsize
words = max(1, size // 4)
small = {1: "uchar", 2: "ushort"}.get(size)
W = "uint" if words == 1 else f"uint{words}"
%>\
#ifdef WARP_SHUFFLES
% for name, (mode, end) in MODES.items():
static inline ${T} warp_${name}_${T}(const ${T} value, const int by)
{
    const ${W} own = ${f"as_{small}(value)" if small else f"as_{W}(value)"};
    ${W} other;
    % for part in [f".s{w}" for w in range(words)] if words > 1 else [""]:
    asm volatile("shfl.sync.${mode}.b32 %0, %1, %2, ${end}, 0xffffffff;"
        : "=r"(other${part}) : "r"(own${part}), "r"(by));
    % endfor
    return as_${T}(${f"({small})other" if small else "other"});
}
% endfor
#endif
