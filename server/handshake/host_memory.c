/* host_memory.c - see host_memory.h. */
#include "server/handshake/host_memory.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void rg_host_memory_yield(void)
{
    static const char score[] = "500"; /* of 1000: as if half of the machine's memory were its own */
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, score, sizeof score - 1) < 0)
        rg_debug("not first to go if memory runs out: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* A quarter of the machine's memory, but enough for one program in any case. */
static uint64_t by_default(void)
{
    const uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return all / 4 > RG_SESSION_MEMORY_LEAST ? all / 4 : RG_SESSION_MEMORY_LEAST;
}

/* What the process has by now: its own and the driver's, not the client's doing. */
static uint64_t allocated(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    const bool known = file && fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) == 1;
    if (file)
        fclose(file);
    return known ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : RG_SESSION_MEMORY_DRIVER;
}

void rg_host_memory_limit(uint64_t device_memory)
{
    const char *text = getenv("REMOTE_GPU_SESSION_MEMORY");
    uint64_t budget = by_default();
    char why[160];
    if (text && *text && rg_parse_size(text, &budget, why, sizeof why) != RG_OK)
        rg_warn("REMOTE_GPU_SESSION_MEMORY: %s: %llu bytes are used", why, (unsigned long long)budget);
    if (!budget)
        return;
    struct rlimit limit;
    uint64_t all;
    if (__builtin_add_overflow(allocated() + device_memory, budget, &all))
        return; /* more than there can be */
    if (getrlimit(RLIMIT_DATA, &limit) != 0 || (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= all))
        return; /* a stricter one is set from outside */
    limit.rlim_cur = limit.rlim_max = all;
    if (setrlimit(RLIMIT_DATA, &limit) != 0)
        rg_warn("this session has no limit of host memory: %s", strerror(errno));
}
