## A kernel batch: all kernels of a replayed call in one launch; runtime/pocl/batch.py explains it.
##
## Operands    table - for each kernel a head (entry point, offset of its arguments, NDRange, dependency), then
##             arguments and values; counters - see below; mailboxes - the control block, then one mailbox for each
##             worker.
## NDRange     One work-item for each worker. The host thread calls the entry point of this kernel with a global size of
##             0.
## Work        The work-items of each kernel are divided into shares. Each participant goes through the kernels in
##             order, and through the shares of each, beginning with its own, and takes work-items until none are left.
## Invariants  Work-items of a kernel are taken only when all kernels up to `depends_on` have ended. A participant that
##             waits for them holds no work-item, so one participant alone gets through all kernels, however late the
##             others come. All counters are zero between two calls.
##             Only PoCL on x86-64 Linux: it relies on the System V ABI, and on the host and the device having the same
##             memory.
<%page args="name, spins, polls, max_shares, max_cores, flushes_subnormals"/>\
typedef struct { ulong entry, arguments, nx, ny, nz, items; long depends_on, unused; } ${name}_kernel;

// The call, as a participant reads it.
typedef struct {
    const __global ${name}_kernel *kernels;
    volatile __global uint *counters;
    ulong shares, first_share, count;
} ${name}_job;

// A worker's mailbox. The state and the job are on cache lines of their own.
typedef struct { uint state, padding[31]; ${name}_job job __attribute__((aligned(128))); } ${name}_mailbox;

