/*
 * clock.c - preloaded: the time of day of the whole machine, as its processes see it, jumps every JUMP_S seconds: an hour ahead, an
 * hour behind, right again. Times that only ever grow are as they are.
 */
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#define JUMP_S 3

static int next_clock(clockid_t clock, struct timespec *out)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return next(clock, out);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    static const long shifts[] = {3600, -3600, 0};
    struct timespec steady = {0};
    const int result = next_clock(clock, out);
    if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) ||
        next_clock(CLOCK_MONOTONIC, &steady) != 0)
        return result;
    out->tv_sec += shifts[steady.tv_sec / JUMP_S % 3];
    return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *out)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now = {0};
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}
