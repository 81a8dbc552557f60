/*
 * simulate.h - runs a model over a network: the client's threads, the sender, the wire, the worker's
 * dispatcher, the streams of the device. Deterministic, and in one thread.
 */
#ifndef RG_CLIENT_PREDICT_SIMULATE_H
#define RG_CLIENT_PREDICT_SIMULATE_H

#include "client/predict/model.h"

/** The network, besides what the recorded one took. */
struct rg_wire {
    uint64_t oneway_ns;        /* more than on the recorded link */
    uint64_t bytes_per_second; /* each way; 0: no limit */
    uint64_t buffer;           /* bytes that the client may send before they have left it */
    bool whole;                /* messages arrive whole, as with the filter delay; else as they are sent */
    uint64_t between_oneway_ns, between_bytes_per_second; /* likewise, of the link between servers */
};

struct rg_outcome {
    uint64_t ns;          /* from the begin to the end of the process */
    uint64_t waited_ns;   /* of all threads */
    uint64_t round_trips; /* that threads waited for */
    uint64_t messages;    /* to the server */
    uint64_t sent, received;
};

/** Bits of the trace's optimisations whose worth the simulation can tell, of those that were on. */
uint64_t rg_simulated_optimisations(const struct rg_model *model);
/** `off`: bits of the trace's optimisations that are switched off. RG_ERR_NO_MEMORY. */
RG_MUST_CHECK enum rg_status rg_simulate(const struct rg_model *model, const struct rg_wire *wire,
                                         uint64_t off, struct rg_outcome *out);

#endif
