/*
 * management.h - questions to the driver's management library (proto/management/management.h), by way of a
 * process of its own.
 *
 * The daemon loads no driver. The program lib/remote-gpu/manager does; it is started by the first question
 * and stays, so that the library is initialised once. One question at a time; answers are cached for
 * RG_MANAGEMENT_FRESH_NS, so that many who watch a GPU cost no more than one. A manager that dies or does not
 * answer in time is started anew by the next question, not sooner than RG_MANAGEMENT_PAUSE_NS later.
 */
#ifndef RG_SERVER_DAEMON_MANAGEMENT_H
#define RG_SERVER_DAEMON_MANAGEMENT_H

#include "proto/management/management.h"

#include <pthread.h>
#include <sys/types.h>

#define RG_MANAGEMENT_FRESH_NS 100000000ull
#define RG_MANAGEMENT_PAUSE_NS 1000000000ull
#define RG_MANAGEMENT_KEPT     64

struct rg_management_cached;

struct rg_management {
    pthread_mutex_t lock; /* of everything */
    pid_t pid;            /* 0: there is none */
    int socket;
    uint64_t not_before_ns;
    unsigned next;
    struct rg_management_cached *cached; /* RG_MANAGEMENT_KEPT of them; NULL until there is one */
};

void rg_management_init(struct rg_management *management);
/** Ends the manager. */
void rg_management_fini(struct rg_management *management);

/**
 * Answers a question as it came from the client, with the library beside the driver at `driver`. Writes up to
 * RG_ANSWER_SIZE_MAX bytes; what goes wrong becomes an answer with NVML's word for it. Any thread.
 */
void rg_management_ask(struct rg_management *management, const char *driver, const void *question,
                       size_t question_size, void *answer, size_t *answer_size);

#endif
