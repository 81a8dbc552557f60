/* watch.c - see watch.h. */
#include "server/identity/watch.h"

#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define EVENTS (IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF)

/* By path, so that a folder that was put in the place of another one is found. */
static bool add(struct rg_watch *watch)
{
    char users[PATH_MAX];
    snprintf(users, sizeof users, "%s/users", watch->path);
    watch->folder = inotify_add_watch(watch->fd, watch->path, EVENTS | IN_ONLYDIR);
    watch->users = inotify_add_watch(watch->fd, users, EVENTS | IN_ONLYDIR);
    return watch->folder >= 0 && watch->users >= 0;
}

static bool use_timer(struct rg_watch *watch)
{
    const struct itimerspec every = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
    rg_warn("changes of %s cannot be watched (%s; fs.inotify.max_user_instances and max_user_watches limit "
            "it): it is looked at every second",
            watch->path, strerror(errno));
    if (watch->fd >= 0)
        close(watch->fd);
    watch->is_timer = true;
    watch->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return watch->fd >= 0 && timerfd_settime(watch->fd, 0, &every, NULL) == 0;
}

bool rg_watch_open(struct rg_watch *watch, const char *path)
{
    *watch = (struct rg_watch){.path = path, .fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    return (watch->fd >= 0 && add(watch)) || use_timer(watch);
}

void rg_watch_close(struct rg_watch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
    watch->fd = -1;
}

/* Whether this is about users or revocations; what is being written has a temporary name. */
static bool matters(const struct rg_watch *watch, const struct inotify_event *event)
{
    if (event->mask & (IN_Q_OVERFLOW | IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF))
        return true;
    if (event->len == 0 || event->name[0] == '.')
        return false;
    return event->wd == watch->users || strcmp(event->name, "revoked") == 0 ||
           strcmp(event->name, "users") == 0;
}

bool rg_watch_changed(struct rg_watch *watch)
{
    _Alignas(struct inotify_event) char events[4096];
    bool changed = false, again = false;
    for (;;) {
        const ssize_t got = read(watch->fd, events, sizeof events);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        if (watch->is_timer)
            return true;
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const struct inotify_event *)(events + at);
            changed = matters(watch, event) || changed;
            again = again || (event->mask & (IN_IGNORED | IN_MOVE_SELF)) ||
                    (event->len && event->wd == watch->folder && strcmp(event->name, "users") == 0);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
    if (again && !add(watch) && !use_timer(watch))
        rg_error("changes of %s are no longer noticed: %s", watch->path, strerror(errno));
    return changed;
}
