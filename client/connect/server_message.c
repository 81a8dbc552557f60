/* server_message.c - see server_message.h. The reader, so never two threads of one session. */
#include "client/connect/server_message.h"

#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log_limit.h"
#include "proto/control/control.h"

bool rg_server_message_notice(struct rg_session *session, const struct rg_notice *notice,
                              struct rg_reader *in, size_t bulk_size)
{
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    char line[RG_NOTICE_SAY_MAX + 1];
    const uint64_t size = notice->arg[0];
    if (bulk_size || size > RG_NOTICE_SAY_MAX)
        return false;
    const unsigned char *text = rg_get(in, size);
    if (!text)
        return false;
    rg_control_text(line, sizeof line, (const char *)text, size);
    rg_log_limited(&limit, rg_now_ns(), RG_LOG_WARN, "%s: %s", session->server, line);
    return true;
}
