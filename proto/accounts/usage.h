/*
 * usage.h - questions about usage and quotas, outside of sessions: what a client asks, what it is answered, and both as bytes.
 *
 * They travel as the question of a ClientHello (RG_PURPOSE_USAGE, RG_PURPOSE_QUOTA: of this only the project is looked at, and it may
 * be empty) and as the data of an Answer. Numbers are little-endian, texts as codec.h writes them. An answer about usage is a page of rows: as long as it says that there are more, the
 * question is asked again for those behind. What was added later stands behind all else, where older ends do not look. Unpacking checks all counts and enumerations, and cleans text. Any thread.
 */
#ifndef RG_PROTO_ACCOUNTS_USAGE_H
#define RG_PROTO_ACCOUNTS_USAGE_H

#include "common/base/limits.h"
#include "common/base/status.h"
#include "proto/control/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The name of all who have proved nothing; their addresses are told apart beside it. */
#define RG_USAGE_UNAUTHENTICATED "unauthenticated"

enum { RG_USAGE_TEXT = 256 };

/** What a user has proved. */
enum rg_usage_kind {
    RG_USAGE_NOBODY = 1, /* nothing */
    RG_USAGE_LOCAL,      /* a user of the server's machine */
    RG_USAGE_CERTIFICATE,
};
/** "unauthenticated", "local", "certificate". */
const char *rg_usage_kind_name(enum rg_usage_kind kind);

/** What a row of an answer is about. */
enum rg_usage_by {
    RG_USAGE_BY_USER = 1, /* and project */
    RG_USAGE_BY_PROJECT,
    RG_USAGE_BY_DAY,
    RG_USAGE_BY_MONTH,
    RG_USAGE_BY_SESSION,
    RG_USAGE_BY_SHARING, /* and whether on instances of MIG */
    RG_USAGE_BY_LAST = RG_USAGE_BY_SHARING
};
#define RG_USAGE_BY_CHOICES "user|project|day|month|session|sharing"
/** The words of --by. False: there is no such word. */
bool rg_usage_by_name(const char *name, enum rg_usage_by *out);
const char *rg_usage_by_text(enum rg_usage_by by);

/** Which usage. Texts that are empty choose nothing. */
struct rg_usage_question {
    char user[RG_USAGE_TEXT];
    char project[RG_USAGE_TEXT];
    uint32_t has_project; /* 0 or 1 */
    int64_t since, until; /* seconds since 1970; 0: from the beginning, until now. Counted by whole hours */
    enum rg_usage_by by;
    uint64_t skip; /* rows of earlier pages */
};

/** What is not meant by `by` is empty. */
struct rg_usage_row {
    enum rg_usage_kind kind; /* 0: of several */
    char user[RG_USAGE_TEXT], address[RG_USAGE_TEXT], project[RG_USAGE_TEXT];
    char period[16];         /* "2026-11-27", "2026-11" */
    uint64_t session;        /* number on its server, which counts anew when it starts */
    int64_t started, ended;  /* of a session; ended 0: it runs */
    char end[64];            /* how it ended */
    enum rg_sharing sharing; /* how it shared its GPUs; of a session, and by this */
    bool mig;                /* on instances of GPUs that MIG has divided; likewise */
    uint64_t sessions;
    uint64_t held_ns, busy_ns, byte_seconds, bytes_in, bytes_out, launches, peak_bytes;
};

struct rg_usage_answer {
    char why[512];        /* not "": there is no answer; for people */
    bool everybody;       /* the rows are of all users, not of the one who asked alone */
    bool more;            /* rows are left for another page */
    int64_t since, until; /* as they were counted; since 0: from the beginning */
    uint32_t n;
    struct rg_usage_row rows[RG_USAGE_ROWS_MAX];
};

/** The size of a packed question, at most RG_QUESTION_SIZE_MAX. `out` has that. */
size_t rg_usage_pack_question(const struct rg_usage_question *question, void *out);
RG_MUST_CHECK enum rg_status rg_usage_unpack_question(const void *data, size_t size,
                                                      struct rg_usage_question *out);
/**
 * The size of a packed answer, at most RG_ANSWER_SIZE_MAX. `out` has that. Rows that do not fit are left for another page (`more`).
 */
size_t rg_usage_pack_answer(const struct rg_usage_answer *answer, void *out);
RG_MUST_CHECK enum rg_status rg_usage_unpack_answer(const void *data, size_t size,
                                                    struct rg_usage_answer *out);

/* --- quotas ------------------------------------------------------------------------------------------------- */

/** What a quota limits. */
enum rg_quota_what {
    RG_QUOTA_SESSIONS,  /* at once */
    RG_QUOTA_GPUS,      /* of all sessions together, at once */
    RG_QUOTA_MEMORY,    /* bytes granted to all sessions together, at once */
    RG_QUOTA_HOURS_DAY, /* GPU time held in a day (UTC), nanoseconds */
    RG_QUOTA_HOURS_MONTH,
    RG_QUOTAS
};
/** "sessions", "gpus", "memory", "gpu-hours-day", "gpu-hours-month": also the keys in the rules and in JSON. */
const char *rg_quota_what_name(enum rg_quota_what what);

/** For whom. */
enum rg_quota_scope { RG_QUOTA_USER = 1, RG_QUOTA_GROUP, RG_QUOTA_PROJECT };
/** "user", "group", "project": the keys in JSON. */
const char *rg_quota_scope_name(enum rg_quota_scope scope);

#define RG_QUOTA_UNLIMITED UINT64_MAX

struct rg_quota_row {
    enum rg_quota_scope scope;
    char name[RG_USAGE_TEXT]; /* of the user, group or project */
    uint64_t allowed[RG_QUOTAS], used[RG_QUOTAS];
};

struct rg_quota_answer {
    char user[RG_USAGE_TEXT];          /* who asked, as it is called there */
    bool used_known;                   /* whether GPU hours used before the server started are in it */
    int64_t now, day_ends, month_ends; /* seconds since 1970 */
    uint32_t n;
    struct rg_quota_row rows[RG_QUOTA_SCOPES_MAX];
};

size_t rg_quota_pack_answer(const struct rg_quota_answer *answer, void *out);
RG_MUST_CHECK enum rg_status rg_quota_unpack_answer(const void *data, size_t size,
                                                    struct rg_quota_answer *out);

#endif
