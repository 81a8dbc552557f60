/* status.c - the phrases of enum rg_status, and explanations for people. */
#include "common/base/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *rg_status_string(enum rg_status status)
{
    switch (status) {
    case RG_OK:
        return "success";
    case RG_ERR_INVALID:
        return "invalid argument";
    case RG_ERR_NO_MEMORY:
        return "out of memory or another resource";
    case RG_ERR_UNSUPPORTED:
        return "not supported";
    case RG_ERR_NOT_FOUND:
        return "not found";
    case RG_ERR_TIMEOUT:
        return "timed out";
    case RG_ERR_FAULT:
        return "memory cannot be accessed";
    case RG_ERR_IO:
        return "system call failed";
    case RG_ERR_PROTOCOL:
        return "protocol violation";
    case RG_ERR_LIMIT:
        return "limit exceeded";
    case RG_ERR_REFUSED:
        return "refused by the peer";
    case RG_ERR_CLOSED:
        return "connection closed";
    case RG_ERR_LOST:
        return "connection lost";
    case RG_ERR_UNREACHABLE:
        return "unreachable";
    }
    return "unknown status";
}

void rg_explain(char *why, size_t why_size, const char *format, ...)
{
    if (!why || !why_size)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_size, format, args);
    va_end(args);
}
