"""The probes: small kernels, and the values that they must compute."""

from collections.abc import Callable, Sequence
from ctypes import c_char
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.kernel_objects import new_kernel
from pytensor_cl.runtime.features.probe import ITEMS, Device, Probe, WrongResult, check_equal

_ALIGNMENTS = (1, 4, 16, 64, 128, 256, 512, 1024, 4096)


# Numbers, buffers, parts of buffers, null pointers.
_PLAIN = """
__kernel void probe_plain(__global const float *x, __global const int *i, __global float *o, __global long *k,
                          __global const float *none, const float a, const int n, const long far)
{
    for (int at = get_global_id(0); at < n; at += get_global_size(0)) {
        o[at] = none ? none[at] : a * x[i[at]] + exp(0.0f);
        k[at] = far * i[at] - at;
    }
}
"""


def _plain(device: Device, text: str) -> bool:
    kernel = device.kernel(text, "probe_plain")
    x, i = np.arange(ITEMS, dtype="float32") / 8, np.arange(ITEMS, dtype="int32")[::-1].copy()
    o, k = np.zeros_like(x), np.zeros(ITEMS, "int64")
    o_buffer, k_buffer = device.buffer(o), device.buffer(k)
    args = device.buffer(x), device.buffer(i), o_buffer, k_buffer, None
    far = np.int64(1) << 40
    device.run(kernel, 16, None, *args, np.float32(2.5), np.int32(ITEMS), far)
    check_equal("float32", device.read(o_buffer, o), np.float32(2.5) * x[i] + 1)
    check_equal("int64", device.read(k_buffer, k), far * i - np.arange(ITEMS))
    # An upload, a copy and a read with offsets, and a part of a buffer as an argument.
    step = max(device.handle.mem_base_addr_align // 8, 128)
    whole = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 2 * step + x.nbytes)
    cl.enqueue_copy(device.queue, whole, x, dst_offset=2 * step)
    other = device.buffer(np.zeros_like(x))
    cl.enqueue_copy(device.queue, other, whole, src_offset=2 * step, byte_count=x.nbytes)
    check_equal("a copy", device.read(other, x), x)
    part = whole.get_sub_region(2 * step, x.nbytes)
    device.run(kernel, 16, None, part, *args[1:], np.float32(1), np.int32(ITEMS), far)
    check_equal("a part of a buffer", device.read(o_buffer, o), x[i] + 1)
    return True


_LOCAL = """
__kernel void probe_local_memory(__global const int *x, __global int *o, const int last)
{
    __local int shared[256];
    const int at = get_local_id(0), count = get_local_size(0);
    shared[at] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = count / 2; step; step /= 2) {
        if (at < step) shared[at] += shared[at + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    o[get_global_id(0)] = shared[0] + last * shared[count - 1];
}
"""


def _local_memory(device: Device, text: str) -> bool:
    kernel = device.kernel(text, "probe_local_memory")
    limit = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device.handle)
    group = 1 << (min(limit, 64).bit_length() - 1)
    x = np.arange(ITEMS, dtype="int32") ** 2
    o = device.buffer(x)
    device.run(kernel, ITEMS, group, device.buffer(x), o, np.int32(0))
    check_equal("sums of work-groups", device.read(o, x), x.reshape(-1, group).sum(1).repeat(group))
    return True


_ATOMICS = """
__kernel void probe_atomics(volatile __global int *o)
{
    __local uint any;
    if (get_local_id(0) == 0) any = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_or(&any, 1u << get_local_id(0));
    barrier(CLK_LOCAL_MEM_FENCE);
    const int at = get_global_id(0);
    if (atomic_cmpxchg(o, 0, at + 1) == 0) o[1] = at + 1;
    atomic_or((volatile __global uint *)o + 2, 1u << (at & 31));
    atomic_inc(o + 3);
    if (get_local_id(0) == 0) o[4 + get_group_id(0)] = (int)any;
}
"""


