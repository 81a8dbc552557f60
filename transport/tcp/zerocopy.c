/* zerocopy.c - see zerocopy.h. The facts are those of Linux's Documentation/networking/msg_zerocopy.rst. */
#include "transport/tcp/zerocopy.h"

#include "common/base/log.h"
#include "common/base/poll.h"

#include <time.h> /* which the next one needs */

#include <errno.h>
#include <linux/errqueue.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void rg_zerocopy_start(struct rg_zerocopy *zerocopy, int fd)
{
    const char *text = secure_getenv("REMOTE_GPU_ZEROCOPY");
    const int one = 1;
    *zerocopy = (struct rg_zerocopy){0};
    if (!text || strcmp(text, "1") != 0) {
        static atomic_flag told = ATOMIC_FLAG_INIT;
        if (text && *text && strcmp(text, "0") != 0 && !atomic_flag_test_and_set(&told))
            rg_warn("REMOTE_GPU_ZEROCOPY is 1 or 0, not '%s'", text);
        return;
    }
    zerocopy->on = setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0;
    if (!zerocopy->on)
        rg_info("no sending without copies: %s", strerror(errno));
}

/* Sends numbered ee_info to ee_data are done. TCP reports in order. */
static void take(struct rg_zerocopy *zerocopy, const struct sock_extended_err *error)
{
    if (error->ee_origin != SO_EE_ORIGIN_ZEROCOPY || error->ee_errno != 0)
        return;
    zerocopy->done = error->ee_data + 1;
    if ((error->ee_code & SO_EE_CODE_ZEROCOPY_COPIED) && zerocopy->on) {
        zerocopy->on = false;
        rg_debug("the kernel copies what it need not: back to plain sending");
    }
}

bool rg_zerocopy_done(struct rg_zerocopy *zerocopy, int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd}; /* POLLERR comes unasked */
    if (zerocopy->done != zerocopy->sent)
        (void)rg_poll(&wait, 1, timeout_ms);
    while (zerocopy->done != zerocopy->sent) {
        char space[256];
        struct msghdr message = {.msg_control = space, .msg_controllen = sizeof space};
        if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
            struct sock_extended_err error;
            if (head->cmsg_len < CMSG_LEN(sizeof error))
                continue;
            memcpy(&error, CMSG_DATA(head), sizeof error);
            take(zerocopy, &error);
        }
    }
    return zerocopy->done == zerocopy->sent;
}
