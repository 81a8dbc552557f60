/* bulk_log.c - see bulk_log.h. */
#include "server/transfer/bulk_log.h"

#include "common/base/log.h"

void rg_bulk_log(uint64_t session, const struct rg_conn_statistics *bulk, const char *of)
{
    if (bulk->bulk_direct_sent || bulk->bulk_direct_received || bulk->bulk_copied_sent ||
        bulk->bulk_copied_received)
        rg_info("session %llu: bulk data%s: received %llu bytes in their place and %llu by a copy, sent %llu "
                "from their place and %llu by a copy",
                (unsigned long long)session, of, (unsigned long long)bulk->bulk_direct_received,
                (unsigned long long)bulk->bulk_copied_received, (unsigned long long)bulk->bulk_direct_sent,
                (unsigned long long)bulk->bulk_copied_sent);
}
