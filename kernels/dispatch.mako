## All kernels of a repeated call in one launch: work-items share the items of stages, each of which is a kernel.
<%page args="name, patience, shares"/>\
typedef struct { ulong entry, arguments, nx, ny, nz, items; long after, unused; } ${name}_stage;

// Calls a function by its address, which OpenCL C has no words for, as the System V ABI of x86-64 wants it.
static __attribute__((noinline)) void ${name}_call(ulong entry, ulong arguments, ulong numbers)
{
    __asm__ volatile("movq %%rsp, %%rbx; subq $256, %%rsp; andq $-64, %%rsp; call *%%rax; movq %%rbx, %%rsp"
        : "+a"(entry), "+D"(arguments), "+S"(numbers)
        :
        : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

// Somebody is at what we wait for. If it takes long, another program may need the core to get on.
static __attribute__((noinline)) void ${name}_wait(volatile __global uint *done, uint items)
{
    for (uint i = 0; __atomic_load_n(done, __ATOMIC_ACQUIRE) < items; ++i) {
        __builtin_ia32_pause();
        if (i > ${patience}) {
            ulong sched_yield = 24;
            __asm__ volatile("syscall" : "+a"(sched_yield) : : "rcx", "r11", "memory");
        }
    }
}

// A stage's items are in shares, so that what a participant has written is still in its core's cache when it comes to the
// same share of the next stage. Counters, 64 bytes apart: one of the participants that are through; for each stage one of
// the items that are done, and one for each share of those that somebody has taken. They are zero between two launches.
// Items are taken only after all stages up to `after` are done; whoever waits for them has taken nothing, so that one
// participant gets through all stages, however late the others come.
// The work-items participate, and perhaps the host's thread: it comes with no size, and leaves when everything is done.
// Whatever it has set (a library may flush subnormals to zero), it computes as PoCL's threads do: rounding to nearest.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(__global const uchar *table, const ulong begin, const uint count, const uint participants,
             volatile __global uint *all_counters, const ulong first_counter)
{
    const __global ${name}_stage *stages = (const __global ${name}_stage *)(table + begin);
    const ulong shares = min(participants, ${shares}u), own = get_global_id(0) % shares;
    const ulong line = 16, pitch = line * (shares + 1);
    volatile __global uint *counters = all_counters + first_counter;
    const uint theirs = __builtin_ia32_stmxcsr();
    if (get_global_size(0) == 0) __builtin_ia32_ldmxcsr(0x1f80);
    long known = 0;
    for (uint k = 0; k < count; ++k) {
        const ${name}_stage s = stages[k];
        volatile __global uint *done = counters + line + pitch * k;
        for (ulong turn = 0; turn < shares; ++turn) {
            const ulong share = (own + turn) % shares, first = s.items * share / shares;
            const ulong end = s.items * (share + 1) / shares;
            volatile __global uint *taken = done + line * (share + 1);
            if (first + __atomic_load_n(taken, __ATOMIC_RELAXED) >= end) continue;
            for (; known <= s.after; ++known) ${name}_wait(counters + line + pitch * known, stages[known].items);
            for (ulong i; (i = first + __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED)) < end;) {
                const size_t numbers[6] = {i % s.nx, i / s.nx % s.ny, i / s.nx / s.ny, s.nx, s.ny, s.nz};
                ${name}_call(s.entry, (ulong)stages + s.arguments, (ulong)numbers);
                __atomic_fetch_add(done, 1u, __ATOMIC_RELEASE);
            }
        }
    }
    if (get_global_size(0) == 0) {
        for (; known < count; ++known) ${name}_wait(counters + line + pitch * known, stages[known].items);
        __builtin_ia32_ldmxcsr(theirs);
    }
    if (__atomic_fetch_add(counters, 1u, __ATOMIC_ACQ_REL) == participants - 1) {
        for (ulong i = 1; i <= (shares + 1) * count; ++i) counters[line * i] = 0;
        __atomic_store_n(counters, 0u, __ATOMIC_RELEASE);
    }
}
