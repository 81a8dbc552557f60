/*
 * export.c - memory and events shared with other sessions of this server: descriptors and handles (export.h).
 * The calls are in ipc.c.
 */
#include "server/export/export.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PART     16 /* bytes of each half of a token */
#define NAME     8  /* of those, the ones in the name of a socket, which must be short */
#define SECRET   32
#define OFFERED  4096
#define PATIENCE 5 /* seconds for another worker to answer */

struct offer {
    int fd; /* -1: free */
    unsigned char name[PART];
};

/* A handle of the driver's. */
struct exported {
    enum rg_export_kind kind;
    unsigned char name[PART];
    unsigned char handle[RG_EXPORT_TOKEN];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offer *offers;
static int n_offers;
static struct exported *handles; /* a ring once there are RG_EXPORT_HANDLES */
static unsigned n_handles, next_handle;
static int listener = -1;
static atomic_bool shared;       /* something was offered or taken */
static const char *folder = "";  /* of the identity's sessions */
static unsigned char self[PART]; /* this worker's half of its tokens */

/* --- handing out ---------------------------------------------------------------------------------------- */

static bool address_of(const unsigned char *who, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path, sizeof address->sun_path, "%s/", folder);
    for (int i = 0; i < NAME && n < (int)sizeof address->sun_path; i++)
        n += snprintf(address->sun_path + n, sizeof address->sun_path - (size_t)n, "%02x", who[i]);
    errno = folder[0] == '/' ? ENAMETOOLONG : ENOENT; /* for who finds no place for it */
    return folder[0] == '/' && n < (int)sizeof address->sun_path;
}

/* What the workers of one identity know, and no others. */
static bool read_secret(unsigned char secret[SECRET])
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/secret", folder) >= (int)sizeof path)
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool good = fd >= 0 && read(fd, secret, SECRET) == SECRET;
    if (fd >= 0)
        close(fd);
    return good;
}

/* In a time that does not depend on where they differ. */
static bool is_secret(const unsigned char *given)
{
    unsigned char own[SECRET], differs = 0;
    if (!read_secret(own))
        return false;
    for (int i = 0; i < SECRET; i++)
        differs |= (unsigned char)(own[i] ^ given[i]);
    explicit_bzero(own, sizeof own);
    return differs == 0;
}

void rg_export_set_folder(const char *given)
{
    folder = given;
}

void rg_export_leave(void)
{
    struct sockaddr_un address;
    if (listener >= 0 && address_of(self, &address))
        unlink(address.sun_path);
}

static bool same_user(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* A copy of the descriptor of that name, or -1. */
static int copy_of(const unsigned char *name)
{
    int copy = -1;
    RG_SCOPED_LOCK(&lock);
    for (int i = 0; i < n_offers && copy < 0; i++)
        if (offers[i].fd >= 0 && memcmp(offers[i].name, name, PART) == 0)
            copy = fcntl(offers[i].fd, F_DUPFD_CLOEXEC, 0);
    return copy;
}

/* The handle of that name; false: there is none. */
static bool handle_of(const unsigned char *name, struct exported *out)
{
    bool found = false;
    RG_SCOPED_LOCK(&lock);
    for (unsigned i = 0; i < n_handles && !found; i++) {
        found = memcmp(handles[i].name, name, PART) == 0;
        if (found)
            *out = handles[i];
    }
    return found;
}

/* One byte, with the descriptor or without, or the kind of a handle and the handle. Who has gone needs no answer. */
static void answer(int connection, int fd, const struct exported *exported)
{
    unsigned char data[1 + RG_EXPORT_TOKEN] = {fd >= 0 ? RG_EXPORT_DESCRIPTOR : 0};
    if (exported) {
        data[0] = (unsigned char)exported->kind;
        memcpy(data + 1, exported->handle, RG_EXPORT_TOKEN);
    }
    (void)!rg_packet_send(connection, data, exported ? sizeof data : 1, &fd, fd >= 0);
}

static void limit_patience(int connection)
{
    const struct timeval limit = {.tv_sec = PATIENCE};
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void *execute(void *unused)
{
    (void)unused;
    for (;;) {
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) {
            if (errno != EINTR && errno != ECONNABORTED)
                usleep(10000); /* out of descriptors: those who ask wait in line */
            continue;
        }
        unsigned char asked[SECRET + 2 * PART];
        const unsigned char *name = asked + SECRET + PART;
        limit_patience(connection);
        if (same_user(connection) &&
            recv(connection, asked, sizeof asked, MSG_WAITALL) == (ssize_t)sizeof asked && is_secret(asked) &&
            memcmp(asked + SECRET, self, PART) == 0) {
            struct exported exported;
            int fd = copy_of(name);
            answer(connection, fd, fd < 0 && handle_of(name, &exported) ? &exported : NULL);
            if (fd >= 0)
                close(fd);
        }
        explicit_bzero(asked, sizeof asked);
        close(connection);
    }
    return NULL;
}

/* The socket and its thread, at the first offer. The lock is held. */
static bool listen_once(void)
{
    struct sockaddr_un address;
    pthread_t thread;
    if (listener >= 0)
        return true;
    if (getrandom(self, PART, 0) != PART)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || !address_of(self, &address) || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 64) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    listener = fd;
    atomic_store(&shared, true);
    if (rg_thread_create(&thread, "rg-share", execute, NULL) != RG_OK) {
        close(fd);
        listener = -1;
        return false;
    }
    pthread_detach(thread);
    return true;
}

