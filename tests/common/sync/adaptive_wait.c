/* adaptive_wait.c - how long is looked before sleeping, and how many processors there are. */
#include "common/sync/adaptive_wait.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t time_ns = 1;

/* One wait in time that only the test moves; what is waited for comes so much later to one that looks, and to one that sleeps.
 * Whether it looked. */
static bool wait_once(struct rg_adaptive_wait *wait, uint64_t look_ns, uint64_t sleep_ns)
{
    time_ns += 1000;
    const uint64_t began = time_ns;
    const bool looked = rg_adaptive_wait_look_at(wait, began);
    const uint64_t until = began + (looked ? look_ns : sleep_ns);
    for (bool look = looked; look && time_ns < until; look = rg_adaptive_wait_look_at(wait, time_ns))
        time_ns += 500;
    time_ns = until > time_ns ? until : time_ns;
    rg_adaptive_wait_end_at(wait, time_ns);
    return looked;
}

static unsigned waits_that_look(unsigned n, uint64_t look_ns, uint64_t sleep_ns)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = false;
    unsigned looked = 0;
    for (unsigned i = 0; i < n; i++)
        looked += wait_once(&wait, look_ns, sleep_ns);
    return looked;
}

Test(wait, modes)
{
    enum rg_wait_mode mode;
    cr_assert(rg_wait_mode_parse("spin", &mode) == RG_OK && mode == RG_WAIT_SPIN);
    cr_assert(rg_wait_mode_parse("block", &mode) == RG_OK && mode == RG_WAIT_BLOCK);
    cr_assert(rg_wait_mode_parse("auto", &mode) == RG_OK && mode == RG_WAIT_AUTO);
    cr_assert(rg_wait_mode_parse("", &mode) == RG_OK && mode == RG_WAIT_DEFAULT);
    cr_assert(rg_wait_mode_parse(NULL, &mode) == RG_OK && mode == RG_WAIT_DEFAULT);
    cr_assert(rg_wait_mode_parse("spinning", &mode) == RG_ERR_INVALID);
}

Test(wait, environment)
{
    struct rg_adaptive_wait wait;
    setenv("REMOTE_GPU_WAIT", "block", 1);
    rg_adaptive_wait_init(&wait, RG_WAIT_DEFAULT);
    cr_assert_eq(wait.mode, RG_WAIT_BLOCK);
    rg_adaptive_wait_init(&wait, RG_WAIT_SPIN);
    cr_assert_eq(wait.mode, RG_WAIT_SPIN);
    unsetenv("REMOTE_GPU_WAIT");
    rg_adaptive_wait_init(&wait, RG_WAIT_DEFAULT);
    cr_assert_eq(wait.mode, RG_WAIT_AUTO);
}

Test(wait, block_never_looks_and_spin_never_sleeps)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_BLOCK);
    for (int i = 0; i < 1000; i++)
        cr_assert_not(rg_adaptive_wait_look(&wait));
    rg_adaptive_wait_init(&wait, RG_WAIT_SPIN);
    for (int i = 0; i < 1000; i++)
        cr_assert(rg_adaptive_wait_look(&wait));
}

Test(wait, does_what_was_faster)
{
    const unsigned looking = waits_that_look(2000, 4000, 20000),
                   sleeping = waits_that_look(2000, 20000, 4000);
    cr_assert(looking > 1200, "%u of 2000 looked where that was faster", looking);
    cr_assert(sleeping < 800, "%u of 2000 looked where sleeping was faster", sleeping);
}

/* As where idle processors wake slowly: what takes 15 us when both sides look takes 350 us when both sleep. */
Test(wait, looks_where_sleeping_takes_long)
{
    const unsigned looked = waits_that_look(2000, 15000, 350000);
    cr_assert(looked > 1900, "%u of 2000", looked);
}

/* What was not the faster of the two is tried as rarely as it costs. */
Test(wait, trying_costs_little)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = false;
    for (int i = 0; i < 100; i++)
        (void)wait_once(&wait, 10000, 200000);
    unsigned slept = 0;
    for (int i = 0; i < 5000; i++)
        slept += !wait_once(&wait, 10000, 200000);
    cr_assert(slept > 2 && slept < 30, "%u of 5000 slept, where that takes twenty times as long", slept);
}

/* What changes is learned: the other side has gone to the same processor. */
Test(wait, what_was_faster_may_change)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = false;
    for (int i = 0; i < 300; i++)
        (void)wait_once(&wait, 4000, 20000);
    unsigned looked = 0;
    for (int i = 0; i < 1000; i++)
        looked += wait_once(&wait, 40000, 20000);
    cr_assert(looked < 100, "%u of 1000 looked where that had become slower", looked);
    looked = 0;
    for (int i = 0; i < 2000; i++)
        looked += wait_once(&wait, 4000, 20000);
    cr_assert(looked > 1000, "%u of 2000 looked where that had become faster again", looked);
}

