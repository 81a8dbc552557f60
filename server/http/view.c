/* view.c - see view.h. */
#include "server/http/view.h"

#include "common/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The monitor is asked each time: it answers in microseconds, and a board that it no longer keeps true is not to be shown. */
static enum rg_status look(const struct rg_view_source *source)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    memset(&question, 0, sizeof question);
    question.kind = RG_ASK_LOOK;
    return rg_monitor_ask(source->link, &question, NULL, 0, RG_VIEW_LOOK_MS, &answer, NULL) == RG_OK
               ? answer.status
               : RG_ERR_TIMEOUT;
}

enum rg_status rg_view_take(const struct rg_view_source *source, bool with_gpus, struct rg_view **out)
{
    const uint32_t max = source->board->max_sessions;
    struct rg_view *view = *out = calloc(1, sizeof *view);
    if (!view || !(view->sessions = calloc(max, sizeof *view->sessions)))
        return RG_ERR_NO_MEMORY;
    RG_TRY(look(source));
    rg_board_gauges(source->board, &view->gauges);
    (void)rg_board_driver(source->board, &view->driver);
    view->n_sessions = rg_board_sessions(source->board, view->sessions, max);
    view->max_sessions = max;
    memcpy(view->host, source->host, sizeof view->host);
    if (with_gpus)
        rg_gpus_look(source->gpus, &view->driver, view->gpus);
    return RG_OK;
}

void rg_view_release(struct rg_view *view)
{
    if (view)
        free(view->sessions);
    free(view);
}

bool rg_view_why_not_ready(const struct rg_view *view, char *why, size_t why_size)
{
    const struct rg_gauges *gauges = &view->gauges;
    *why = 0;
    if (gauges->stopping)
        snprintf(why, why_size, "the server is shutting down");
    else if (gauges->drained)
        snprintf(why, why_size, "the server takes nothing new, as its operator wants it (remote-gpud drain)");
    else if (view->driver.n_devices == 0)
        snprintf(why, why_size, "the driver has no device");
    else if (!gauges->frontend_ready)
        snprintf(why, why_size, "the process that talks to clients has just been started anew");
    else if (gauges->in_pool && rg_now_ns() >= gauges->pool_until_ns)
        snprintf(why, why_size, "the server is cut off from its pool: %s",
                 gauges->pool_why[0] ? gauges->pool_why : "its agent does not answer");
    return *why != 0;
}

void rg_view_uuid(const struct rg_device_info *device, char out[RG_VIEW_UUID])
{
    const uint8_t *u = device->uuid;
    snprintf(out, RG_VIEW_UUID, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
}

const char *rg_view_transport(const struct rg_session_info *session)
{
    return session->encrypted ? "tls" : strncmp(session->peer, "unix", 4) == 0 ? "unix" : "tcp";
}

bool rg_view_memory(const struct rg_view *view, uint32_t device, double *used, double *free)
{
    const struct rg_gpu_figures *figures = &view->gpus[device];
    const struct rg_device_info *info = &view->driver.devices[device];
    const uint64_t held = view->gauges.devices[device].held;
    if (strcmp(view->driver.info.kind, "soft") ==
        0) { /* each process has a device of its own: what sessions hold is all */
        *used = (double)held;
        *free = (double)(held < info->memory_total ? info->memory_total - held : 0);
        return true;
    }
    *used = figures->values[RG_GPU_FB_USED];
    *free = figures->values[RG_GPU_FB_FREE];
    return (figures->known >> RG_GPU_FB_USED & 1) != 0;
}