bool rg_export_shared(void)
{
    return atomic_load(&shared);
}

bool rg_export_offer(int fd, unsigned char token[RG_EXPORT_TOKEN])
{
    int at = 0;
    memset(token, 0, RG_EXPORT_TOKEN);
    pthread_mutex_lock(&lock);
    while (at < n_offers && offers[at].fd >= 0)
        at++;
    bool offered = listen_once() && at < OFFERED;
    if (offered && at == n_offers) {
        struct offer *more = realloc(offers, (size_t)(n_offers + 1) * sizeof *offers);
        offered = more != NULL;
        if (more) {
            offers = more;
            offers[n_offers++].fd = -1;
        }
    }
    if (offered && getrandom(offers[at].name, PART, 0) == PART) {
        offers[at].fd = fd;
        memcpy(token, self, PART);
        memcpy(token + PART, offers[at].name, PART);
    } else {
        offered = false;
    }
    pthread_mutex_unlock(&lock);
    if (!offered) {
        rg_warn("memory cannot be offered to other sessions: %s", strerror(errno));
        close(fd);
    }
    return offered;
}

void rg_export_end(const unsigned char token[RG_EXPORT_TOKEN])
{
    RG_SCOPED_LOCK(&lock);
    for (int i = 0; i < n_offers; i++)
        if (offers[i].fd >= 0 && memcmp(token, self, PART) == 0 &&
            memcmp(offers[i].name, token + PART, PART) == 0) {
            close(offers[i].fd);
            offers[i].fd = -1;
        }
}

/* The name of a handle that is kept already; false: it is not. The lock is held. */
static bool name_of(enum rg_export_kind kind, const unsigned char *handle, unsigned char *name)
{
    for (unsigned i = 0; i < n_handles; i++)
        if (handles[i].kind == kind && memcmp(handles[i].handle, handle, RG_EXPORT_TOKEN) == 0) {
            memcpy(name, handles[i].name, PART);
            return true;
        }
    return false;
}

/* Keeps the handle under a name of its own. The lock is held. */
static bool add_handle(enum rg_export_kind kind, const unsigned char *handle, unsigned char *name)
{
    if (n_handles < RG_EXPORT_HANDLES) {
        struct exported *more = realloc(handles, (size_t)(n_handles + 1) * sizeof *handles);
        if (!more)
            return false;
        handles = more;
    }
    if (getrandom(name, PART, 0) != PART)
        return false;
    struct exported *at = &handles[next_handle];
    at->kind = kind;
    memcpy(at->name, name, PART);
    memcpy(at->handle, handle, RG_EXPORT_TOKEN);
    next_handle = (next_handle + 1) % RG_EXPORT_HANDLES;
    if (n_handles < RG_EXPORT_HANDLES)
        n_handles++;
    return true;
}

bool rg_export_offer_handle(enum rg_export_kind kind, unsigned char handle[RG_EXPORT_TOKEN])
{
    unsigned char token[RG_EXPORT_TOKEN] = {0};
    pthread_mutex_lock(&lock);
    const bool offered =
        listen_once() && (name_of(kind, handle, token + PART) || add_handle(kind, handle, token + PART));
    memcpy(token, self, PART);
    pthread_mutex_unlock(&lock);
    if (!offered) {
        rg_warn("a handle cannot be offered to other sessions: %s", strerror(errno));
        memset(token, 0, sizeof token);
    }
    memcpy(handle, token, RG_EXPORT_TOKEN);
    return offered;
}

/* --- asking another worker ------------------------------------------------------------------------------ */

/* A connection to the worker that the token names, which has been told what is wanted; -1: there is none. */
static int ask_for(const unsigned char *token)
{
    struct sockaddr_un address;
    unsigned char asked[SECRET + 2 * PART];
    if (!address_of(token, &address) || !read_secret(asked))
        return -1;
    memcpy(asked + SECRET, token, 2 * PART);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = connection >= 0;
    if (good) {
        limit_patience(connection);
        good = connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
               same_user(connection) &&
               send(connection, asked, sizeof asked, MSG_NOSIGNAL) == (ssize_t)sizeof asked;
    }
    explicit_bzero(asked, sizeof asked);
    if (good)
        atomic_store(&shared, true);
    if (good)
        return connection;
    if (connection >= 0)
        close(connection);
    return -1;
}

int rg_export_take(const unsigned char token[RG_EXPORT_TOKEN])
{
    int connection = ask_for(token);
    if (connection < 0)
        return -1;
    int fd = rg_packet_receive_fd(connection);
    close(connection);
    return fd;
}

bool rg_export_take_handle(enum rg_export_kind kind, unsigned char token[RG_EXPORT_TOKEN])
{
    static const unsigned char rest[RG_EXPORT_TOKEN - 2 * PART];
    unsigned char data[1 + RG_EXPORT_TOKEN];
    int connection = memcmp(token + 2 * PART, rest, sizeof rest) == 0 ? ask_for(token) : -1;
    if (connection < 0)
        return false;
    const bool taken =
        recv(connection, data, sizeof data, MSG_WAITALL) == (ssize_t)sizeof data && data[0] == kind;
    close(connection);
    if (taken)
        memcpy(token, data + 1, RG_EXPORT_TOKEN);
    return taken;
}
