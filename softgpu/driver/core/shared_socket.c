/*
 * shared_socket.c - see shared_socket.h.
 *
 * Each process that has made a handle has a socket FOLDER/soft-PID and a thread that answers: it is sent a handle, and sends
 * back the descriptor if that number is now a shared file with the handle's secret. The descriptor is
 * duplicated before it is looked at, so that it cannot become another one in between.
 */
#include "softgpu/driver/core/shared_socket.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_S = 5 };

static const char *folder(void)
{
    const char *text = secure_getenv("SOFTGPU_SHARE");
    return text && text[0] == '/' ? text : NULL;
}

bool sg_shared_socket_used(void)
{
    return folder() != NULL;
}

static bool address_of(int process, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(address->sun_path, sizeof address->sun_path, "%s/soft-%d", folder(), process) <
           (int)sizeof address->sun_path;
}

static void limit_patience(int connection)
{
    const struct timeval limit = {.tv_sec = PATIENCE_S};
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* --- answering ------------------------------------------------------------------------------------------ */

static int find(const struct sg_shared_handle *asked)
{
    struct sg_shared_file file;
    const int number = fcntl(asked->file, F_DUPFD_CLOEXEC, 0);
    if (number >= 0 && (!sg_shared_file_known(number, (enum sg_shared_kind)asked->kind, &file) ||
                        memcmp(file.secret, asked->secret, SG_SECRET) != 0)) {
        close(number);
        return -1;
    }
    return number;
}

static void *answer(void *argument)
{
    const int listener = (int)(intptr_t)argument;
    for (;;) {
        struct sg_shared_handle asked;
        const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) {
            if (errno != EINTR && errno != ECONNABORTED)
                usleep(10000); /* out of descriptors: those who ask wait in line */
            continue;
        }
        limit_patience(connection);
        if (recv(connection, &asked, sizeof asked, MSG_WAITALL) == (ssize_t)sizeof asked) {
            const int number = find(&asked);
            if (number >= 0) {
                (void)!rg_packet_send(connection, "", 1, &number, 1); /* who has gone needs no answer */
                close(number);
            }
        }
        close(connection);
    }
    return NULL;
}

void sg_shared_socket_serve(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int served_by; /* a child of fork has its own */
    struct sockaddr_un address;
    pthread_t thread;
    RG_SCOPED_LOCK(&lock);
    if (served_by == (int)getpid() || !address_of((int)getpid(), &address))
        return;
    served_by = (int)getpid();
    (void)unlink(address.sun_path); /* of a process of that number that was there before */
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
        listen(listener, 64) == 0 &&
        rg_thread_create(&thread, "sg-share", answer, (void *)(intptr_t)listener) == RG_OK) {
        pthread_detach(thread);
        return;
    }
    rg_warn("memory cannot be shared with other processes by %s: %s", address.sun_path, strerror(errno));
    if (listener >= 0)
        close(listener);
}

/* --- asking --------------------------------------------------------------------------------------------- */

/* A connection to that process, or -1 with errno. */
static int reach(int process)
{
    struct sockaddr_un address;
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    limit_patience(connection);
    if (address_of(process, &address) &&
        connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
        return connection;
    const int error = errno;
    close(connection);
    errno = error;
    return -1;
}

bool sg_shared_socket_answers(int process)
{
    const int connection = reach(process);
    if (connection >= 0)
        close(connection);
    return connection >= 0 || (errno != ECONNREFUSED && errno != ENOENT);
}

int sg_shared_socket_ask(const struct sg_shared_handle *handle)
{
    int number = -1;
    if (handle->process == (int32_t)getpid())
        return find(handle);
    const int connection = reach(handle->process);
    if (connection < 0)
        return -1;
    if (send(connection, handle, sizeof *handle, MSG_NOSIGNAL) == (ssize_t)sizeof *handle)
        number = rg_packet_receive_fd(connection);
    close(connection);
    return number;
}
