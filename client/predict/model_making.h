/* model_making.h - what the parts of model.c share while they make a model. */
#ifndef RG_CLIENT_PREDICT_MODEL_MAKING_H
#define RG_CLIENT_PREDICT_MODEL_MAKING_H

#include "client/predict/model.h"

#define RG_MODEL_NO_RECORD UINT32_MAX

/* What is known of a record besides, while the model is made. */
struct rg_model_seen {
    uint64_t seq;   /* polls: the handle */
    uint64_t place; /* in the worker's order; polls: that of their thread's record before */
    uint64_t put_at;
    uint64_t sent_at; /* when its message was sent, if it has a reply; else when it was put */
    uint64_t back_at; /* when its reply was there */
    const struct rg_time *time;
};

struct rg_model_making {
    const struct rg_trace *trace;
    unsigned *traits; /* by the trace's numbers of operations (enum rg_op_trait) */
    struct rg_model *model;
    struct rg_model_seen *seen; /* by record */
    size_t capacity;
    uint32_t last_on[RG_SERVERS_MAX];         /* the last record of the thread that is looked at, by server */
    int64_t offsets[RG_SERVERS_MAX];          /* the worker's clock less the client's, by server */
    struct rg_device devices[RG_SERVERS_MAX]; /* as they were */
    bool failed;
};

/** Finds out which threads began and ended because of others. False: out of memory. */
bool rg_model_relate_threads(struct rg_model *model);
/** Finds queries in a loop: for each the step behind the last one of its loop. */
void rg_model_find_loops(struct rg_model *model, struct rg_thread_model *thread);
/** Notes what servers have to exchange for a record. False: out of memory. */
bool rg_model_add_exchange(struct rg_model *model, uint32_t record, const struct rg_trace_item *item);
/** Finds those that wait for each other, when all have been noted. */
void rg_model_relate_exchanges(struct rg_model *model);
/** When a stream got to an exchange, and was done with it, by the client's clock. */
void rg_model_learn_exchange(struct rg_model_making *making, uint32_t exchange, uint64_t start, uint64_t end);
/** Tells the exchanges' own time from what they waited for others, when all have been learned. False: out of memory. */
bool rg_model_weigh_exchanges(struct rg_model *model);
/** Learns from the worker's times what records cost and did on the device. False: out of memory. */
bool rg_model_learn(struct rg_model_making *making);

#endif
