## All kernels of a repeated call in one launch: work-items share the items of stages, each of which is a kernel.
<%page args="name, patience, looks, shares, cores"/>\
typedef struct { ulong entry, arguments, nx, ny, nz, items; long after, unused; } ${name}_stage;

// What a participant needs of a call, and the place for it of one that stands by; CALLED and more: by which call.
typedef struct {
    const __global ${name}_stage *stages;
    volatile __global uint *counters;
    ulong shares, own, count;
} ${name}_job;
typedef struct { uint state, apart[31]; ${name}_job job __attribute__((aligned(128))); } ${name}_place;
// The first place is for what all look at: the number of the last launch and of the last call, the core of the host's
// thread, how many the last call wanted, and the cores that threads may use, if they are tied to one each.
typedef struct { uint launch, call, host, are_tied, wanted, apart[27]; ulong cores[${cores // 64}]; } ${name}_news;
enum { AWAY, READY, CLAIMED, BUSY, CALLED };

// Calls a function by its address, which OpenCL C has no words for, as the System V ABI of x86-64 wants it.
static __attribute__((noinline)) void ${name}_call(ulong entry, ulong arguments, ulong numbers)
{
    __asm__ volatile("movq %%rsp, %%rbx; subq $256, %%rsp; andq $-64, %%rsp; call *%%rax; movq %%rbx, %%rsp"
        : "+a"(entry), "+D"(arguments), "+S"(numbers)
        :
        : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

<%include file="/pocl/affinity.mako" args="name=name, cores=cores"/>
// Somebody is at what we wait for. If it takes long, another program may need the core to get on.
static __attribute__((noinline)) void ${name}_wait(volatile __global uint *done, uint items)
{
    for (uint i = 0; __atomic_load_n(done, __ATOMIC_ACQUIRE) < items; ++i) {
        __builtin_ia32_pause();
        if (i > ${patience}) ${name}_yield();
    }
}

// A stage's items are in shares, so that what a participant has written is still in its core's cache when it comes to the
// same share of the next stage. Counters, 64 bytes apart: one of the participants that are through, beside it how many
// there are; for each stage one of the items that are done, and one for each share of those that somebody has taken. They
// are zero between two calls.
// Items are taken only after all stages up to `after` are done; whoever waits for them has taken nothing, so that one
// participant gets through all stages, however late the others come. Returns up to which stage all is known to be done.
static long ${name}_work(const ${name}_job j)
{
    const ulong line = 16, pitch = line * (j.shares + 1);
    long known = 0;
    for (ulong k = 0; k < j.count; ++k) {
        const ${name}_stage s = j.stages[k];
        volatile __global uint *done = j.counters + line + pitch * k;
        for (ulong turn = 0; turn < j.shares; ++turn) {
            const ulong share = (j.own + turn) % j.shares, first = s.items * share / j.shares;
            const ulong end = s.items * (share + 1) / j.shares;
            volatile __global uint *taken = done + line * (share + 1);
            if (first + __atomic_load_n(taken, __ATOMIC_RELAXED) >= end) continue;
            for (; known <= s.after; ++known) ${name}_wait(j.counters + line + pitch * known, j.stages[known].items);
            for (ulong i; (i = first + __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED)) < end;) {
                const size_t numbers[6] = {i % s.nx, i / s.nx % s.ny, i / s.nx / s.ny, s.nx, s.ny, s.nz};
                ${name}_call(s.entry, (ulong)j.stages + s.arguments, (ulong)numbers);
                __atomic_fetch_add(done, 1u, __ATOMIC_RELEASE);
            }
        }
    }
    return known;
}

// The last participant that is through sets the counters to zero.
static void ${name}_through(const ${name}_job j)
{
    if (__atomic_add_fetch(j.counters, 1u, __ATOMIC_ACQ_REL) != __atomic_load_n(j.counters + 1, __ATOMIC_RELAXED)) return;
    j.counters[1] = 0;
    for (ulong i = 1; i <= (j.shares + 1) * j.count; ++i) j.counters[16 * i] = 0;
    __atomic_store_n(j.counters, 0u, __ATOMIC_RELEASE);
}

<%include file="/pocl/worker_pool.mako" args="name=name, looks=looks"/>
// The work-items participate, and perhaps the host's thread: it comes with no size, and leaves when everything is done.
// It may call those that stand by; who has not come by then is not needed any more.
// Whatever it has set (a library may flush subnormals to zero), it computes as PoCL's threads do: rounding to nearest.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(__global const uchar *table, const ulong begin, const uint count, uint participants,
             volatile __global uint *all_counters, const ulong first_counter, __global uchar *all_places, const uint number,
             const ulong ticks)
{
    const bool is_host = get_global_size(0) == 0;
    const ulong shares = min(participants, ${shares}u);
    volatile __global ${name}_news *news = (volatile __global ${name}_news *)all_places;
    volatile __global ${name}_place *places = (volatile __global ${name}_place *)(news + 1);
    const ${name}_job j = {(const __global ${name}_stage *)(table + begin), all_counters + first_counter, shares,
                           get_global_id(0) % shares, count};
    if (!is_host) {
        ulong home[${cores // 64}];
        const long tied = participants > get_global_size(0) ? ${name}_untie(news, home, ticks) : 0;
        ${name}_work(j);
        if (participants == get_global_size(0)) __atomic_store_n(j.counters + 1, participants, __ATOMIC_RELAXED);
        ${name}_through(j);
        if (ticks) ${name}_stand_by(places, get_global_id(0), news, number, ticks);
        ${name}_tie(news, home, tied);
        return;
    }
    const uint theirs = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    if (participants > 1) ${name}_tell_core(news);
    if (ticks) {
        participants = 1 + ${name}_call_all(j, places, ticks, number);
        __atomic_store_n(&news->wanted, (uint)ticks, __ATOMIC_RELAXED);
        __atomic_store_n(&news->call, number, __ATOMIC_RELEASE);
    }
    for (long known = ${name}_work(j); known < count; ++known)
        ${name}_wait(j.counters + 16 * (1 + (shares + 1) * known), j.stages[known].items);
    for (ulong k = 0; k < ticks; ++k) participants -= ${name}_turn(&places[k].state, CALLED + number, READY);
    __builtin_ia32_ldmxcsr(theirs);
    __atomic_store_n(j.counters + 1, participants, __ATOMIC_RELAXED);
    ${name}_through(j);
}
