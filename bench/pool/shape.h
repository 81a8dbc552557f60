/*
 * shape.h - requests that have the shape of a published trace: how many GPUs they ask for, how long they run, on which
 * servers. What the tables hold was published; what is not in them is this benchmark's own and named in pool.c.
 */
#ifndef BENCH_POOL_SHAPE_H
#define BENCH_POOL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

/** A point of a distribution: so many per cent are not above the value (seconds). */
struct quantile {
    double percent, value;
};

/** A kind of request. */
struct kind {
    double weight;                   /* of all requests, in any unit */
    uint32_t n;                      /* GPUs */
    uint32_t fraction;               /* of each, in millionths; 0: whole GPUs */
    const struct quantile *run_time; /* ends with percent 100 */
};

/** Servers of one sort. */
struct sort {
    double weight;
    uint32_t n; /* GPUs */
};

struct shape {
    const char *name, *source;
    const struct kind *kinds;
    uint32_t n_kinds;
    const struct sort *sorts;
    uint32_t n_sorts;
    uint32_t projects;
};

/** The shape of this name; NULL. */
const struct shape *shape_find(const char *name);

/** Numbers that are the same in every run (xorshift64*). */
uint64_t random_next(uint64_t *state);
/** In [0, 1). */
double random_unit(uint64_t *state);
/** One of all kinds, by weight. */
const struct kind *shape_kind(const struct shape *shape, uint64_t *state);
/** Seconds, between quantiles by the logarithm. */
double shape_run_time(const struct kind *kind, uint64_t *state);
/** The mean of GPUs times seconds of a request, from a million of them. */
double shape_mean_work(const struct shape *shape);
/** GPUs of server `i` of `n`, so that the sorts are there by their weights. */
uint32_t shape_server(const struct shape *shape, uint32_t i, uint32_t n);

#endif
