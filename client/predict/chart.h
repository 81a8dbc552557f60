/* chart.h - the picture of remote-gpu predict: slow-down over round-trip time, a line for each bandwidth. */
#ifndef RG_CLIENT_PREDICT_CHART_H
#define RG_CLIENT_PREDICT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** A network to be marked. */
struct rg_chart_mark {
    const char *name;
    double rtt_us, slow_down;
};

struct rg_chart {
    const char *program;
    double seconds; /* of the recorded run */
    const double *rtts_us;
    size_t n_rtts;
    const char *const *bandwidths; /* names */
    size_t n_bandwidths;
    const double *slow_downs; /* by bandwidth, then round-trip time */
    const struct rg_chart_mark *marks;
    size_t n_marks;
};

/** Writes an SVG picture. False: `out` has an error. */
bool rg_chart_write(const struct rg_chart *chart, FILE *out);

#endif
