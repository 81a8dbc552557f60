/* modules.c - the table of modules. See modules.h. */
#include "server/modules.h"

_Static_assert(RG_MODULE_COUNT <= RG_MODULES_MAX, "a worker has places for their states");

const struct rg_server_module *const rg_server_modules[RG_MODULE_COUNT + 1] = {
    [RG_MODULE_TIMES] = &rg_times_module,
    [RG_MODULE_MANAGED] = &rg_managed_module,
    [RG_MODULE_PREALLOC] = &rg_prealloc_module,
    [RG_MODULE_COMPLETION] = &rg_completion_module,
    [RG_MODULE_EVENT_TIMES] = &rg_event_times_module,
    [RG_MODULE_HOST_CALL] = &rg_host_call_module,
    [RG_MODULE_IMAGES] = &rg_images_module,
    [RG_MODULE_LAYOUTS] = &rg_layouts_server_module,
    [RG_MODULE_RENDEZVOUS] = &rg_rendezvous_module,
    [RG_MODULE_DEFERRED_READ] = &rg_deferred_read_module,
    [RG_MODULE_PEERS] = &rg_peers_module,
    [RG_MODULE_DEFERRED] = &rg_deferred_module,
    [RG_MODULE_STREAM_WORDS] = &rg_stream_words_module,
    [RG_MODULE_LINK] = &rg_link_module,
    [RG_MODULE_STAGING] = &rg_staging_module,
    [RG_MODULE_CREDIT] = &rg_credit_module,
    [RG_MODULE_ADVERTISED] = &rg_advertised_module,
    [RG_MODULE_GPUDIRECT] = &rg_gpudirect_module,
    [RG_MODULE_DESCRIBE] = &rg_describe_module,
    [RG_MODULE_PRIMARY] = &rg_primary_module,
    [RG_MODULE_WAIT] = &rg_wait_module,
    [RG_MODULE_OUTPUT] = &rg_output_module,
    [RG_MODULE_KEEP_ALIVE] = &rg_keep_alive_module,
    [RG_MODULE_GATE] = &rg_gate_module,
    [RG_MODULE_SHARE] = &rg_share_module,
    [RG_MODULE_SUSPEND] = &rg_suspend_module,
    [RG_MODULE_NCCL] = &rg_nccl_module,
};
