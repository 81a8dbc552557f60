/* moved_clock.c - preloaded: the time of day is so many seconds later as the file that MOVED_CLOCK names says. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long moved(void)
{
    const char *path = getenv("MOVED_CLOCK");
    char text[32] = "";
    const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    return size > 0 ? strtol(text, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int result = next(clock, out);
    if (result == 0 && clock == CLOCK_REALTIME)
        out->tv_sec += moved();
    return result;
}
