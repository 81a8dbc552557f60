/* said.c - see said.h. The reader, so never two threads of one session. */
#include "client/connect/said.h"

#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log_limit.h"

#include <string.h>

bool rg_said_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                    size_t bulk_size)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    char line[RG_NOTICE_SAY_MAX];
    const uint64_t size = notice->arg[0];
    if (bulk_size || size > sizeof line)
        return false;
    const unsigned char *text = rg_get(in, size);
    if (!text)
        return false;
    for (uint64_t i = 0; i < size; i++)
        line[i] = (char)(text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i]);
    rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN, "%s: %.*s", session->server, (int)size, line);
    return true;
}
