/* introduction.c - see introduction.h. */
#include "server/daemon/sessions/introduction.h"

#include "server/daemon/grant/refusal.h"
#include "transport/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t fill(const struct rg_monitor_connect *wanted, union address *out)
{
    memset(out, 0, sizeof *out);
    if (wanted->is_ipv6) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(wanted->port);
        memcpy(&out->v6.sin6_addr, wanted->address, sizeof out->v6.sin6_addr);
        return sizeof out->v6;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(wanted->port);
    memcpy(&out->v4.sin_addr, wanted->address, sizeof out->v4.sin_addr);
    return sizeof out->v4;
}

enum rg_status rg_introduction_connect(const struct rg_sessions *sessions,
                                       const struct rg_monitor_question *question, const struct rg_who *who,
                                       bool everywhere, int *out, struct rg_monitor_answer *answer)
{
    union address address;
    const socklen_t size = fill(&question->connect, &address);
    if (!sessions->peers)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNSUPPORTED,
                          "this server connects to no other servers (remote-gpud --peers deny)");
    if (!rg_sessions_belongs(sessions, question->connect.session, who))
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_NO_SUCH_SESSION,
                          "there is no such session of this client");
    if (!question->peer.encrypted && !everywhere && !rg_address_is_loopback(&address.any))
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNAUTHORISED,
                          "this server connects to servers on other machines by TLS alone");
    const int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_INTERNAL, "%s", strerror(errno));
    if (connect(fd, &address.any, size) != 0 && errno != EINPROGRESS) {
        const int error = errno;
        close(fd);
        return rg_refusal(answer, RG_ERR_REFUSED, RG_REFUSAL_UNSUPPORTED, "%s", strerror(error));
    }
    *out = fd;
    return RG_OK;
}
