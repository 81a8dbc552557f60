/*
 * protocol.h - what the monitor tells the accountant, the process that has the accounts' file, and what that answers.
 *
 * Both ends of one SEQPACKET socket; each packet is one struct of fixed size. What the monitor says of a session and of a part of
 * it replaces what it said before, so it may say the same again after an accountant has died, and leave out what is out of date.
 * Packets are numbered; the accountant answers SAVED when all up to a number is in the file, or FAILED with why not: then the
 * monitor keeps what it said since the last SAVED, and says it again later. The monitor never waits for the accountant.
 *
 * The accountant trusts the monitor, and ends when its socket is closed, after it has saved what was still in it.
 */
#ifndef RG_SERVER_ACCOUNTS_PROTOCOL_H
#define RG_SERVER_ACCOUNTS_PROTOCOL_H

#include "proto/accounts/usage.h"
#include "server/accounts/figures.h"
#include "server/accounts/period.h"

#include <stdint.h>

/** The accountant's end of the socket. */
#define RG_ACCOUNTANT_FD 3

enum { RG_ACCOUNTS_NAME = 256, RG_ACCOUNTS_WHY = 512, RG_ACCOUNTS_END = 64 };

/** On whose account a session goes: who it is, and the project that it was begun for. */
struct rg_account_owner {
    enum rg_usage_kind kind;
    char user
        [RG_ACCOUNTS_NAME]; /* "alice"; "uid:1000"; of those who have proved nothing RG_USAGE_UNAUTHENTICATED */
    char address[RG_ACCOUNTS_NAME]; /* of these; else "" */
    char project[RG_ACCOUNTS_NAME]; /* "": none was named */
};

enum rg_accountant_word_kind {
    RG_ACCOUNTANT_SESSION = 1, /* began, or has changed, or ended */
    RG_ACCOUNTANT_PART,        /* what was counted of a session in an hour, until now */
    RG_ACCOUNTANT_LOAD,        /* asked for: TOTAL for each owner, then LOADED */
    RG_ACCOUNTANT_QUERY, /* with a socket by which the answer goes: one packet, the packed answer of proto/accounts */
};

struct rg_accountant_session {
    uint64_t number;
    struct rg_account_owner owner;
    int64_t started, ended; /* seconds since 1970; 0: it runs */
    uint32_t n_devices;
    enum rg_sharing sharing;   /* how it shares them */
    bool mig;                  /* they are instances of GPUs that MIG has divided */
    char end[RG_ACCOUNTS_END]; /* how it ended, for people */
};

struct rg_accountant_part {
    uint64_t session; /* number */
    uint32_t part;    /* of the session, from 0: no two are of one hour, unless the clock was set back */
    int64_t until;    /* seconds since 1970: the last measurement */
    struct rg_figures_slice slice;
};

struct rg_accountant_load {
    struct rg_period day, month;
};

struct rg_accountant_query {
    bool everybody; /* who asks may see all users; else `owner` only */
    struct rg_account_owner owner;
    struct rg_usage_question question;
};

struct rg_accountant_word {
    enum rg_accountant_word_kind kind;
    uint64_t number; /* counts from 1 */
    union {
        struct rg_accountant_session session;
        struct rg_accountant_part part;
        struct rg_accountant_load load;
        struct rg_accountant_query query;
    };
};

enum rg_accountant_answer_kind {
    RG_ACCOUNTANT_SAVED = 1, /* all words up to `number` */
    RG_ACCOUNTANT_FAILED,    /* those since the last SAVED are not in the file */
    RG_ACCOUNTANT_TOTAL,     /* of one owner, in the periods of LOAD number `number` */
    RG_ACCOUNTANT_LOADED,    /* that was the last; with a reason: they are not known */
};

struct rg_accountant_answer {
    enum rg_accountant_answer_kind kind;
    uint64_t number;
    char why[RG_ACCOUNTS_WHY]; /* "": it went well */
    struct rg_account_owner owner;
    uint64_t day_ns, month_ns; /* GPU time held */
};

/** Exit status of an accountant that has said why it cannot work. */
enum { RG_ACCOUNTANT_CANNOT = 3 };

#endif