// The control block: numbers of the last launch and of the last call, the core of the host's thread, whether threads
// are pinned to a core each, how many workers the last call wanted, and the set of cores.
typedef struct {
    uint launch, call, host_core, are_pinned, wanted, padding[27];
    ulong cores[${max_cores // 64}];
} ${name}_control;
enum { EMPTY, READY, CLAIMED, BUSY, CALLED };

// Calls an entry point by its address, which OpenCL C cannot express, as the System V ABI of x86-64 requires.
static __attribute__((noinline)) void ${name}_call(ulong entry, ulong arguments, ulong ids)
{
    __asm__ volatile("movq %%rsp, %%rbx; subq $256, %%rsp; andq $-64, %%rsp; call *%%rax; movq %%rbx, %%rsp"
        : "+a"(entry), "+D"(arguments), "+S"(ids)
        :
        : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

<%include file="/pocl/affinity.mako" args="name=name, max_cores=max_cores"/>
// Waits until all work-items of a kernel are done; other participants have them. After many polls the core is yielded:
// the participant that is waited for may need it.
static __attribute__((noinline)) void ${name}_wait(volatile __global uint *done, uint items)
{
    for (uint poll = 0; __atomic_load_n(done, __ATOMIC_ACQUIRE) < items; ++poll) {
        __builtin_ia32_pause();
        if (poll > ${spins}) ${name}_yield();
    }
}

// Does a participant's part of a call; returns up to which kernel all are known to have ended.
//
// A participant begins with the same share in each kernel, so what it has written is still in its core's cache.
// Counters are 64 bytes apart: one of the participants that have finished, beside it their number; then for each
// kernel one of the work-items that are done, and for each share one of those that are taken.
static long ${name}_work(const ${name}_job job)
{
    const ulong line = 16, pitch = line * (job.shares + 1);
    long ended = 0;
    for (ulong k = 0; k < job.count; ++k) {
        const ${name}_kernel kernel_k = job.kernels[k];
        volatile __global uint *done = job.counters + line + pitch * k;
        for (ulong turn = 0; turn < job.shares; ++turn) {
            const ulong share = (job.first_share + turn) % job.shares;
            const ulong begin = kernel_k.items * share / job.shares;
            const ulong end = kernel_k.items * (share + 1) / job.shares;
            volatile __global uint *taken = done + line * (share + 1);
            if (begin + __atomic_load_n(taken, __ATOMIC_RELAXED) >= end) continue;
            for (; ended <= kernel_k.depends_on; ++ended)
                ${name}_wait(job.counters + line + pitch * ended, job.kernels[ended].items);
            for (ulong i; (i = begin + __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED)) < end;) {
                const ulong nx = kernel_k.nx, ny = kernel_k.ny;
                const size_t ids_and_sizes[6] = {i % nx, i / nx % ny, i / nx / ny, nx, ny, kernel_k.nz};
                ${name}_call(kernel_k.entry, (ulong)job.kernels + kernel_k.arguments, (ulong)ids_and_sizes);
                __atomic_fetch_add(done, 1u, __ATOMIC_RELEASE);
            }
        }
    }
    return ended;
}

// Counts a participant that has finished. The last one sets all counters to zero.
static void ${name}_finish(const ${name}_job job)
{
    const uint finished = __atomic_add_fetch(job.counters, 1u, __ATOMIC_ACQ_REL);
    if (finished != __atomic_load_n(job.counters + 1, __ATOMIC_RELAXED)) return;
    job.counters[1] = 0;
    for (ulong i = 1; i <= (job.shares + 1) * job.count; ++i) job.counters[16 * i] = 0;
    __atomic_store_n(job.counters, 0u, __ATOMIC_RELEASE);
}

<%include file="/pocl/worker_pool.mako" args="name=name, polls=polls"/>
// The host's thread comes with a global size of 0, and returns when all kernels have ended. Then `number` is that of
// the call and `spin_cycles` the number of parked workers that it uses. A worker that has not taken its job by then
// is not needed. For a worker `number` is that of its launch.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(__global const uchar *table, const ulong table_begin, const uint count, uint participants,
             volatile __global uint *all_counters, const ulong first_counter, __global uchar *control_and_mailboxes,
             const uint number, const ulong spin_cycles)
{
    const bool is_host = get_global_size(0) == 0;
    const ulong shares = min(participants, ${max_shares}u);
    volatile __global ${name}_control *control = (volatile __global ${name}_control *)control_and_mailboxes;
    volatile __global ${name}_mailbox *mailboxes = (volatile __global ${name}_mailbox *)(control + 1);
    const __global ${name}_kernel *kernels = (const __global ${name}_kernel *)(table + table_begin);
    const ${name}_job job = {kernels, all_counters + first_counter, shares, get_global_id(0) % shares, count};
    if (!is_host) {
        ulong own_cores[${max_cores // 64}];
        const bool has_host = participants > get_global_size(0);
        const long pinned_bytes = has_host ? ${name}_unpin(control, own_cores, spin_cycles) : 0;
        ${name}_work(job);
        if (!has_host) __atomic_store_n(job.counters + 1, participants, __ATOMIC_RELAXED);
        ${name}_finish(job);
        if (spin_cycles) ${name}_park(mailboxes, get_global_id(0), control, number, spin_cycles);
        ${name}_repin(control, own_cores, pinned_bytes);
        return;
    }
    // The host computes as PoCL's threads do, whatever a library has set: with rounding to nearest, and with subnormals
    // unless the programs are built to take them for zero.
    const uint own_mxcsr = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(${'0x9fc0' if flushes_subnormals else '0x1f80'});
    if (participants > 1) ${name}_write_host_core(control);
    const ulong wanted = spin_cycles;
    if (wanted) {
        participants = 1 + ${name}_call_workers(job, mailboxes, wanted, number);
        __atomic_store_n(&control->wanted, (uint)wanted, __ATOMIC_RELAXED);
        __atomic_store_n(&control->call, number, __ATOMIC_RELEASE);
    }
    for (long ended = ${name}_work(job); ended < count; ++ended)
        ${name}_wait(job.counters + 16 * (1 + (shares + 1) * ended), job.kernels[ended].items);
    for (ulong k = 0; k < wanted; ++k)
        participants -= ${name}_compare_exchange(&mailboxes[k].state, CALLED + number, READY);
    __builtin_ia32_ldmxcsr(own_mxcsr);
    __atomic_store_n(job.counters + 1, participants, __ATOMIC_RELAXED);
    ${name}_finish(job);
}
