/* poll.c - see poll.h. */
#include "common/base/poll.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

enum { MOMENT_NS = 1000000 };

/* A lock's waits need no call that a program could do without. */
static void wait_for_nothing(uint64_t until)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    const struct timespec end = rg_timespec(until);
    rg_cond_init(&never);
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &end) == 0)
        ; /* as it may return early */
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&never);
}

void rg_pause(uint64_t ns)
{
    const struct timespec time = rg_timespec(ns);
    const uint64_t until = rg_now_ns() + ns;
    if (nanosleep(&time, NULL) != 0 && errno != EINTR)
        wait_for_nothing(until);
}

bool rg_poll_is_refused(void)
{
    return errno != EINTR;
}

static int refused(int error)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        rg_error("poll, ppoll and select are refused in this process (%s), as by a filter of system calls "
                 "(seccomp): it cannot wait for servers; let the filter allow one of them",
                 strerror(error));
    rg_pause(MOMENT_NS);
    errno = error;
    return -1;
}

/* --- by select ------------------------------------------------------------------------------------------- */

enum {
    HIGHEST = 4096,
    WORD = 8 * sizeof(unsigned long)
}; /* descriptors; a set of them is on a little stack */

struct set {
    unsigned long words[HIGHEST / WORD];
};

static void add(struct set *set, int fd)
{
    set->words[(unsigned)fd / WORD] |= 1ul << ((unsigned)fd % WORD);
}

static bool has(const struct set *set, int fd)
{
    return set->words[(unsigned)fd / WORD] >> ((unsigned)fd % WORD) & 1;
}

static fd_set *as_argument(struct set *set)
{
    return (fd_set *)(void *)set;
}

/* Whether a socket's peer has ended its side, and nothing that came before is unread. */
static bool has_ended(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* One call, of at most so many milliseconds. Returns as poll does. */
static int select_once(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct set in = {{0}}, out = {{0}};
    const struct timespec time = rg_timespec((uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u);
    int end = 0, ready = 0;
    for (nfds_t i = 0; i < n; i++) {
        const int fd = fds[i].fd;
        fds[i].revents = 0;
        if (fd < 0)
            continue;
        if (fds[i].events & POLLIN)
            add(&in, fd);
        if (fds[i].events & POLLOUT)
            add(&out, fd);
        end = fd >= end ? fd + 1 : end;
    }
    if (pselect(end, as_argument(&in), as_argument(&out), NULL, timeout_ms < 0 ? NULL : &time, NULL) < 0)
        return -1;
    for (nfds_t i = 0; i < n; i++) {
        const int fd = fds[i].fd;
        if (fd < 0)
            continue;
        const int ended = (fds[i].events & POLLRDHUP) && has_ended(fd) ? POLLRDHUP : 0;
        fds[i].revents = (short)((has(&in, fd) ? POLLIN : 0) | (has(&out, fd) ? POLLOUT : 0) | ended);
        ready += fds[i].revents != 0;
    }
    return ready;
}

/* Its sets may be of any descriptors that the process has open, whatever it may open. */
static int by_select(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    const uint64_t until = rg_now_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
    bool looks = false;
    for (nfds_t i = 0; i < n; i++) {
        if (fds[i].fd >= HIGHEST) {
            errno = EINVAL;
            return -1;
        }
        looks |= fds[i].fd >= 0 && (fds[i].events & POLLRDHUP);
    }
    for (;;) {
        const uint64_t now = rg_now_ns();
        const int left_ms = timeout_ms < 0 ? -1 : now < until ? (int)((until - now + 999999u) / 1000000u) : 0;
        const bool part = looks && (left_ms < 0 || left_ms > RG_POLL_LOOK_MS);
        const int ready = select_once(fds, n, part ? RG_POLL_LOOK_MS : left_ms);
        if (ready != 0 || !part)
            return ready;
    }
}

int rg_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int ready = poll(fds, n, timeout_ms);
    if (ready >= 0 || !rg_poll_is_refused())
        return ready;
    const int error = errno;
    const struct timespec time = rg_timespec((uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u);
    ready = ppoll(fds, n, timeout_ms < 0 ? NULL : &time, NULL);
    if (ready < 0 && rg_poll_is_refused())
        ready = by_select(fds, n, timeout_ms);
    return ready >= 0 || !rg_poll_is_refused() ? ready : refused(error);
}
