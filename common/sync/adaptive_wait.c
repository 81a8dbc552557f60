/* adaptive_wait.c - see adaptive_wait.h. */
#include "common/sync/adaptive_wait.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    LONG_NS =
        500000, /* longer waits are slept through; the slowest blocking round trip seen in a data centre's VMs took 350 us */
    LOOK_LEAST_NS = 10000,
    WINDOW = 4,               /* a wait looks for so many times what such waits took lately */
    TRY_LEAST = 32,           /* one wait in so many, or fewer, does what was not the faster of the two */
    TRY_MOST = 4096,          /* … and one in so many does */
    TRY_FIRST = 8,            /* so many waits sleep before the first one looks */
    CREDIT_MOST_NS = 1000000, /* of looking in vain … */
    CREDIT_SHARE = 16,        /* … which comes back as this part of the time */
    GAP_NS = 30000,           /* between two looks: somebody else had the processor, and may want it again */
    CROWDED_LEAST =
        4, /* waits that sleep for it, twice as many each time, one less for each that looked undisturbed */
    CROWDED_MOST = 128,
    VAIN_MOST = 8,        /* waits in a row, of those that look for a given time */
    PAUSES = 8,           /* between two looks, each of which is a system call */
    LOOKS_PER_YIELD = 64, /* of a wait that never sleeps */
};

void rg_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* --- processors --- */

/* Whole processors of "QUOTA PERIOD"; UINT_MAX for "max PERIOD" and what is no quota. */
static unsigned read_quota(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT_MAX;
    long long quota = 0, period = 0;
    const int n = fscanf(file, "%lld %lld", &quota, &period);
    fclose(file);
    if (n != 2 || quota <= 0 || period <= 0)
        return UINT_MAX;
    return quota / period < 1 ? 1 : (unsigned)(quota / period);
}

/* The same of cgroups' first version: -1 is none. */
static unsigned read_old_quota(const char *folder)
{
    long long value[2] = {0, 0};
    static const char *const names[2] = {"cfs_quota_us", "cfs_period_us"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/cpu.%s", folder, names[i]);
        FILE *file = fopen(path, "re");
        if (!file)
            return UINT_MAX;
        const int n = fscanf(file, "%lld", &value[i]);
        fclose(file);
        if (n != 1 || value[i] <= 0)
            return UINT_MAX;
    }
    return value[0] / value[1] < 1 ? 1 : (unsigned)(value[0] / value[1]);
}

unsigned rg_processors_of_cgroup(const char *root)
{
    char path[PATH_MAX], own[1024] = "";
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    for (char line[1024]; file && fgets(line, sizeof line, file);)
        if (strncmp(line, "0::/", 4) == 0)
            snprintf(own, sizeof own, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    if (file)
        fclose(file);
    char folder[PATH_MAX / 2];
    snprintf(folder, sizeof folder, "%s/sys/fs/cgroup/cpu", root);
    unsigned least = read_old_quota(folder);
    /* each folder on the way up may have a limit of its own */
    for (char *end = own + strlen(own);; end = strrchr(own, '/')) {
        if (!end)
            break;
        *end = '\0';
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/cpu.max", root, own);
        const unsigned quota = read_quota(path);
        least = quota < least ? quota : least;
    }
    return least;
}

unsigned rg_processors(void)
{
    cpu_set_t set;
    unsigned n = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = (unsigned)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0) /* more than fit into the set */
        n = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned quota = rg_processors_of_cgroup("");
    return quota < n ? quota : n > 0 ? n : 1;
}

/* --- waiting --- */

enum rg_status rg_wait_mode_parse(const char *text, enum rg_wait_mode *out)
{
    if (!text || !*text)
        *out = RG_WAIT_DEFAULT;
    else if (strcmp(text, "auto") == 0)
        *out = RG_WAIT_AUTO;
    else if (strcmp(text, "block") == 0)
        *out = RG_WAIT_BLOCK;
    else if (strcmp(text, "spin") == 0)
        *out = RG_WAIT_SPIN;
    else
        return RG_ERR_INVALID;
    return RG_OK;
}

void rg_adaptive_wait_init(struct rg_adaptive_wait *wait, enum rg_wait_mode mode)
{
    *wait = (struct rg_adaptive_wait){.mode = mode,
                                      .pauses = PAUSES,
                                      .as_before = TRY_FIRST,
                                      .crowds = CROWDED_LEAST,
                                      .crowds_most = CROWDED_MOST,
                                      .credit_ns = CREDIT_MOST_NS};
    if (mode == RG_WAIT_DEFAULT) {
        const char *text = secure_getenv("REMOTE_GPU_WAIT");
        static atomic_flag told = ATOMIC_FLAG_INIT;
        if (rg_wait_mode_parse(text, &wait->mode) != RG_OK && !atomic_flag_test_and_set(&told))
            rg_warn("REMOTE_GPU_WAIT is auto, block or spin, not '%s'", text);
        if (wait->mode == RG_WAIT_DEFAULT)
            wait->mode = RG_WAIT_AUTO;
    }
    wait->alone = wait->mode != RG_WAIT_BLOCK && rg_processors() < 2;
    wait->limited = wait->alone && rg_processors_of_cgroup("") < 2;
}

