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
#include <unistd.h>

enum {
    LOOK_MOST_NS = 50000, /* longer waits are slept through: a few times what sleeping costs */
    LOOK_LEAST_NS = 10000,
    COUNT_MOST_NS = 2 * LOOK_MOST_NS, /* what a long wait counts as: some short ones make up for it */
    TRY_OTHER = 32,                   /* one wait in so many does what was not the faster of the two */
    GAP_NS = 30000,                   /* between two looks: somebody else had the processor */
    CROWDED_WAITS = 64,
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
    *wait = (struct rg_adaptive_wait){.mode = mode, .pauses = PAUSES};
    if (mode == RG_WAIT_DEFAULT) {
        const char *text = secure_getenv("REMOTE_GPU_WAIT");
        static atomic_flag told = ATOMIC_FLAG_INIT;
        if (rg_wait_mode_parse(text, &wait->mode) != RG_OK && !atomic_flag_test_and_set(&told))
            rg_warn("REMOTE_GPU_WAIT is auto, block or spin, not '%s'", text);
        if (wait->mode == RG_WAIT_DEFAULT)
            wait->mode = RG_WAIT_AUTO;
    }
    wait->alone = wait->mode != RG_WAIT_BLOCK && rg_processors() < 2;
}

static bool spin_on(struct rg_adaptive_wait *wait)
{
    rg_cpu_relax();
    if (wait->alone || ++wait->looks % LOOKS_PER_YIELD == 0)
        sched_yield(); /* on a busy machine the one that is waited for may need this very processor */
    return true;
}

/* Whether a wait that begins should look before it sleeps. */
static bool choose(struct rg_adaptive_wait *wait)
{
    if (wait->crowded) {
        wait->crowded--;
        return false;
    }
    if (wait->look_ns)
        return wait->vain < VAIN_MOST || ++wait->turn % TRY_OTHER == 0;
    if (!wait->took_ns[0] || wait->took_ns[0] > LOOK_MOST_NS)
        return false;
    const bool faster = wait->took_ns[1] <= wait->took_ns[0];
    return ++wait->turn % TRY_OTHER ? faster : !faster;
}

static void relax_between(const struct rg_adaptive_wait *wait)
{
    for (unsigned i = 0; i < wait->pauses; i++)
        rg_cpu_relax();
}

bool rg_adaptive_wait_look(struct rg_adaptive_wait *wait)
{
    if (wait->mode != RG_WAIT_AUTO)
        return wait->mode == RG_WAIT_SPIN && spin_on(wait);
    if (wait->alone && !wait->look_ns)
        return false;
    if (wait->began_ns && wait->looks < wait->blind) {
        wait->looks++;
        relax_between(wait);
        return true;
    }
    const uint64_t now = rg_now_ns();
    wait->looks = 0;
    if (!wait->began_ns) {
        wait->began_ns = wait->looked_ns = now;
        return wait->looks_first = choose(wait);
    }
    if (now - wait->looked_ns > GAP_NS) {
        wait->crowded = wait->look_ns ? 0 : CROWDED_WAITS;
        return false;
    }
    wait->looked_ns = now;
    relax_between(wait);
    if (wait->look_ns)
        return now - wait->began_ns < wait->look_ns;
    uint64_t most = 2 * wait->took_ns[0];
    if (most < LOOK_LEAST_NS)
        most = LOOK_LEAST_NS;
    return now - wait->began_ns < (most < LOOK_MOST_NS ? most : LOOK_MOST_NS);
}

void rg_adaptive_wait_end(struct rg_adaptive_wait *wait)
{
    if (!wait->began_ns)
        return;
    uint64_t took = rg_now_ns() - wait->began_ns, *last = &wait->took_ns[wait->looks_first];
    if (took > COUNT_MOST_NS)
        took = COUNT_MOST_NS;
    *last = *last ? (3 * *last + took) / 4 : took + 1;
    if (wait->looks_first)
        wait->vain = took < wait->look_ns ? 0 : wait->vain + 1;
    wait->began_ns = 0;
}
