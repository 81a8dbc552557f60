/* refusal.c - see refusal.h. */
#include "server/daemon/grant/refusal.h"

#include <stdarg.h>
#include <stdio.h>

enum rg_status rg_refusal(struct rg_monitor_answer *answer, enum rg_status status, enum rg_refusal_code code,
                          const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(answer->why, sizeof answer->why, format, arguments);
    va_end(arguments);
    answer->code = code;
    return status;
}
