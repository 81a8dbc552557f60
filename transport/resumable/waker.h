/*
 * waker.h - wakes a thread out of poll, in a process whose descriptors are not all ours.
 *
 * A pipe with both ends at high numbers. A program may close all descriptors, or put files of its own in
 * their place: before each use it is made sure that the numbers still mean the pipe, and if not there is a
 * new one.
 */
#ifndef RG_TRANSPORT_RESUMABLE_WAKER_H
#define RG_TRANSPORT_RESUMABLE_WAKER_H

#include <stdbool.h>
#include <sys/types.h>

struct rg_waker {
    int fds[2]; /* -1: none */
    dev_t device;
    ino_t inode;
};

/** False: no descriptors. */
bool rg_waker_init(struct rg_waker *waker);
/**
 * The descriptor to poll for POLLIN; a new one if it was taken. -1: none to be had. The polling thread, under
 * the user's lock.
 */
int rg_waker_fd(struct rg_waker *waker);
/** Wakes the thread. Under the user's lock. */
void rg_waker_wake(struct rg_waker *waker);
/** Nobody needs waking any more, or again. The polling thread, under the user's lock. */
void rg_waker_rest(struct rg_waker *waker);
void rg_waker_fini(struct rg_waker *waker);

#endif
