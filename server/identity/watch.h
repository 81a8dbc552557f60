/*
 * watch.h - learns that users or revocations in the state folder have changed, by inotify; where the kernel has no more of that, a timer
 * says every second that they may have. One thread.
 */
#ifndef RG_SERVER_IDENTITY_WATCH_H
#define RG_SERVER_IDENTITY_WATCH_H

#include <stdbool.h>

struct rg_watch {
    int fd; /* readable when something has changed; -1: not open */
    bool is_timer;
    int folder, users; /* inotify's numbers */
    const char *path;
};

/** `path`: of the state folder; stays the caller's. False: neither can be had; errno tells why. */
bool rg_watch_open(struct rg_watch *watch, const char *path);
void rg_watch_close(struct rg_watch *watch);
/** Takes what there is. */
bool rg_watch_changed(struct rg_watch *watch);

#endif
