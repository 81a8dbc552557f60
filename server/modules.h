/*
 * modules.h - the parts that the worker is made of besides its core (core/module.h): of each the place of its state, which
 * only its own files look at, and its hooks.
 *
 * Hooks are called in this order. It matters for images, before rendezvous, as both take data that the client was asked for; and for
 * deferred, behind its kinds and before the buffers that they use.
 */
#ifndef RG_SERVER_MODULES_H
#define RG_SERVER_MODULES_H

#include "server/core/module.h"

/* X(place, hooks) */
#define RG_SERVER_MODULES(X)                                                                                 \
    X(RG_MODULE_TIMES, rg_times_module)                                                                      \
    X(RG_MODULE_MANAGED, rg_managed_module)                                                                  \
    X(RG_MODULE_PREALLOC, rg_prealloc_module)                                                                \
    X(RG_MODULE_COMPLETION, rg_completion_module)                                                            \
    X(RG_MODULE_EVENT_TIMES, rg_event_times_module)                                                          \
    X(RG_MODULE_HOST_CALL, rg_host_call_module)                                                              \
    X(RG_MODULE_IMAGES, rg_images_module)                                                                    \
    X(RG_MODULE_LAYOUTS, rg_layouts_server_module)                                                           \
    X(RG_MODULE_RENDEZVOUS, rg_rendezvous_module)                                                            \
    X(RG_MODULE_DEFERRED_READ, rg_deferred_read_module)                                                      \
    X(RG_MODULE_PEERS, rg_peers_module)                                                                      \
    X(RG_MODULE_DEFERRED, rg_deferred_module)                                                                \
    X(RG_MODULE_STREAM_WORDS, rg_stream_words_module)                                                        \
    X(RG_MODULE_LINK, rg_link_module)                                                                        \
    X(RG_MODULE_STAGING, rg_staging_module)                                                                  \
    X(RG_MODULE_CREDIT, rg_credit_module)                                                                    \
    X(RG_MODULE_ADVERTISED, rg_advertised_module)                                                            \
    X(RG_MODULE_GPUDIRECT, rg_gpudirect_module)                                                              \
    X(RG_MODULE_DESCRIBE, rg_describe_module)                                                                \
    X(RG_MODULE_PRIMARY, rg_primary_module)                                                                  \
    X(RG_MODULE_WAIT, rg_wait_module)                                                                        \
    X(RG_MODULE_OUTPUT, rg_output_module)                                                                    \
    X(RG_MODULE_KEEP_ALIVE, rg_keep_alive_module)                                                            \
    X(RG_MODULE_GATE, rg_gate_module)                                                                        \
    X(RG_MODULE_SHARE, rg_share_module)                                                                      \
    X(RG_MODULE_SUSPEND, rg_suspend_module)                                                                  \
    X(RG_MODULE_NCCL, rg_nccl_module)

enum rg_module_place {
#define RG_MODULE_PLACE(place, hooks) place,
    RG_SERVER_MODULES(RG_MODULE_PLACE)
#undef RG_MODULE_PLACE
        RG_MODULE_COUNT
};

#define RG_MODULE_HOOKS(place, hooks) extern const struct rg_server_module hooks;
RG_SERVER_MODULES(RG_MODULE_HOOKS)
#undef RG_MODULE_HOOKS

/** The table, by place; ended by NULL. */
extern const struct rg_server_module *const rg_server_modules[RG_MODULE_COUNT + 1];

#endif
