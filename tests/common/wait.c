/* wait.c - how long is looked before sleeping, and how many processors there are. */
#include "common/wait.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* One wait whose looks are all in vain until `took` has passed; how many looks there were before it slept. */
static unsigned looks(struct rg_wait *wait, uint64_t took_ns)
{
    const uint64_t until = rg_now_ns() + took_ns;
    unsigned n = 0;
    while (rg_wait_look(wait) && rg_now_ns() < until)
        n++;
    while (rg_now_ns() < until)
        usleep(1);
    rg_wait_end(wait);
    return n;
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
    struct rg_wait wait;
    setenv("REMOTE_GPU_WAIT", "block", 1);
    rg_wait_init(&wait, RG_WAIT_DEFAULT);
    cr_assert_eq(wait.mode, RG_WAIT_BLOCK);
    rg_wait_init(&wait, RG_WAIT_SPIN);
    cr_assert_eq(wait.mode, RG_WAIT_SPIN);
    unsetenv("REMOTE_GPU_WAIT");
    rg_wait_init(&wait, RG_WAIT_DEFAULT);
    cr_assert_eq(wait.mode, RG_WAIT_AUTO);
}

Test(wait, block_never_looks_and_spin_never_sleeps)
{
    struct rg_wait wait;
    rg_wait_init(&wait, RG_WAIT_BLOCK);
    cr_assert_eq(looks(&wait, 0), 0);
    rg_wait_init(&wait, RG_WAIT_SPIN);
    for (int i = 0; i < 1000; i++)
        cr_assert(rg_wait_look(&wait));
}

/* Long waits are slept through, and after some short ones the first look is made again. */
Test(wait, long_waits_are_not_looked_for)
{
    struct rg_wait wait;
    rg_wait_init(&wait, RG_WAIT_AUTO);
    wait.alone = false;
    cr_assert(rg_wait_look(&wait));
    rg_wait_end(&wait);
    for (int i = 0; i < 4; i++)
        (void)looks(&wait, 2000000);
    wait.crowded = 0;
    cr_assert_not(rg_wait_look(&wait));
    rg_wait_end(&wait);
    bool again = false;
    for (int i = 0; i < 100 && !again; i++) {
        wait.crowded = 0;
        again = rg_wait_look(&wait);
        rg_wait_end(&wait);
    }
    cr_assert(again);
}

/* A look that comes long after the one before it: somebody else had the processor. */
Test(wait, does_not_look_on_a_crowded_machine)
{
    struct rg_wait wait;
    rg_wait_init(&wait, RG_WAIT_AUTO);
    wait.alone = false;
    cr_assert(rg_wait_look(&wait));
    usleep(1000);
    cr_assert_not(rg_wait_look(&wait));
    rg_wait_end(&wait);
    wait.typical_ns = 0;
    cr_assert_not(rg_wait_look(&wait));
    rg_wait_end(&wait);
    unsigned slept = 0;
    for (wait.typical_ns = 0; !rg_wait_look(&wait) && slept < 1000; wait.typical_ns = 0, slept++)
        rg_wait_end(&wait);
    cr_assert(slept > 0 && slept < 1000, "%u", slept);
}

Test(wait, never_looks_on_one_processor)
{
    cpu_set_t set, one;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &set))
            CPU_SET(cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(rg_processors(), 1);
    struct rg_wait wait;
    rg_wait_init(&wait, RG_WAIT_AUTO);
    cr_assert_not(rg_wait_look(&wait));
    rg_wait_end(&wait);
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
    char root[] = "/tmp/remote-gpu-wait-XXXXXX";
    cr_assert_not_null(mkdtemp(root));
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
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}
