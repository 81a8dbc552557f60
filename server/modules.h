/*
 * modules.h - the parts that the worker is made of besides its core (core/module.h), in the order in which
 * their hooks are called. Each keeps its state in its place here, which only its own files look at.
 */
#ifndef RG_SERVER_MODULES_H
#define RG_SERVER_MODULES_H

#include "server/core/module.h"

enum rg_module_place {
    RG_MODULE_TIMES,
    RG_MODULE_MANAGED,
    RG_MODULE_PREALLOC,
    RG_MODULE_COMPLETION,
    RG_MODULE_EVENT_TIMES,
    RG_MODULE_HOST_CALL,
    RG_MODULE_IMAGES, /* before rendezvous: both take data that the client was asked for */
    RG_MODULE_LAYOUTS,
    RG_MODULE_RENDEZVOUS,
    RG_MODULE_DEFERRED_READ,
    RG_MODULE_PEERS,
    RG_MODULE_DEFERRED, /* behind its kinds, and before the buffers that they use */
    RG_MODULE_STREAM_WORDS,
    RG_MODULE_LINK,
    RG_MODULE_STAGING,
    RG_MODULE_CREDIT,
    RG_MODULE_ADVERTISED,
    RG_MODULE_GPUDIRECT,
    RG_MODULE_DESCRIBE,
    RG_MODULE_PRIMARY,
    RG_MODULE_WAIT,
    RG_MODULE_OUTPUT,
    RG_MODULE_KEEP_ALIVE,
    RG_MODULE_GATE,
    RG_MODULE_SHARE,
    RG_MODULE_SUSPEND,
    RG_MODULE_NCCL,
    RG_MODULE_COUNT
};

/** The table, by place; ended by NULL. */
extern const struct rg_server_module *const rg_server_modules[RG_MODULE_COUNT + 1];

extern const struct rg_server_module rg_times_module, rg_managed_module, rg_prealloc_module,
    rg_completion_module, rg_event_times_module, rg_host_call_module, rg_images_module, rg_rendezvous_module,
    rg_deferred_read_module, rg_deferred_module, rg_link_module, rg_staging_module, rg_credit_module,
    rg_advertised_module, rg_gpudirect_module, rg_describe_module, rg_primary_module, rg_wait_module,
    rg_output_module, rg_keep_alive_module, rg_layouts_server_module, rg_gate_module, rg_share_module,
    rg_suspend_module, rg_nccl_module, rg_peers_module, rg_stream_words_module;

#endif