/* Some long waits between short ones are looked for in vain: only for so long as is stated. */
Test(wait, looking_in_vain_is_bounded)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = false;
    for (int i = 0; i < 300; i++)
        (void)wait_once(&wait, 100000, 300000);
    const uint64_t began = time_ns;
    uint64_t in_vain = 0;
    for (int i = 0; i < 100; i++) {
        (void)wait_once(&wait, 100000, 300000);
        (void)wait_once(&wait, 2000000, 2000000);
        in_vain += wait.window_ns;
    }
    const uint64_t most = (time_ns - began) / 16 + 2000000;
    cr_assert(in_vain > 0 && in_vain < most, "%.1f ms in vain, %.1f ms at most", (double)in_vain / 1e6,
              (double)most / 1e6);
}

Test(wait, long_waits_are_slept_through)
{
    const unsigned looked = waits_that_look(200, 1000000, 1000000);
    cr_assert(looked == 0, "%u of 200", looked);
}

/* Where sleeping is dear, waits are looked for whatever sleeping took, also on one processor; not where that was in vain. */
Test(wait, looks_for_a_given_time)
{
    struct rg_adaptive_wait wait;
    unsigned looked = 0;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = true;
    wait.look_ns = 100000;
    for (int i = 0; i < 200; i++)
        looked += wait_once(&wait, 4000, 300000);
    cr_assert(looked > 150, "%u of 200 short waits", looked);
    looked = 0;
    for (int i = 0; i < 200; i++)
        looked += wait_once(&wait, 300000, 300000);
    cr_assert(looked < 20, "%u of 200 long waits", looked);
    looked = 0;
    for (int i = 0; i < 2000; i++)
        looked += wait_once(&wait, 4000, 20000);
    cr_assert(looked > 1500, "%u of 2000 waits that are short again", looked);
    rg_adaptive_wait_init(&wait, RG_WAIT_BLOCK);
    wait.look_ns = 100000;
    cr_assert_not(rg_adaptive_wait_look(&wait));
}

/* Waits that become long are looked for a few times only. */
Test(wait, idle_uses_no_processor)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = false;
    for (int i = 0; i < 500; i++)
        (void)wait_once(&wait, 4000, 20000);
    unsigned looked = 0;
    for (int i = 0; i < 100; i++)
        looked += wait_once(&wait, 1000000, 1000000);
    cr_assert(looked < 12, "%u of 100", looked);
}

/* A look that comes long after the one before it: somebody else had the processor. */
Test(wait, does_not_look_on_a_crowded_machine)
{
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    wait.limited = false;
    for (int i = 0; i < 100; i++)
        (void)wait_once(&wait, 4000, 20000);
    unsigned slept[3];
    for (int i = 0; i < 3; i++) {
        wait.as_before = 1000; /* none is tried */
        cr_assert(rg_adaptive_wait_look_at(&wait, time_ns));
        time_ns += 100000;
        cr_assert_not(rg_adaptive_wait_look_at(&wait, time_ns));
        wait.given_up = true;
        rg_adaptive_wait_end_at(&wait, time_ns);
        wait.given_up = false;
        wait.took_ns[1] = 4000;
        for (slept[i] = 0; slept[i] < 1000 && !wait_once(&wait, 4000, 20000); slept[i]++)
            ;
    }
    cr_assert(slept[0] > 2 && slept[0] < 20, "%u", slept[0]);
    cr_assert(slept[2] > 2 * slept[0], "%u, then %u", slept[0], slept[2]);
}

/* On one processor the other side gets to run only when this one sleeps: it is tried, and found to be so. */
Test(wait, one_processor)
{
    cpu_set_t set, one;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &set))
            CPU_SET(cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(rg_processors(), 1);
    struct rg_adaptive_wait wait;
    rg_adaptive_wait_init(&wait, RG_WAIT_AUTO);
    cr_assert(wait.alone);
    unsigned looked = 0;
    for (int i = 0; i < 2000; i++)
        looked += wait_once(&wait, 20000 + 5000, 20000);
    cr_assert(looked < 200, "%u of 2000", looked);
    wait.limited = true; /* by a cgroup: looking would use up what it allows */
    for (int i = 0; i < 200; i++)
        cr_assert_not(rg_adaptive_wait_look(&wait));
}

static void put(const char *root, const char *path, const char *text)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + 1; *slash; slash++)
        if (*slash == '/') {
            *slash = '\0';
            mkdir(full, 0700);
            *slash = '/';
        }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

Test(wait, quotas_of_cgroups)
{
    const char *root = temporary_folder();
    cr_assert_eq(rg_processors_of_cgroup(root), UINT_MAX);
    put(root, "/proc/self/cgroup", "1:name=systemd:/x\n0::/pods/one\n");
    put(root, "/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
    cr_assert_eq(rg_processors_of_cgroup(root), UINT_MAX);
    put(root, "/sys/fs/cgroup/pods/cpu.max", "350000 100000\n");
    cr_assert_eq(rg_processors_of_cgroup(root), 3);
    put(root, "/sys/fs/cgroup/pods/one/cpu.max", "50000 100000\n");
    cr_assert_eq(rg_processors_of_cgroup(root), 1);
    put(root, "/proc/self/cgroup", "0::/\n");
    cr_assert_eq(rg_processors_of_cgroup(root), UINT_MAX);
    put(root, "/sys/fs/cgroup/cpu.max", "200000 100000\n");
    cr_assert_eq(rg_processors_of_cgroup(root), 2);
    put(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(rg_processors_of_cgroup(root), 2);
    put(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "120000\n");
    cr_assert_eq(rg_processors_of_cgroup(root), 1);
}
