/* view.c - see view.h. */
#include "server/http/view.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/uuid_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The monitor is asked each time: it answers in microseconds. */
static enum rg_status ask(const struct rg_view_source *source, struct rg_monitor_question *reader, bool names,
                          int *file, char *why, size_t why_size)
{
    struct rg_monitor_answer answer;
    *file = -1;
    reader->kind = RG_ASK_LOOK;
    reader->page.names = names;
    if (rg_monitor_ask(source->link, reader, NULL, 0, RG_VIEW_LOOK_MS, &answer, file) != RG_OK)
        return RG_ERR_TIMEOUT;
    snprintf(why, why_size, "%s", answer.why);
    return answer.status == RG_OK && *file < 0 ? RG_ERR_NO_MEMORY : answer.status;
}

static struct rg_snapshot *read_snapshot(int file)
{
    struct stat about;
    if (fstat(file, &about) != 0 || about.st_size < (off_t)sizeof(struct rg_snapshot))
        return NULL;
    struct rg_snapshot *snapshot = malloc((size_t)about.st_size);
    if (snapshot && pread(file, snapshot, (size_t)about.st_size, 0) == about.st_size)
        return snapshot;
    free(snapshot);
    return NULL;
}

enum rg_status rg_view_take(const struct rg_view_source *source, struct rg_monitor_question *reader,
                            unsigned parts, struct rg_view **out, char *why, size_t why_size)
{
    RG_CLEANUP_FD int file = -1;
    struct rg_view *view = *out = calloc(1, sizeof *view);
    if (!view)
        return RG_ERR_NO_MEMORY;
    RG_TRY(ask(source, reader, (parts & RG_VIEW_NAMES) != 0, &file, why, why_size));
    RG_CLEANUP_FREE struct rg_snapshot *snapshot = read_snapshot(file);
    if (!snapshot || !(view->sessions = calloc(snapshot->n_sessions + 1, sizeof *view->sessions)))
        return RG_ERR_NO_MEMORY;
    view->reader = snapshot->reader;
    view->gauges = snapshot->gauges;
    view->driver = snapshot->driver;
    view->history = snapshot->history;
    view->running = snapshot->running;
    view->max_sessions = snapshot->max_sessions;
    view->n_sessions = snapshot->n_sessions;
    memcpy(view->sessions, snapshot->sessions, snapshot->n_sessions * sizeof *view->sessions);
    memcpy(view->host, source->host, sizeof view->host);
    if (parts & RG_VIEW_GPUS)
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
    rg_uuid_text(device->uuid, device->mig, out, RG_VIEW_UUID);
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
