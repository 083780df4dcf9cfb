## Linux, x86-64: which cores the threads of a dispatch use. PoCL's threads are tied to a core each (runtime/cores.py), but
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

// Leave the core of the host's thread to it. Where there is no other one, the system refuses.
static void ${name}_make_way(volatile __global ${name}_news *news)
{
    const uint host = __atomic_load_n(&news->host, __ATOMIC_RELAXED);
    if (!news->are_tied || ${name}_core() != host) return;
    ulong others[${cores // 64}];
    for (int i = 0; i < ${cores // 64}; ++i) others[i] = news->cores[i] & ~((ulong)(host / 64 == i) << host % 64);
    ${name}_system(SCHED_SETAFFINITY, 0, sizeof others, (ulong)others);
    ${name}_system(SCHED_SETAFFINITY, 0, sizeof news->cores, (ulong)news->cores);
}

// Lets a thread leave its core if it stays for more calls, or if the host's thread is there; returns how many bytes tell
// where it was and where it may be, 0 if it is tied still.
static long ${name}_untie(volatile __global ${name}_news *news, ulong *home, ulong *free, bool stays)
{
    if (!news->are_tied || !(stays || ${name}_core() == __atomic_load_n(&news->host, __ATOMIC_RELAXED))) return 0;
    const long bytes = ${name}_system(SCHED_GETAFFINITY, 0, ${cores // 8}, (ulong)home);
    if (bytes <= 0) return 0;
    ${name}_system(SCHED_SETAFFINITY, 0, sizeof news->cores, (ulong)news->cores);
    ${name}_make_way(news);
    return ${name}_system(SCHED_GETAFFINITY, 0, ${cores // 8}, (ulong)free) == bytes ? bytes : 0;
}

static void ${name}_tie(const ulong *home, const ulong *free, long bytes)
{
    ulong now[${cores // 64}];
    if (bytes <= 0 || ${name}_system(SCHED_GETAFFINITY, 0, ${cores // 8}, (ulong)now) != bytes) return;
    for (long i = 0; i < bytes / 8; ++i)
        if (now[i] != free[i]) return;
    ${name}_system(SCHED_SETAFFINITY, 0, bytes, (ulong)home);
}
