## Linux, x86-64: which cores the threads of a dispatch use. PoCL's threads are tied to a core each (runtime/pocl/affinity.py), but
## one of these is that of the host's thread, which computes too. So a thread that finds itself there goes elsewhere, and
## those that stand by may go where they like: so Linux can give each a core of its own. Before they return they are tied
## again, if nobody else has said meanwhile where they belong.
<%page args="name, cores"/>\
enum { SCHED_YIELD = 24, SCHED_SETAFFINITY = 203, SCHED_GETAFFINITY = 204, GETCPU = 309 };

static long ${name}_system(ulong call, ulong first, ulong second, ulong third)
{
    __asm__ volatile("syscall" : "+a"(call) : "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return call;
}

static void ${name}_yield()
{
    ${name}_system(SCHED_YIELD, 0, 0, 0);
}

static uint ${name}_core()
{
    uint core = ~0u;
    ${name}_system(GETCPU, (ulong)&core, 0, 0);
    return core;
}

static void ${name}_tell_core(volatile __global ${name}_news *news)
{
    if (!news->are_tied) return;
    const uint core = ${name}_core();
    if (core != news->host) __atomic_store_n(&news->host, core, __ATOMIC_RELAXED);
}

// Whether these are the cores of this thread; if not, somebody has said meanwhile that it belongs elsewhere.
static bool ${name}_may_use(const ulong *cores)
{
    ulong now[${cores // 64}];
    const long bytes = ${name}_system(SCHED_GETAFFINITY, 0, sizeof now, (ulong)now);
    for (long i = 0; i < bytes / 8; ++i)
        if (now[i] != cores[i]) return false;
    return bytes > 0;
}

// Copies which cores there are; returns whether this thread may use all of them.
static bool ${name}_is_free(volatile __global ${name}_news *news, ulong *all)
{
    for (int i = 0; i < ${cores // 64}; ++i) all[i] = news->cores[i];
    return ${name}_may_use(all);
}

// Leave the core of the host's thread to it. Where there is no other one, the system refuses.
static void ${name}_make_way(volatile __global ${name}_news *news)
{
    const uint host = __atomic_load_n(&news->host, __ATOMIC_RELAXED);
    ulong all[${cores // 64}], others[${cores // 64}];
    if (!news->are_tied || ${name}_core() != host || !${name}_is_free(news, all)) return;
    for (int i = 0; i < ${cores // 64}; ++i) others[i] = all[i] & ~((ulong)(host / 64 == i) << host % 64);
    if (${name}_system(SCHED_SETAFFINITY, 0, sizeof others, (ulong)others) < 0 || !${name}_may_use(others)) return;
    ${name}_system(SCHED_SETAFFINITY, 0, sizeof all, (ulong)all);
}

// Lets a thread leave its core if it stays for more calls, or if the host's thread is there; returns how many bytes tell
// where it was, 0 if it is tied still.
static long ${name}_untie(volatile __global ${name}_news *news, ulong *home, bool stays)
{
    if (!news->are_tied || !(stays || ${name}_core() == __atomic_load_n(&news->host, __ATOMIC_RELAXED))) return 0;
    const long bytes = ${name}_system(SCHED_GETAFFINITY, 0, ${cores // 8}, (ulong)home);
    if (bytes <= 0) return 0;
    ulong all[${cores // 64}];
    ${name}_system(SCHED_SETAFFINITY, 0, sizeof news->cores, (ulong)news->cores);
    ${name}_make_way(news);
    return ${name}_is_free(news, all) ? bytes : 0;
}

static void ${name}_tie(volatile __global ${name}_news *news, const ulong *home, long bytes)
{
    ulong all[${cores // 64}];
    if (bytes > 0 && ${name}_is_free(news, all)) ${name}_system(SCHED_SETAFFINITY, 0, bytes, (ulong)home);
}
