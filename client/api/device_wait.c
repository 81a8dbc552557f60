/* device_wait.c - calls by which NVIDIA's driver waits for all work of a context. See device_wait.h. */
#include "client/api/device_wait.h"

#include "client/core/handle.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/managed/unified.h"
#include "client/timeline/timeline.h"
#include "client/transfer/transfer.h"

#include <string.h>

static void begin(struct rg_device_wait *wait, int i, uint64_t context)
{
    if (!rg_handle_shadow(RG_KIND_CONTEXT, context) || atomic_load(&rg_process_exits))
        return;
    if (rg_timeline_given(context, &wait->of[i].position))
        wait->of[i].context = context;
    if (!wait->of[i].context || rg_transfers_may_write_host() ||
        (rg_unified_any() && !rg_timeline_accesses_done(context)))
        /* its errors are later calls', too */
        (void)rg_timeline_wait_context(context == rg_context_current_handle() ? NULL : (CUcontext)context);
}

void rg_device_wait_begin(struct rg_device_wait *wait, uint64_t context, uint64_t other)
{
    memset(wait, 0, sizeof *wait);
    begin(wait, 0, context);
    if (other != context)
        begin(wait, 1, other);
}

void rg_device_wait_end(const struct rg_device_wait *wait)
{
    for (int i = 0; i < 2; i++)
        if (wait->of[i].context)
            rg_timeline_waited_for(wait->of[i].context, wait->of[i].position);
}
