/* exclusive.c - see exclusive.h. */
#include "softgpu/driver/behaviour/exclusive.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned contexts;
    int file;
} devices[RG_DEVICES_MAX];

/* The lock's file, locked; -1: another process has it, or the system refuses. */
static int take(int number)
{
    const char *folder = secure_getenv("SOFTGPU_SHARE");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/softgpu-%u-%d", folder && *folder ? folder : "/tmp", (unsigned)geteuid(),
             number);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        rg_warn("exclusive=1 of SOFTGPU_BEHAVE: cannot open %s: %m", path);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

bool sg_exclusive_enter(int number)
{
    RG_SCOPED_LOCK(&lock);
    if (devices[number].contexts == 0)
        devices[number].file = take(number);
    if (devices[number].file < 0)
        return false;
    devices[number].contexts++;
    return true;
}

void sg_exclusive_leave(int number)
{
    RG_SCOPED_LOCK(&lock);
    if (devices[number].contexts > 0 && --devices[number].contexts == 0)
        close(devices[number].file);
}
