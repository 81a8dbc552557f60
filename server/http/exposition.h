/*
 * exposition.h - writing metrics as text: OpenMetrics 1.0, or the older format of Prometheus (0.0.4) for who does not ask for it.
 *
 * Happy path: rg_exposition_family once a family, then rg_exposition_sample for each of its samples, rg_exposition_end. Whatever is
 * in a label's value is escaped, and made UTF-8 that can be shown: names come from peers. Failures (no memory) are remembered, and
 * found at the end. One thread.
 */
#ifndef RG_SERVER_HTTP_EXPOSITION_H
#define RG_SERVER_HTTP_EXPOSITION_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum rg_metric_type { RG_METRIC_GAUGE, RG_METRIC_COUNTER, RG_METRIC_INFO, RG_METRIC_UNKNOWN };

struct rg_label {
    const char *name, *value;
};

struct rg_exposition {
    bool openmetrics;
    char *text;
    size_t size, capacity;
    bool failed;
    const char *name; /* of the family that was begun */
    enum rg_metric_type type;
};

/**
 * Begins a family. `name`: of a counter without _total, of an info without _info; `unit`: "" or what the name ends with ("seconds",
 * "bytes"). Texts stay the caller's until the next family.
 */
void rg_exposition_family(struct rg_exposition *out, const char *name, enum rg_metric_type type,
                          const char *unit, const char *help);
/** A sample of the family. */
void rg_exposition_sample(struct rg_exposition *out, const struct rg_label *labels, size_t n, double value);
/** RG_ERR_NO_MEMORY: there was none for some of it. The text is out->text, which is to be freed in any case. */
RG_MUST_CHECK enum rg_status rg_exposition_end(struct rg_exposition *out);

#endif