def _atomics(device: Device, text: str) -> bool:
    kernel, o = device.kernel(text, "probe_atomics"), np.zeros(4 + ITEMS // 8, "int32")
    buffer = device.buffer(o)
    device.run(kernel, ITEMS, 8, buffer)
    got = device.read(buffer, o)
    if not 1 <= got[0] <= ITEMS:
        raise WrongResult(f"atomic_cmpxchg: {got[0]}")
    check_equal("atomic functions", got, [got[0], got[0], -1, ITEMS, *[255] * (ITEMS // 8)])
    return True


def _vector_text() -> str:
    """One kernel for all numbers of lanes, as compilers take their time for each kernel."""
    lines = """
        const floatN v = *(__global const floatN *)(x + at);
        const intN w = vloadN(0, i + at);
        *(__global floatN *)(o + at) = select(v * 2.0f, fmax(v, 1.0f) - 0.5f, w > (intN)(4));
        vstoreN((w << 2) ^ convert_intN(v), 0, k + at);
"""
    cases = "".join(f"    if (lanes == {n}) {{{lines.replace('N', str(n))}    }}\n" for n in (2, 4, 8, 16))
    return f"""
__kernel void probe_vectors(__global const float *x, __global const int *i, __global float *o, __global int *k,
                            const int lanes)
{{
    const int at = get_global_id(0) * lanes;
{cases}}}
"""


def _vectors(device: Device, text: str) -> list[int]:
    x = np.linspace(-3, 9, ITEMS, dtype="float32")
    i = np.arange(ITEMS, dtype="int32") % 11
    wanted = np.where(i > 4, np.maximum(x, np.float32(1)) - np.float32(0.5), 2 * x)
    kernel = device.kernel(text, "probe_vectors")
    for n in (2, 4, 8, 16):
        o, k = device.buffer(np.zeros_like(x)), device.buffer(np.zeros_like(i))
        device.run(kernel, ITEMS // n, None, device.buffer(x), device.buffer(i), o, k, np.int32(n))
        check_equal(f"float{n}", device.read(o, x), wanted)
        check_equal(f"int{n}", device.read(k, i), (i << 2) ^ x.astype("int32"))
    return [2, 4, 8, 16]


_PRIVATE = """
static void probe_private_add(__global float *tile, __global const float *x, const int n)
{
    for (int i = 0; i < n; i++) tile[i * 5 % n] += x[i];
}

__kernel void probe_private_address(__global ulong *address, const int n)
{
    float space[32];
    for (int i = 0; i < n; i++) space[i] = i;
    address[0] = (ulong)space, address[1] = space[n / 2];
}

__kernel void probe_private_as_global(__global const float *x, __global float *o, const int n, const int turns)
{
    float space[32] __attribute__((aligned(64)));
    __global float *const tile = (__global float *)(ulong)space;
    for (int i = 0; i < n; i++) tile[i] = i;
    for (int i = 0; i < turns; i++) probe_private_add(i & 1 ? o + get_global_id(0) * n : tile, x, n);
    for (int i = 0; i < n; i++) o[get_global_id(0) * n + i] += tile[i];
}
"""


def _private_as_global(device: Device, text: str) -> bool:
    n, turns, count = 32, 4, 8
    x, o, address = np.arange(n, dtype="float32"), np.zeros((count, n), "float32"), np.zeros(2, np.uint64)
    buffer, found = device.buffer(o), device.buffer(address)
    device.run(device.kernel(text, "probe_private_address"), 1, None, found, np.int32(n))
    at = int(device.read(found, address)[0])
    if at < 1 << 16:  # no page of a process is there: compilers hang, kernels write anywhere
        raise WrongResult(f"a private array begins at address {at}: private memory has addresses of its own")
    kernel = device.kernel(text, "probe_private_as_global")
    device.run(kernel, count, None, device.buffer(x), buffer, np.int32(n), np.int32(turns))
    row = np.zeros(n, "float32")
    row[np.arange(n) * 5 % n] = turns * x
    check_equal("a private array", device.read(buffer, o), np.tile(row + np.arange(n), (count, 1)))
    return True


# With padding inside and at the end, which some drivers do not count; nested, and large.
_STRUCTS = """
typedef struct { int a; long far; float b[3]; } probe_mixed;
typedef struct { long numbers[40]; } probe_large;
typedef struct { int a, b, c; } probe_odd;
typedef struct { probe_odd inner[2]; char one; } probe_nested;

__kernel void probe_struct_arguments(const probe_odd first, __global long *o, const probe_mixed p, const float between,
                                     probe_large q, const probe_nested r)
{
    o[0] = first.a, o[1] = first.b, o[2] = first.c;
    o[3] = p.far, o[4] = p.a, o[5] = (long)p.b[0], o[6] = (long)p.b[1], o[7] = (long)p.b[2];
    o[8] = (long)between;
    q.numbers[3] += 1;
    for (int i = 0; i < 40; i++) o[9 + i] = q.numbers[i];
    o[49] = r.inner[0].a, o[50] = r.inner[1].c, o[51] = r.one;
}
"""


def _struct_arguments(device: Device, text: str) -> bool:
    odd, numbers = np.array([3, -4, 5], "int32"), np.arange(40, dtype="int64") - (1 << 40)
    mixed = np.array((-7, 1 << 50, (1, 2, 3)), np.dtype([("a", "i4"), ("far", "i8"), ("b", "f4", 3)], align=True))
    nested = np.array(((1, 2, 3, 4, 5, 6), 77), np.dtype([("inner", "i4", 6), ("one", "i1")], align=True))
    o = np.zeros(52, "int64")
    buffer = device.buffer(o)
    args = odd.tobytes(), buffer, mixed.tobytes(), np.float32(9), numbers.tobytes(), nested.tobytes()
    device.run(device.kernel(text, "probe_struct_arguments"), 1, None, *args)
    numbers[3] += 1
    check_equal("fields of structs", device.read(buffer, o), [*odd, 1 << 50, -7, 1, 2, 3, 9, *numbers, 1, 6, 77])
    return True


_PREFETCH = """
#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch)
#define PROBE_PREFETCH(p) __builtin_prefetch(p), __builtin_prefetch(p, 0, 2)
#endif
#endif
#ifndef PROBE_PREFETCH
#define PROBE_PREFETCH(p)
#endif
__kernel void probe_prefetch(__global const int *x, __global int *o)
{
    PROBE_PREFETCH((const void *)(ulong)(x + get_global_id(0)));
    o[get_global_id(0)] = x[get_global_id(0)] + 1;
}
"""


_NONTEMPORAL = """
#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store)
#define PROBE_STORE(value, p) __builtin_nontemporal_store(value, p)
#endif
#endif
#ifndef PROBE_STORE
#define PROBE_STORE(value, p) (*(p) = (value))
#endif
__kernel void probe_nontemporal_stores(__global const int *x, __global int *o)
{
    const int at = 4 * get_global_id(0);
    PROBE_STORE(*(__global const int4 *)(x + at) + 1, (__global int4 *)(o + at));
}
"""


def _adds_one(name: str, lanes: int) -> Callable[[Device, str], bool]:
    def check(device: Device, text: str) -> bool:
        x = np.arange(ITEMS, dtype="int32")
        o = device.buffer(np.zeros_like(x))
        device.run(device.kernel(text, name), ITEMS // lanes, None, device.buffer(x), o)
        check_equal("int32", device.read(o, x), x + 1)
        return True

    return check


_FP64 = """
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
__kernel void probe_fp64(__global const double *x, __global double *o, const double a)
{
    o[get_global_id(0)] = x[get_global_id(0)] / a + sqrt(x[get_global_id(0)]);
}
"""


_FP16 = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__kernel void probe_fp16(__global const ushort *x, __global ushort *o, const float a)
{
    o[get_global_id(0)] = as_ushort(convert_half_rte(convert_float(as_half(x[get_global_id(0)])) * a));
}
"""


def _fp64(device: Device, text: str) -> bool:
    x, a = np.arange(1, ITEMS + 1, dtype="float64"), np.float64(3)
    o = device.buffer(np.zeros_like(x))
    device.run(device.kernel(text, "probe_fp64"), ITEMS, None, device.buffer(x), o, a)
    got, wanted = device.read(o, x), x / a + np.sqrt(x)
    if not np.allclose(got, wanted, rtol=1e-15):
        raise WrongResult(f"float64: {np.abs(got / wanted - 1).max():.1e} off")
    return True


def _fp16(device: Device, text: str) -> bool:
    x, a = np.arange(ITEMS, dtype="float16"), np.float32(1.5)
    o = device.buffer(np.zeros_like(x))
    device.run(device.kernel(text, "probe_fp16"), ITEMS, None, device.buffer(x), o, a)
    check_equal("float16", device.read(o, x), (x.astype("float32") * a).astype("float16"))
    return True


def _seen(address: int, nbytes: int) -> np.ndarray:
    return np.frombuffer((c_char * nbytes).from_address(address), np.uint8)


_MAPS = """
__kernel void probe_maps(__global uchar *o, const uchar value)
{
    o[get_global_id(0)] = value + (uchar)get_global_id(0);
}
"""


def _maps(device: Device, text: str) -> bool:
    kernel, nbytes = device.kernel(text, "probe_maps"), 4 * ITEMS
    buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, nbytes)
    flags, queue = cl.map_flags.READ | cl.map_flags.WRITE, device.queue

    def mapped(offset: int) -> Any:
        return cl.enqueue_map_buffer(queue, buffer, flags, offset, (ITEMS,), np.uint8, is_blocking=False)[0]

    def addresses(offsets: Sequence[int]) -> list[int]:
        arrays = [mapped(offset) for offset in offsets]
        found = [int(array.__array_interface__["data"][0]) for array in arrays]
        for array in arrays:
            array.base.release(queue)
        queue.finish()
        return found

    address = addresses([0])[0]
    if addresses([0, ITEMS // 2, 0, ITEMS]) != [address, address + ITEMS // 2, address, address + ITEMS]:
        raise WrongResult("maps of overlapping regions have other addresses")
    memory = _seen(address, nbytes)
    for value in (1, 2):
        device.run(kernel, nbytes, None, buffer, np.uint8(value))
        check_equal("what a kernel wrote, as the host reads it", memory, (np.arange(nbytes) + value).astype(np.uint8))
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(7), 0, nbytes)
    queue.finish()
    check_equal("what a command wrote, as the host reads it", memory, np.full(nbytes, 7, np.uint8))
    if addresses([0])[0] != address:
        raise WrongResult("a later map has another address")
    return True


_HOST = """
__kernel void probe_host_alignment(__global const uchar *x, __global uchar *o, __global ulong *address)
{
    o[get_global_id(0)] = x[get_global_id(0)];
    if (get_global_id(0) == 0) *address = (ulong)x;
}
"""


def _is_in_place(device: Device, kernel: "cl.Kernel", memory: np.ndarray) -> bool:
    """Return whether a read-only buffer over host memory is that memory: it has the same address, and the same values.

    A driver that copies the memory for each kernel shows the same values, and takes its time.
    """
    buffer = cl.Buffer(device.context, cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)
    few, address = np.zeros(ITEMS, np.uint8), np.zeros(1, np.uint64)
    copied = device.buffer(few)
    found = device.buffer(address)
    for value in (5, 9):
        memory[:] = value
        device.run(kernel, ITEMS, None, buffer, copied, found)
        if device.read(found, address)[0] != memory.__array_interface__["data"][0]:
            return False
        if (device.read(copied, few) != value).any():
            return False
    return True


def _host_alignment(device: Device, text: str) -> int:
    """Return the smallest alignment of host memory that is used in place, with any size."""
    kernel = device.kernel(text, "probe_host_alignment")
    space = np.zeros(24 * _ALIGNMENTS[-1], np.uint8)
    start = -space.__array_interface__["data"][0] % (2 * _ALIGNMENTS[-1])
    for alignment in _ALIGNMENTS:
        # Odd multiples of the alignment, which are multiples of no larger one; and a size that is a multiple of none.
        parts = [space[start + k * alignment :][: 16 * _ALIGNMENTS[-1] + 13] for k in (1, 3)]
        if all(_is_in_place(device, kernel, part) for part in parts):
            return alignment
    return 0


_LOOPS = """
__kernel void probe_long_loops(__global const int *x, __global int *o, const int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) sum += x[i & 7];
    o[get_global_id(0)] = sum;
}
"""


def _long_loops(device: Device, text: str) -> bool:
    x, o, n = np.arange(1, 9, dtype="int32"), np.zeros(4, "int32"), 80000
    buffer = device.buffer(o)
    device.run(device.kernel(text, "probe_long_loops"), 4, None, device.buffer(x), buffer, np.int32(n))
    check_equal(f"a loop of {n} steps", device.read(buffer, o), [36 * n // 8] * 4)
    return True


_COMPARISONS = """
__kernel void probe_long_comparisons(__global const int *x, __global int *o)
{
    const int at = get_global_id(0);
    const long signed_one = (long)x[at];
    const ulong unsigned_one = (ulong)x[at];
    o[at] = (signed_one < 0) | (signed_one > 5) << 1 | (signed_one <= -5) << 2 | (signed_one >= 0) << 3
          | (signed_one == -1) << 4 | (signed_one < 3000000000L) << 5 | (max(signed_one, 3L) == 3) << 6
          | ((signed_one < 0 ? signed_one + 7 : signed_one) >= 0) << 7 | (unsigned_one > 5) << 8;
}
"""


def _long_comparisons(device: Device, text: str) -> bool:
    x = np.arange(-ITEMS // 2, ITEMS // 2, dtype="int32")
    x[:4] = -(1 << 31), (1 << 31) - 1, -100000, 100000
    o = device.buffer(np.zeros_like(x))
    device.run(device.kernel(text, "probe_long_comparisons"), ITEMS, None, device.buffer(x), o)
    long = x.astype("int64")
    bits = long < 0, long > 5, long <= -5, long >= 0, long == -1, long < 3000000000, long <= 3
    more = np.where(long < 0, long + 7, long) >= 0, long.astype("uint64") > 5
    check_equal("a long compared with constants", device.read(o, x), sum(b << k for k, b in enumerate((*bits, *more))))
    return True


_SHUFFLES = """
#define PROBE_SHUFFLE(mode, result, value, by, end) \\
    asm volatile("shfl.sync." mode ".b32 %0, %1, %2, " end ", 0xffffffff;" : "=r"(result) : "r"(value), "r"(by))
__kernel void probe_warp_shuffles(__global const uint *x, __global uint *o, const uint by)
{
    const uint at = get_global_id(0), count = get_global_size(0), value = x[at];
    uint below, above, from, other, sum = value;
    PROBE_SHUFFLE("down", below, value, by, "31");
    PROBE_SHUFFLE("up", above, value, by, "0");
    PROBE_SHUFFLE("idx", from, value, at / 32 + by, "31");
    PROBE_SHUFFLE("bfly", other, value, by, "31");
    for (int distance = 16; distance > 0; distance /= 2) {
        uint next;
        PROBE_SHUFFLE("down", next, sum, distance, "31");
        sum += next;
    }
    PROBE_SHUFFLE("idx", sum, sum, 0, "31");
    o[at] = below, o[count + at] = above, o[2 * count + at] = from, o[3 * count + at] = other, o[4 * count + at] = sum;
}
"""


def _warp_shuffles(device: Device, text: str) -> bool:
    by, x = 5, np.arange(ITEMS, dtype="uint32") ** 2
    lane, warp = np.arange(ITEMS) % 32, np.arange(ITEMS) // 32
    places = np.where(lane + by < 32, lane + by, lane), np.where(lane >= by, lane - by, lane), warp + by, lane ^ by
    wanted = [x[32 * warp + place] for place in places]
    o = np.zeros((5, ITEMS), "uint32")
    for group in (64, 128):
        buffer = device.buffer(o)
        device.run(device.kernel(text, "probe_warp_shuffles"), ITEMS, group, device.buffer(x), buffer, np.uint32(by))
        got = device.read(buffer, o)
        check_equal("shuffles", got, [*wanted, x.reshape(-1, 32).sum(1, dtype="uint32").repeat(32)])
    return True


_HALVES = """
__kernel void probe_half_conversions(__global const ushort *x, __global float *wide, __global ushort *narrow)
{
    const int at = get_global_id(0);
    float value;
    ushort bits;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x[at]));
    wide[at] = value;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value * 1.0001f));
    narrow[at] = bits;
}
"""


def _half_conversions(device: Device, text: str) -> bool:
    bits = np.arange(1 << 16, dtype="uint16")
    bits = bits[np.isfinite(bits.view("float16"))]
    wide, narrow = np.zeros(bits.size, "float32"), np.zeros_like(bits)
    wide_buffer, narrow_buffer = device.buffer(wide), device.buffer(narrow)
    kernel = device.kernel(text, "probe_half_conversions")
    device.run(kernel, bits.size, None, device.buffer(bits), wide_buffer, narrow_buffer)
    wanted = bits.view("float16").astype("float32")
    check_equal("float32 of float16", device.read(wide_buffer, wide), wanted)
    with np.errstate(over="ignore"):
        wanted = (wanted * np.float32(1.0001)).astype("float16")
    check_equal("float16 of float32", device.read(narrow_buffer, narrow), wanted.view("uint16"))
    return True


def _profiling(device: Device, text: str) -> bool:
    properties = cl.command_queue_properties.PROFILING_ENABLE
    queue = cl.CommandQueue(device.context, device.handle, properties=properties)
    buffer = device.buffer(np.zeros(ITEMS, np.uint8))
    event = cl.enqueue_copy(queue, np.empty(ITEMS, np.uint8), buffer)
    event.wait()
    profile = event.profile
    if not 0 < profile.queued <= profile.submit <= profile.start <= profile.end:
        raise WrongResult("the times of an event are not in order")
    return True


# A product of matrices by 32 neighbouring work-items: A is (rows, 2 * k), B (2 * k, 8). Fragments as in PTX ISA,
# "Matrix Fragments for mma.m16n8k8" and "mma.m8n8k4" with .f64 type.
_MATRIX_F64 = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel __attribute__((reqd_work_group_size(32, 2, 1)))
void probe_matrix_f64(__global const double *a, __global const double *b, __global double *o)
{
    const int r = get_local_id(0) / 4, c = get_local_id(0) % 4;
    a += get_local_id(1) * ROWS * 2 * DEPTH;
    b += get_local_id(1) * 2 * DEPTH * 8;
    o += get_local_id(1) * ROWS * 8;
    double c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    for (int k = c; k < 2 * DEPTH; k += DEPTH) {
        INSTRUCTION
    }
    o[r * 8 + 2 * c] = c0;
    o[r * 8 + 2 * c + 1] = c1;
    if (ROWS == 16) {
        o[(r + 8) * 8 + 2 * c] = c2;
        o[(r + 8) * 8 + 2 * c + 1] = c3;
    }
}
"""
_INSTRUCTIONS = {
    8: """__asm__ volatile(
            "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+d"(c0), "+d"(c1), "+d"(c2), "+d"(c3)
            : "d"(a[r * 16 + k]), "d"(a[(r + 8) * 16 + k]), "d"(a[r * 16 + k + 4]), "d"(a[(r + 8) * 16 + k + 4]),
              "d"(b[k * 8 + r]), "d"(b[(k + 4) * 8 + r]));""",
    4: """__asm__ volatile(
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c0), "+d"(c1) : "d"(a[r * 8 + k]), "d"(b[k * 8 + r]));""",
}


def matrix_f64_text(depth: int) -> str:
    """Return the kernel for one of the instructions for matrices of float64."""
    text = _MATRIX_F64.replace("INSTRUCTION", _INSTRUCTIONS[depth])
    return text.replace("ROWS", str(2 * depth)).replace("DEPTH", str(depth))


def _matrix_f64(device: Device, text: str) -> int:
    """Return the k of the largest instruction that builds and computes right.

    Each is a program of its own, as one that the device lacks does not build.
    """
    failure: Exception = WrongResult("no instruction")
    for depth in _INSTRUCTIONS:
        opened = Device(device.handle)  # a failed command may leave a queue useless
        random = np.random.default_rng(depth)
        a = random.integers(-99, 99, (2, 2 * depth, 2 * depth)).astype("float64")
        b, o = random.integers(-99, 99, (2, 2 * depth, 8)).astype("float64"), np.zeros((2, 2 * depth, 8))
        try:
            kernel, buffer = new_kernel(opened.build(matrix_f64_text(depth)), "probe_matrix_f64"), opened.buffer(o)
            arguments = opened.buffer(a), opened.buffer(b), buffer  # a kernel does not keep them
            for index, argument in enumerate(arguments):
                kernel.set_arg(index, argument)
            cl.enqueue_nd_range_kernel(opened.queue, kernel, (32, 2), (32, 2))
            check_equal("a product of matrices", opened.read(buffer, o), a @ b)
        except Exception as error:  # drivers raise anything
            failure = error
        else:
            return depth
    raise failure


_VOTES = """
__kernel void probe_warp_votes(__global const int *x, __global uint *o)
{
    __local volatile uint next[4 * 32];
    const int at = get_global_id(0), item = get_local_id(0), lane = item % 32, value = x[at];
    uint mask;
    for (int k = item; k < 4 * 32; k += get_local_size(0))
        next[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int turn = 0; turn < 3; turn++) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
            : "=r"(mask) : "r"(value));
        mask = value ? mask : ~mask;
        const uint before = next[item / 32 * 32 + value], lower = popcount(mask & (1u << lane) - 1);
        asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
        if (lower == 0)
            next[item / 32 * 32 + value] = before + popcount(mask);
        asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
        o[turn * get_global_size(0) + at] = before + lower;
    }
}
"""


def _warp_votes(device: Device, text: str) -> bool:
    x, o = (np.arange(ITEMS) ** 2 % 7 < 3).astype("int32"), np.zeros((3, ITEMS), "uint32")
    ones = x.reshape(-1, 32)
    zeros = 1 - ones
    lower = np.where(ones, ones.cumsum(1), zeros.cumsum(1)) - 1  # among the equal values of 32 work-items
    equal = np.where(ones, ones.sum(1, keepdims=True), zeros.sum(1, keepdims=True))
    for group in (32, 128):
        buffer = device.buffer(o)
        device.run(device.kernel(text, "probe_warp_votes"), ITEMS, group, device.buffer(x), buffer)
        check_equal("votes of a warp", device.read(buffer, o), [(lower + turn * equal).ravel() for turn in range(3)])
    return True


_FLOAT_ATOMICS = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel void probe_float_atomics(__global float *x, __global double *y)
{
    const int at = get_global_id(0);
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"(x + at % 3), "f"((float)at) : "memory");
    asm volatile("red.global.add.f64 [%0], %1;" : : "l"(y + at % 5), "d"((double)at) : "memory");
}
"""


def _float_atomics(device: Device, text: str) -> bool:
    numbers = np.arange(ITEMS)
    starts = np.full(3, 0.5, "float32"), np.full(5, 0.5, "float64")
    buffers = [device.buffer(start) for start in starts]
    device.run(device.kernel(text, "probe_float_atomics"), ITEMS, 64, *buffers)
    for buffer, start in zip(buffers, starts, strict=True):
        check_equal("atomic sums", device.read(buffer, start), np.bincount(numbers % len(start), numbers) + 0.5)
    return True


# Where none of the macros is, kernels/common/device_fence.mako does not use the instruction.
_LAST_GROUP = """
#if !(defined(__NV_CL_C_VERSION) || defined(cl_nv_pragma_unroll) || defined(cl_nv_compiler_options))
#error "no macro of NVIDIA"
#endif
__kernel void probe_last_group(__global uint *parts, volatile __global int *counter, __global uint *o, const uint turn)
{
    __local int is_last;
    const int item = get_local_id(0), groups = get_num_groups(0);
    volatile __global uint *const seen = parts;
    seen[get_global_id(0)] = get_global_id(0) * turn;
    asm volatile("membar.gl;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item == 0)
        is_last = atomic_inc(counter) == groups - 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!is_last)
        return;
    asm volatile("membar.gl;" : : : "memory");
    uint sum = 0;
    for (int k = 0; k < groups; k++)
        sum += seen[k * get_local_size(0) + item];
    o[item] = sum;
    if (item == 0)
        atomic_xchg(counter, 0);
}
"""


def _last_group(device: Device, text: str) -> bool:
    group, groups = 64, 2000
    o, kernel = np.zeros(group, "uint32"), device.kernel(text, "probe_last_group")
    parts, counter = device.buffer(np.zeros(group * groups, "uint32")), device.buffer(np.zeros(1, "int32"))
    numbers = np.arange(group * groups, dtype="uint32").reshape(groups, group)
    for turn in range(1, 20):
        buffer = device.buffer(o)
        device.run(kernel, group * groups, group, parts, counter, buffer, np.uint32(turn))
        check_equal("sums of the last work-group", device.read(buffer, o), (turn * numbers).sum(0, dtype="uint32"))
    return True


# Probes that are likely to work come first: those after a probe that ends the process need another process.
PROBES: tuple[Probe, ...] = (
    Probe("plain", False, _PLAIN, _plain),
    Probe("local_memory", False, _LOCAL, _local_memory),
    Probe("atomics", False, _ATOMICS, _atomics),
    Probe("long_comparisons", False, _COMPARISONS, _long_comparisons),
    Probe("long_loops", False, _LOOPS, _long_loops),
    Probe("profiling", False, "", _profiling),
    Probe("vectors", [], _vector_text(), _vectors),
    Probe("fp64", False, _FP64, _fp64, extension="cl_khr_fp64"),
    Probe("fp16", False, _FP16, _fp16, extension="cl_khr_fp16"),
    Probe("warp_shuffles", False, _SHUFFLES, _warp_shuffles, is_risky=True, extension="cl_nv_compiler_options"),
    Probe("half_conversions", False, _HALVES, _half_conversions, is_risky=True, extension="cl_nv_compiler_options"),
    Probe("warp_votes", False, _VOTES, _warp_votes, is_risky=True, extension="cl_nv_compiler_options"),
    Probe("float_atomics", False, _FLOAT_ATOMICS, _float_atomics, is_risky=True, extension="cl_nv_compiler_options"),
    Probe("last_group", False, _LAST_GROUP, _last_group, is_risky=True, extension="cl_nv_compiler_options"),
    Probe("host_alignment", 0, _HOST, _host_alignment, of_cpus=True),
    Probe("struct_arguments", False, _STRUCTS, _struct_arguments),
    Probe("maps", False, _MAPS, _maps, of_cpus=True),
    Probe("private_as_global", False, _PRIVATE, _private_as_global, is_risky=True, of_cpus=True),
    Probe("nontemporal_stores", False, _NONTEMPORAL, _adds_one("probe_nontemporal_stores", 4), is_risky=True),
    Probe("prefetch", False, _PREFETCH, _adds_one("probe_prefetch", 1), is_risky=True),
    Probe("matrix_f64", 0, "", _matrix_f64, is_risky=True, extension="cl_nv_compiler_options"),
)
