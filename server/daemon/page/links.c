/* links.c - see links.h. The question is that of ss(8): one socket, by its addresses. */
#include "server/daemon/page/links.h"

#include "common/base/cleanup.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 20

void rg_link_note(int connection, struct rg_link *out)
{
    socklen_t own = sizeof out->own, peer = sizeof out->peer;
    memset(out, 0, sizeof *out);
    if (getsockname(connection, (struct sockaddr *)&out->own, &own) != 0 ||
        getpeername(connection, (struct sockaddr *)&out->peer, &peer) != 0 ||
        out->own.ss_family != out->peer.ss_family)
        memset(out, 0, sizeof *out);
}

/* False: it is no address of TCP's. */
static bool fill(const struct rg_link *link, struct inet_diag_req_v2 *out)
{
    const struct sockaddr_in *own4 = (const void *)&link->own, *peer4 = (const void *)&link->peer;
    const struct sockaddr_in6 *own6 = (const void *)&link->own, *peer6 = (const void *)&link->peer;
    out->sdiag_family = (uint8_t)link->own.ss_family;
    out->sdiag_protocol = IPPROTO_TCP;
    out->idiag_ext = 1 << (INET_DIAG_INFO - 1);
    out->idiag_states = ~0u;
    out->id.idiag_cookie[0] = out->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (link->own.ss_family == AF_INET) {
        out->id.idiag_sport = own4->sin_port;
        out->id.idiag_dport = peer4->sin_port;
        memcpy(out->id.idiag_src, &own4->sin_addr, sizeof own4->sin_addr);
        memcpy(out->id.idiag_dst, &peer4->sin_addr, sizeof peer4->sin_addr);
        return true;
    }
    out->id.idiag_sport = own6->sin6_port;
    out->id.idiag_dport = peer6->sin6_port;
    memcpy(out->id.idiag_src, &own6->sin6_addr, sizeof own6->sin6_addr);
    memcpy(out->id.idiag_dst, &peer6->sin6_addr, sizeof peer6->sin6_addr);
    return link->own.ss_family == AF_INET6;
}

/* In the answer, where the kernel has it. */
static uint32_t find_rtt(const struct nlmsghdr *header, size_t size)
{
    struct tcp_info info;
    if (!NLMSG_OK(header, size) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return 0;
    const struct rtattr *at =
        (const void *)((const char *)NLMSG_DATA(header) + NLMSG_ALIGN(sizeof(struct inet_diag_msg)));
    int left = (int)(header->nlmsg_len - NLMSG_SPACE(sizeof(struct inet_diag_msg)));
    for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        const size_t payload = RTA_PAYLOAD(at);
        if (at->rta_type != INET_DIAG_INFO ||
            payload < offsetof(struct tcp_info, tcpi_rtt) + sizeof info.tcpi_rtt)
            continue;
        memset(&info, 0, sizeof info);
        memcpy(&info, RTA_DATA(at), payload < sizeof info ? payload : sizeof info);
        return info.tcpi_rtt;
    }
    return 0;
}

uint32_t rg_link_rtt_us(const struct rg_link *link)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 request;
    } question = {.header = {.nlmsg_len = sizeof question,
                             .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                             .nlmsg_flags = NLM_F_REQUEST}};
    union {
        struct nlmsghdr header;
        char bytes[2048];
    } answer;
    const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
    if (!fill(link, &question.request))
        return 0;
    RG_CLEANUP_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        send(fd, &question, sizeof question, 0) != (ssize_t)sizeof question)
        return 0;
    const ssize_t got = recv(fd, &answer, sizeof answer, 0);
    return got > 0 ? find_rtt(&answer.header, (size_t)got) : 0;
}
