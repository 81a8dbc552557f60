/* simulation.h - the state of a simulation, and what its parts do: threads (simulate.c), wire and server,
 * events. */
#ifndef RG_CLIENT_PREDICT_SIMULATION_H
#define RG_CLIENT_PREDICT_SIMULATION_H

#include "client/predict/simulate.h"

#define RG_SIM_SEND_NS 3000 /* that sending a message costs whoever sends it */

enum rg_sim_event_kind { RG_SIM_THREAD, RG_SIM_SENDER, RG_SIM_BACK };

struct rg_sim_event {
    uint64_t time, order;
    enum rg_sim_event_kind kind;
    unsigned server; /* RG_SIM_SENDER, RG_SIM_BACK */
    uint32_t thread; /* RG_SIM_BACK: who waits for it; UINT32_MAX: nobody */
    uint32_t record;
    bool async, deferred;
    uint64_t ready; /* RG_SIM_BACK: when the server has given all of it to the network */
    uint64_t bytes, down;
};

struct rg_sim_thread {
    size_t step;
    uint64_t now;
    bool parked; /* until threads it waits for have ended */
    bool ended;
    bool ready; /* what the query it waits for will say */
    bool waits;
    uint64_t since;  /* it waits */
    unsigned posted; /* records since it last waited */
};

/* The reply of a record that somebody waits for later. */
struct rg_sim_answer {
    uint64_t there;
    bool came, awaited;
    uint32_t thread; /* that waits for it */
};

/* Who waits for a record that has been put into a batch. */
struct rg_sim_posted {
    uint32_t record; /* UINT32_MAX: one that asks what an optimisation would have known */
    uint32_t thread; /* UINT32_MAX: nobody */
    uint64_t number; /* of all that is put, whatever the server */
};

/* The way to a server, and what is behind it. */
struct rg_sim_server {
    struct rg_sim_posted *batched;
    size_t n_batched, batch_capacity;
    uint64_t batch_bytes;
    bool sender_due;
    uint64_t next_inline;    /* when a thread may send for itself again */
    uint64_t deferred_until; /* when the last deferred data has left the server */
    uint64_t sender_free, calls_free, up_free, down_free, dispatcher_free;
    struct rg_sim_use {
        uint64_t begin, end;
    } sends, receives; /* the last time in which its link to other servers was in use, each way */
    struct rg_device device;
};

/* An exchange between servers: those of a key are the first one's. */
struct rg_sim_exchange {
    uint64_t start, latest; /* when its stream got there; of the first: the last of them that did */
    uint32_t come;          /* of the first: how many */
    bool there;
};

struct rg_simulation {
    const struct rg_model *model;
    const struct rg_wire *wire;
    bool async, batch, inline_send, deferred, completion_push;
    double sent_share; /* of the bytes of records: the others repeat what has been sent */
    uint64_t off;
    struct rg_sim_event *heap; /* the earliest first */
    size_t n_events, events_capacity;
    uint64_t order;
    struct rg_sim_thread *threads;
    struct rg_sim_server servers[RG_SERVERS_MAX];
    uint64_t n_put;
    struct rg_sim_answer *answers;     /* by record */
    struct rg_sim_exchange *exchanges; /* as in the model */
    struct rg_outcome *out;
    bool failed;
};

static inline uint64_t rg_sim_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/** ns that bytes take; 0: there is no limit. */
static inline uint64_t rg_sim_cost(uint64_t bytes, uint64_t bytes_per_second)
{
    return bytes_per_second ? (uint64_t)((unsigned __int128)bytes * 1000000000u / bytes_per_second) : 0;
}

/** 0 where `to` is before `from`. */
static inline uint64_t rg_sim_gap(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

/* simulate_events.c: the events that are to come, in the order of their times. */
void rg_sim_push(struct rg_simulation *s, struct rg_sim_event event);
struct rg_sim_event rg_sim_pop(struct rg_simulation *s);

/* simulate_server.c: the wire, and what happens behind it. */
/**
 * Puts a record into its server's batch; UINT32_MAX: one that asks. `thread` waits for its reply; UINT32_MAX: nobody
 * does.
 */
void rg_sim_put(struct rg_simulation *s, uint32_t record, uint32_t thread);
/**
 * Sends what has been put; returns when the sender to that server may go on. Also what was put for other servers, so that records which wait
 * for each other are executed in the order in which they were put.
 */
uint64_t rg_sim_flush(struct rg_simulation *s, unsigned server, uint64_t now);

/* simulate_exchange.c: what servers have to exchange. */
/** A stream's work begins for which servers have something to exchange, if it does not wait for others. */
void rg_sim_exchange(struct rg_simulation *s, const struct rg_record_model *record, uint64_t start);
/** The server of a record; UINT32_MAX: the first. */
static inline unsigned rg_sim_server_of(const struct rg_simulation *s, uint32_t record)
{
    return record == UINT32_MAX ? 0 : s->model->records[record].server;
}
/** Something is given to the way back. */
void rg_sim_come_back(struct rg_simulation *s, const struct rg_sim_event *event);

#endif
