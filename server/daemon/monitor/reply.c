/* reply.c - see reply.h. */
#include "server/daemon/monitor/reply.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

void rg_reply(struct rg_frontend_process *frontend, const struct rg_monitor_answer *answered, const int *fds,
              unsigned n_fds)
{
    struct rg_monitor_word word = {.kind = RG_TELL_ANSWER, .answer = *answered};
    rg_frontend_tell(frontend, &word, fds, n_fds);
}

void rg_reply_with(struct rg_frontend_process *frontend, const struct rg_monitor_answer *answered, int fd)
{
    rg_reply(frontend, answered, &fd, fd >= 0 ? 1 : 0);
    if (fd >= 0)
        close(fd);
}

void rg_reply_refuse(struct rg_frontend_process *frontend, struct rg_monitor_answer *answered,
                     enum rg_refusal_code code, const char *why)
{
    answered->status = RG_ERR_REFUSED;
    answered->code = code;
    snprintf(answered->why, sizeof answered->why, "%s", why);
    rg_reply(frontend, answered, NULL, 0);
}

bool rg_reply_open(struct rg_frontend_process *frontend, struct rg_monitor_answer *answered, int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0)
        return true;
    rg_reply_refuse(frontend, answered, RG_REFUSAL_INTERNAL, "the server is out of memory; try again later");
    return false;
}

void rg_reply_by(struct rg_frontend_process *frontend, struct rg_monitor_answer *answered, const int ends[2],
                 bool taken, const char *why_not)
{
    if (taken)
        rg_reply(frontend, answered, ends, 1);
    else
        rg_reply_refuse(frontend, answered, RG_REFUSAL_INTERNAL, why_not);
    close(ends[0]);
    close(ends[1]);
}
