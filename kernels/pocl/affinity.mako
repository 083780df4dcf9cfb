## The cores that the threads of a batch use (Linux, x86-64).
##
## PoCL's threads are pinned to a core each (runtime/pocl/affinity.py), but the host's thread, which computes too, is
## on one of these cores. So a worker that finds itself on the host's core moves to another one, and parked workers may
## use all cores, so that Linux can give each a core of its own. Before they end they are pinned again, unless
## something else has changed their cores meanwhile.
<%page args="name, max_cores"/>\
enum { SCHED_YIELD = 24, SCHED_SETAFFINITY = 203, SCHED_GETAFFINITY = 204, GETCPU = 309 };

static long ${name}_system_call(ulong number, ulong first, ulong second, ulong third)
{
    __asm__ volatile("syscall" : "+a"(number) : "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return number;
}

static void ${name}_yield()
{
    ${name}_system_call(SCHED_YIELD, 0, 0, 0);
}

static uint ${name}_current_core()
{
    uint core = ~0u;
    ${name}_system_call(GETCPU, (ulong)&core, 0, 0);
    return core;
}

// Writes which core the host's thread is on.
static void ${name}_write_host_core(volatile __global ${name}_control *control)
{
    if (!control->are_pinned) return;
    const uint core = ${name}_current_core();
    if (core != control->host_core) __atomic_store_n(&control->host_core, core, __ATOMIC_RELAXED);
}

// Whether this thread may use exactly these cores. If not, something else has changed its cores.
static bool ${name}_may_use(const ulong *cores)
{
    ulong now[${max_cores // 64}];
    const long bytes = ${name}_system_call(SCHED_GETAFFINITY, 0, sizeof now, (ulong)now);
    for (long i = 0; i < bytes / 8; ++i)
        if (now[i] != cores[i]) return false;
    return bytes > 0;
}

// Copies the set of all cores; returns whether this thread may use all of them.
static bool ${name}_is_unpinned(volatile __global ${name}_control *control, ulong *all)
{
    for (int i = 0; i < ${max_cores // 64}; ++i) all[i] = control->cores[i];
    return ${name}_may_use(all);
}

// Moves this thread off the host's core. Where there is no other core, the system call fails.
static void ${name}_leave_host_core(volatile __global ${name}_control *control)
{
    const uint host = __atomic_load_n(&control->host_core, __ATOMIC_RELAXED);
    ulong all[${max_cores // 64}], others[${max_cores // 64}];
    if (!control->are_pinned || ${name}_current_core() != host || !${name}_is_unpinned(control, all)) return;
    for (int i = 0; i < ${max_cores // 64}; ++i) others[i] = all[i] & ~((ulong)(host / 64 == i) << host % 64);
    const long error = ${name}_system_call(SCHED_SETAFFINITY, 0, sizeof others, (ulong)others);
    if (error < 0 || !${name}_may_use(others)) return;
    ${name}_system_call(SCHED_SETAFFINITY, 0, sizeof all, (ulong)all);
}

// Unpins a thread that will be parked, or that is on the host's core. Copies its cores; returns their number of bytes,
// 0 if the thread is still pinned.
static long ${name}_unpin(volatile __global ${name}_control *control, ulong *own_cores, bool will_be_parked)
{
    if (!control->are_pinned) return 0;
    const bool is_on_host_core = ${name}_current_core() == __atomic_load_n(&control->host_core, __ATOMIC_RELAXED);
    if (!will_be_parked && !is_on_host_core) return 0;
    const long bytes = ${name}_system_call(SCHED_GETAFFINITY, 0, ${max_cores // 8}, (ulong)own_cores);
    if (bytes <= 0) return 0;
    ulong all[${max_cores // 64}];
    ${name}_system_call(SCHED_SETAFFINITY, 0, sizeof control->cores, (ulong)control->cores);
    ${name}_leave_host_core(control);
    return ${name}_is_unpinned(control, all) ? bytes : 0;
}

static void ${name}_repin(volatile __global ${name}_control *control, const ulong *own_cores, long bytes)
{
    ulong all[${max_cores // 64}];
    if (bytes > 0 && ${name}_is_unpinned(control, all))
        ${name}_system_call(SCHED_SETAFFINITY, 0, bytes, (ulong)own_cores);
}
