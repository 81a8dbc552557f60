/* figures.h - what is measured in a simulation, and how it is shown. */
#ifndef BENCH_POOL_FIGURES_H
#define BENCH_POOL_FIGURES_H

#include "bench/pool/cluster.h"

#include <stddef.h>

/** Samples that grow as needed. A zeroed one is empty. */
struct series {
    double *values;
    size_t n, room;
};
/** Ends the program where there is no memory. */
void series_add(struct series *series, double value);
void series_free(struct series *series);
/** Jain's index: 1 if all are alike, 1/n if one has everything. 1 if there are none. */
double jain(const struct series *series);

struct figures {
    struct series decision; /* processor seconds of each call of the scheduler */
    struct series queue;    /* requests that it was given */
    struct series utilised; /* of all GPUs, while the second half of the requests arrives */
    struct series unfit;    /* fragmentation, while some wait */
    struct series
        shares; /* Jain's index of the GPUs of projects that have requests waiting, if there are several */
    uint64_t handled; /* requests in all calls */
};
void figures_free(struct figures *figures);

/** Prints all, as text or as one line of JSON. */
void figures_print(struct figures *figures, const struct cluster *cluster, bool json);

#endif
