/* rails.h - what the tests of multirail have in common. */
#ifndef RG_TESTS_MULTIRAIL_RAILS_H
#define RG_TESTS_MULTIRAIL_RAILS_H

#include "tests/transport/support.h"
#include "transport/state.h"

static const char address[] = "mem:rails";

/* How many rails a connection has. */
static inline unsigned living(struct rg_conn *conn)
{
    struct rg_conn_statistics statistics;
    rg_conn_get_statistics(conn, &statistics);
    return statistics.channels;
}

#define RUN(test) (printf("%s\n", #test), fflush(stdout), test())

#endif
