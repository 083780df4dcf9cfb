## Parked workers: work-items of a batch that wait for the next call, and how the host's thread passes it to them.
##
## The state of a mailbox: EMPTY (no worker), READY (a worker polls it), CLAIMED (the host writes a job), CALLED + n
## (there is a job, of call n), BUSY (the worker has taken it).
<%page args="name, polls"/>\
static bool ${name}_compare_exchange(volatile __global uint *state, uint from, uint to)
{
    return __atomic_compare_exchange_n(state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

// Waits for calls after the worker's own, and does its part of them. Returns when no call has come for some cycles, or
// when there is another launch.
static void ${name}_park(volatile __global ${name}_mailbox *mailboxes, uint own,
                         volatile __global ${name}_control *control, uint launch, ulong spin_cycles)
{
    volatile __global ${name}_mailbox *const mailbox = mailboxes + own;
    __atomic_store_n(&mailbox->state, READY, __ATOMIC_RELEASE);
    ulong since = __builtin_ia32_rdtsc();
    uint last_call = __atomic_load_n(&control->call, __ATOMIC_RELAXED);
    for (uint poll = 1;; ++poll) {
        const uint state = __atomic_load_n(&mailbox->state, __ATOMIC_ACQUIRE);
        if (state >= CALLED && ${name}_compare_exchange(&mailbox->state, state, BUSY)) {
            const ${name}_job job = *(__global ${name}_job *)&mailbox->job;
            ${name}_leave_host_core(control);
            ${name}_work(job);
            ${name}_finish(job);
            __atomic_store_n(&mailbox->state, READY, __ATOMIC_RELEASE);
            since = __builtin_ia32_rdtsc();
        } else if (state == READY) {
            const bool is_released = __atomic_load_n(&control->launch, __ATOMIC_RELAXED) != launch;
            const uint call = __atomic_load_n(&control->call, __ATOMIC_ACQUIRE);
            if (call != last_call && own < __atomic_load_n(&control->wanted, __ATOMIC_RELAXED))
                since = __builtin_ia32_rdtsc();  // a call that needed no more workers: the next one may
            last_call = call;
            const bool is_over = is_released || __builtin_ia32_rdtsc() - since > spin_cycles;
            if (is_over && ${name}_compare_exchange(&mailbox->state, READY, EMPTY)) return;
        }
        __builtin_ia32_pause();
        if (poll % ${polls} == 0) ${name}_yield();
    }
}

// Gives a job to each parked worker among the first `count`; returns to how many.
static uint ${name}_call_workers(const ${name}_job job, volatile __global ${name}_mailbox *mailboxes, uint count,
                                 uint call)
{
    uint called = 0;
    for (uint k = 0; k < count; ++k) {
        if (!${name}_compare_exchange(&mailboxes[k].state, READY, CLAIMED)) continue;
        ${name}_job own = job;
        own.first_share = ++called;
        *(__global ${name}_job *)&mailboxes[k].job = own;
        __atomic_store_n(&mailboxes[k].state, CALLED + call, __ATOMIC_RELEASE);
    }
    return called;
}
