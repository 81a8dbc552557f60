/*
 * management.h - questions to the driver's management library (proto/management/management.h), by way of a
 * process of its own.
 *
 * The program lib/remote-gpu/manager loads the driver's library; the monitor starts it when the first question comes, and it
 * stays, so that the library is initialised once. One question at a time; answers are cached for
 * RG_MANAGEMENT_FRESH_NS, so that many who watch a GPU cost no more than one, and given from there without a turn. A manager that dies or does not
 * answer in time is started anew by a later question. Who has waited RG_MANAGEMENT_TURN_MS for its turn is told that nothing
 * is known.
 */
#ifndef RG_SERVER_FRONTEND_MANAGEMENT_H
#define RG_SERVER_FRONTEND_MANAGEMENT_H

#include "proto/management/management.h"
#include "server/frontend/monitor_link.h"

#include <pthread.h>

#define RG_MANAGEMENT_FRESH_NS 100000000ull
#define RG_MANAGEMENT_TURN_MS  5000
#define RG_MANAGEMENT_KEPT     64

struct rg_management_cached;

struct rg_management {
    struct rg_monitor_link *link;
    pthread_mutex_t lock;                /* of what follows; nobody waits for the manager under it */
    bool asks;                           /* somebody has the turn */
    pthread_cond_t turn;                 /* it is over */
    struct rg_management_cached *cached; /* RG_MANAGEMENT_KEPT of them; NULL until there is one */
    unsigned next;                       /* of them */
    int socket;                          /* of who has the turn: to the manager; -1: there is none */
};

/** Asks the monitor for a manager only with the first question. */
void rg_management_init(struct rg_management *management, struct rg_monitor_link *link);

/**
 * Answers a question as it came from the client. Writes up to RG_ANSWER_SIZE_MAX bytes; what goes wrong becomes an answer with
 * NVML's word for it. Any thread.
 */
void rg_management_ask(struct rg_management *management, const void *question, size_t question_size,
                       void *answer, size_t *answer_size);

#endif