static bool spin_on(struct rg_adaptive_wait *wait)
{
    rg_cpu_relax();
    if (wait->alone || ++wait->looks % LOOKS_PER_YIELD == 0)
        sched_yield(); /* on a busy machine the one that is waited for may need this very processor */
    return true;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

static uint64_t at_least(uint64_t value, uint64_t least)
{
    return value > least ? value : least;
}

/* Whether waits that looked were faster than those that slept, by more than they differ by chance. */
static bool looking_is_faster(const struct rg_adaptive_wait *wait)
{
    return wait->took_ns[1] && wait->took_ns[1] < wait->took_ns[0] - wait->took_ns[0] / 10;
}

/* After how many waits the slower of the two is tried again: it then costs at most one in TRY_LEAST of their time. */
static unsigned next_try(const struct rg_adaptive_wait *wait)
{
    const uint64_t a = wait->took_ns[0], b = wait->took_ns[1];
    if (!a || !b)
        return TRY_LEAST;
    const uint64_t faster = at_most(a, b), slower = at_least(a, b);
    return (unsigned)at_most(TRY_LEAST * slower / faster, TRY_MOST);
}

/* How long a wait that begins looks before it sleeps; 0: not at all. */
static uint64_t choose(struct rg_adaptive_wait *wait)
{
    if (wait->crowded) {
        wait->crowded--;
        return 0;
    }
    if (wait->look_ns && wait->vain < VAIN_MOST)
        return wait->look_ns;
    if (wait->look_ns && wait->as_before) {
        wait->as_before--;
        return 0;
    }
    if (wait->look_ns) {
        wait->as_before = TRY_LEAST;
        return wait->look_ns;
    }
    if (!wait->took_ns[0] || wait->long_ones > 1)
        return 0;
    bool look = looking_is_faster(wait);
    if (wait->as_before) {
        wait->as_before--;
    } else {
        look = !look;
        wait->as_before = next_try(wait);
    }
    if (!look)
        return 0;
    /* Who tries it does not look longer than sleeping takes: it would not be faster any more. */
    const uint64_t window =
        looking_is_faster(wait) ? at_most(WINDOW * wait->took_ns[1], LONG_NS) : wait->took_ns[0];
    return at_most(at_least(window, LOOK_LEAST_NS), wait->credit_ns);
}

bool rg_adaptive_wait_look_at(struct rg_adaptive_wait *wait, uint64_t now_ns)
{
    wait->looks = 0;
    if (!wait->began_ns) {
        wait->began_ns = wait->looked_ns = now_ns;
        wait->window_ns = choose(wait);
        return wait->window_ns > 0;
    }
    const bool gap = now_ns - wait->looked_ns > GAP_NS;
    wait->looked_ns = now_ns;
    return !gap && now_ns - wait->began_ns < wait->window_ns;
}

/* How often this thread had to give up its processor to another that wanted it; giving way by itself (sched_yield) counts. */
static long switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

bool rg_adaptive_wait_look(struct rg_adaptive_wait *wait)
{
    if (wait->mode != RG_WAIT_AUTO)
        return wait->mode == RG_WAIT_SPIN && spin_on(wait);
    if (wait->limited && !wait->look_ns)
        return false;
    if (wait->began_ns) {
        for (unsigned i = 0; i < wait->pauses; i++)
            rg_cpu_relax();
        if (wait->looks < wait->blind) {
            wait->looks++;
            return true;
        }
        if (!wait->look_ns)
            sched_yield(); /* whoever wants this processor gets it, and is noticed by it */
    }
    const bool begins = !wait->began_ns, look = rg_adaptive_wait_look_at(wait, rg_now_ns());
    if (begins && look && !wait->look_ns)
        wait->switches = switches();
    return look;
}

static void average(uint64_t *of, uint64_t took)
{
    *of = *of ? (3 * *of + took) / 4 : took + 1;
}

/* A wait took so long: keeps what the next ones go by. */
static void learn(struct rg_adaptive_wait *wait, uint64_t took, uint64_t now)
{
    const uint64_t looked = at_most(wait->looked_ns - wait->began_ns, wait->window_ns);
    const bool in_vain = took > wait->window_ns;
    const uint64_t since = wait->ended_ns ? now - wait->ended_ns : 0;
    wait->ended_ns = now;
    wait->credit_ns = at_most(wait->credit_ns + at_most(since, UINT32_MAX) / CREDIT_SHARE, CREDIT_MOST_NS);
    if (wait->window_ns && in_vain)
        wait->credit_ns -= at_most(looked, wait->credit_ns);
    if (wait->window_ns && wait->given_up) {
        wait->crowded = wait->crowds;
        wait->crowds = (unsigned)at_most(2 * wait->crowds, wait->crowds_most);
    } else if (wait->window_ns && wait->crowds > CROWDED_LEAST) {
        wait->crowds--;
    }
    if (in_vain && took - looked > LONG_NS) {
        wait->long_ones++; /* however one waits for it */
        return;
    }
    wait->long_ones = 0;
    average(&wait->took_ns[wait->window_ns > 0], took);
}

void rg_adaptive_wait_end_at(struct rg_adaptive_wait *wait, uint64_t now_ns)
{
    const uint64_t took = now_ns - wait->began_ns;
    if (!wait->look_ns)
        learn(wait, took, now_ns);
    else if (wait->window_ns)
        wait->vain = took < wait->look_ns ? 0 : wait->vain + 1;
    wait->began_ns = 0;
}

void rg_adaptive_wait_end(struct rg_adaptive_wait *wait)
{
    if (!wait->began_ns)
        return;
    wait->given_up = wait->window_ns && !wait->look_ns && switches() != wait->switches;
    rg_adaptive_wait_end_at(wait, rg_now_ns());
}
