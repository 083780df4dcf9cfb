## Work-items of a dispatch that stay for the next call, and how the host's thread calls them.
<%page args="name, looks"/>\
static bool ${name}_turn(volatile __global uint *state, uint from, uint to)
{
    return __atomic_compare_exchange_n(state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

// After its part a work-item stands by for some time: the next call needs no launch if it comes soon.
static void ${name}_stand_by(volatile __global ${name}_place *places, uint own, volatile __global ${name}_news *news,
                              uint launch, ulong ticks)
{
    volatile __global ${name}_place *const place = places + own;
    __atomic_store_n(&place->state, READY, __ATOMIC_RELEASE);
    ulong since = __builtin_ia32_rdtsc();
    uint last = __atomic_load_n(&news->call, __ATOMIC_RELAXED);
    for (uint looks = 1;; ++looks) {
        const uint state = __atomic_load_n(&place->state, __ATOMIC_ACQUIRE);
        if (state >= CALLED && ${name}_turn(&place->state, state, BUSY)) {
            const ${name}_job job = *(__global ${name}_job *)&place->job;
            ${name}_make_way(news);
            ${name}_work(job);
            ${name}_through(job);
            __atomic_store_n(&place->state, READY, __ATOMIC_RELEASE);
            since = __builtin_ia32_rdtsc();
        } else if (state == READY) {
            const bool is_sent_away = __atomic_load_n(&news->launch, __ATOMIC_RELAXED) != launch;
            const uint call = __atomic_load_n(&news->call, __ATOMIC_ACQUIRE);
            if (call != last && own < __atomic_load_n(&news->wanted, __ATOMIC_RELAXED))
                since = __builtin_ia32_rdtsc();  // others were faster
            last = call;
            if ((is_sent_away || __builtin_ia32_rdtsc() - since > ticks) && ${name}_turn(&place->state, READY, AWAY)) return;
        }
        __builtin_ia32_pause();
        if (looks % ${looks} == 0) ${name}_yield();
    }
}

// Call those that stand by; return how many do.
static uint ${name}_call_all(const ${name}_job j, volatile __global ${name}_place *places, uint count, uint call)
{
    uint called = 0;
    for (uint k = 0; k < count; ++k)
        if (${name}_turn(&places[k].state, READY, CLAIMED)) {
            ${name}_job job = j;
            job.own = ++called;
            *(__global ${name}_job *)&places[k].job = job;
            __atomic_store_n(&places[k].state, CALLED + call, __ATOMIC_RELEASE);
        }
    return called;
}
