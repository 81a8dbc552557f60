/*
 * view.h - what is shown to one reader: what the monitor says that he may see, and the GPUs' figures, as they are now.
 *
 * Happy path: rg_view_take for each request that shows something; rg_view_release. Nothing that a peer has chosen (names of users,
 * programs, machines) is cleaned here: who writes it into a format escapes it. Any thread.
 */
#ifndef RG_SERVER_HTTP_VIEW_H
#define RG_SERVER_HTTP_VIEW_H

#include "server/daemon/shared/snapshot.h"
#include "server/frontend/monitor_link.h"
#include "server/http/gpus.h"

#define RG_VIEW_LOOK_MS 2000 /* the monitor answers within, or something is wrong with it */

struct rg_view {
    struct rg_snapshot_reader reader;
    struct rg_gauges gauges;
    struct rg_driver driver;
    struct rg_history history;
    uint32_t running, max_sessions; /* of the server */
    uint32_t n_sessions;            /* that are shown */
    struct rg_snapshot_session *sessions;
    struct rg_gpu_figures gpus[RG_DEVICES_MAX];
    char host[RG_CONTROL_TEXT];
};

/** Where it is taken from. */
struct rg_view_source {
    struct rg_monitor_link *link;
    struct rg_gpus *gpus;
    char host[RG_CONTROL_TEXT]; /* of this machine */
};

/** What of it: of GPUs also what the management library says; sessions with names, those that the reader may see, or all without. */
enum { RG_VIEW_GPUS = 1, RG_VIEW_NAMES = 2 };
/**
 * `reader`: who looks (server/http/reader.h), which is changed by the way. RG_ERR_TIMEOUT: the monitor does not answer; RG_ERR_REFUSED: it
 * shows this reader nothing, and `why` says why; RG_ERR_NO_MEMORY. The view is to be released in any case.
 */
RG_MUST_CHECK enum rg_status rg_view_take(const struct rg_view_source *source,
                                          struct rg_monitor_question *reader, unsigned parts,
                                          struct rg_view **out, char *why, size_t why_size);
void rg_view_release(struct rg_view *view);

/** Why new sessions cannot begin here; false: they can. */
bool rg_view_why_not_ready(const struct rg_view *view, char *why, size_t why_size);

enum { RG_VIEW_UUID = 41 };
/** "GPU-…", as tools show it. */
void rg_view_uuid(const struct rg_device_info *device, char out[RG_VIEW_UUID]);
/** "tls", "unix" or "tcp": how a session began. */
const char *rg_view_transport(const struct rg_session_info *session);
/** Memory of a device in use and free, bytes; false: nobody knows. */
bool rg_view_memory(const struct rg_view *view, uint32_t device, double *used, double *free);

#endif
