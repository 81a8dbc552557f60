/*
 * moved_clock.c - preloaded: the time of day is another. Times that only ever grow are as they are.
 *
 *   SHIFT_SECONDS=N       so many seconds later (earlier, if negative)
 *   SHIFT_SECONDS=N,N,…   each for 3 s, over and over, at the same moments in all processes of the machine
 *   MOVED_CLOCK=FILE      as many seconds later as the file says at that moment
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SHIFTS_MAX = 8, SHIFT_LASTS_S = 3 };

static int next_clock(clockid_t clock, struct timespec *out)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return next(clock, out);
}

static long in_file(const char *path)
{
    char text[32] = "";
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    return size > 0 ? strtol(text, NULL, 10) : 0;
}

static long one_of(const char *text)
{
    struct timespec steady = {0};
    long shifts[SHIFTS_MAX];
    unsigned n = 0;
    char *end = NULL;
    do
        shifts[n++] = strtol(end ? end + 1 : text, &end, 10);
    while (*end == ',' && n < SHIFTS_MAX);
    if (n == 1)
        return shifts[0];
    next_clock(CLOCK_MONOTONIC, &steady);
    return shifts[(unsigned long)steady.tv_sec / SHIFT_LASTS_S % n];
}

static long moved(void)
{
    const char *path = getenv("MOVED_CLOCK"), *text = getenv("SHIFT_SECONDS");
    return path ? in_file(path) : text ? one_of(text) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int result = next_clock(clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += moved();
    return result;
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
