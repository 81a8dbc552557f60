/* metrics.h - a view as metrics (docs/metrics.md lists them, and says what may change). */
#ifndef RG_SERVER_HTTP_METRICS_H
#define RG_SERVER_HTTP_METRICS_H

#include "server/http/exposition.h"
#include "server/http/view.h"

/** Adds the server's metrics, its sessions' and its GPUs' (docs/metrics.md). */
void rg_metrics_write(const struct rg_view *view, struct rg_exposition *out);

#endif
