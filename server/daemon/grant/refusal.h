/* refusal.h - why somebody is refused, in the monitor's answer. */
#ifndef RG_SERVER_DAEMON_GRANT_REFUSAL_H
#define RG_SERVER_DAEMON_GRANT_REFUSAL_H

#include "server/daemon/shared/monitor_protocol.h"

/** Fills in the reason, a code for programs and a sentence for people; returns `status`. Any thread. */
enum rg_status rg_refusal(struct rg_monitor_answer *answer, enum rg_status status, enum rg_refusal_code code,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
