/*
 * status.h - the one status type of remote-gpu's own functions.
 *
 * Grouped by how much a failure ends: a call, the session, the connection, the server. Only interpose/ and
 * client/ turn a status into a CUresult; only main functions exit. The function that first identifies a
 * failure logs it; its callers pass the status on.
 */
#ifndef RG_COMMON_BASE_STATUS_H
#define RG_COMMON_BASE_STATUS_H

#include <stddef.h>

#define RG_MUST_CHECK __attribute__((warn_unused_result))

enum rg_status {
    RG_OK = 0,
    /* the call fails, everything else goes on */
    RG_ERR_INVALID = 1,     /* an argument is wrong */
    RG_ERR_NO_MEMORY = 2,   /* memory, file descriptors or another resource of this process ran out */
    RG_ERR_UNSUPPORTED = 3, /* known, but not possible here */
    RG_ERR_NOT_FOUND = 4,   /* no such name, id, file */
    RG_ERR_TIMEOUT = 5,     /* the time given ran out; may be tried again */
    RG_ERR_FAULT = 6,       /* memory named by the caller cannot be read or written */
    RG_ERR_IO = 7,          /* a system call failed; errno was logged */
    /* the session ends */
    RG_ERR_PROTOCOL = 20, /* the peer sent something malformed */
    RG_ERR_LIMIT = 21,    /* the peer exceeded a limit of common/base/limits.h */
    RG_ERR_REFUSED = 22,  /* the peer refused: version, authorisation, admission */
    /* the connection is gone */
    RG_ERR_CLOSED = 40,      /* the peer closed in order, or this side interrupted */
    RG_ERR_LOST = 41,        /* reset, broken or timed out */
    RG_ERR_UNREACHABLE = 42, /* no connection could be made */
};

/**
 * Returns from the function what `expression` is (an enum rg_status, a CUresult) unless that is success, which
 * is 0.
 */
#define RG_TRY(expression)                                                                                   \
    do {                                                                                                     \
        const __auto_type tried_ = (expression);                                                             \
        if (tried_ != 0)                                                                                     \
            return tried_;                                                                                   \
    } while (0)

/** A short English phrase for `status`; static storage. */
const char *rg_status_string(enum rg_status status);

/**
 * Writes the reason of a failure, for a person to read, into `why` (`why_size` bytes; cut if too long). A
 * NULL `why` or a size of 0 means that nobody asked. No newline, no full stop: "connection refused".
 */
void rg_explain(char *why, size_t why_size, const char *format, ...) __attribute__((format(printf, 3, 4)));
/** A failure with its reason: return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is no number", text); */
#define RG_FAILED(status, ...) (rg_explain(__VA_ARGS__), (status))

#endif
