/*
 * main.c - program lib/remote-gpu/frontend: what remote-gpud lets talk to strangers.
 *
 *   frontend      descriptor 3 is the socket to the monitor, which tells it everything else
 *
 * It is started by remote-gpud and ends with it.
 */
#include "common/base/log.h"
#include "server/frontend/frontend.h"
#include "transport/connect/connect.h"
#include "transport/operations.h"

#include <malloc.h>
#include <signal.h>

int main(int argc, char **argv)
{
    (void)argv;
    /* The threads of handshakes are many and short; an arena for each would keep memory for nothing. */
    mallopt(M_ARENA_MAX, 1);
    rg_log_name("remote-gpud");
    if (argc != 1) {
        rg_error("frontend is a part of remote-gpud and is started by it");
        return 125;
    }
    signal(SIGINT, SIG_IGN); /* of the terminal; the monitor ends it when it is time */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* linked: nothing can be loaded once its rights are given up */
    rg_transport_register(&rg_transport_tcp_ops);
    rg_transport_register(&rg_transport_tls_ops);
    return rg_frontend_run(RG_MONITOR_FD);
}
