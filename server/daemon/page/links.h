/*
 * links.h - how long a round trip takes between this machine and a client, as the kernel measures it for TCP's own sake.
 *
 * The monitor has no descriptor of a session's connection while the session runs, but knows its two addresses, by which the kernel can be
 * asked (sock_diag(7)): nothing is measured, and nothing is asked unless somebody wants to see it. Main thread.
 */
#ifndef RG_SERVER_DAEMON_PAGE_LINKS_H
#define RG_SERVER_DAEMON_PAGE_LINKS_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

/** The two ends of a TCP connection; zeroed: it is none. */
struct rg_link {
    struct sockaddr_storage own, peer;
};

/** Notes the ends of a connection, if it is TCP. */
void rg_link_note(int connection, struct rg_link *out);
/** The smoothed round trip time; 0: not known, or the connection has gone (the session may go on by another one). */
uint32_t rg_link_rtt_us(const struct rg_link *link);

#endif
