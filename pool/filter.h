/*
 * filter.h - conditions on servers and GPUs, as users write them: `device.memory>=40G`, `server.has-rdma=true`.
 *
 * KEY OPERATOR VALUE, spaces around the operator allowed; operators = != < <= > >=. Keys, of which the first group are
 * Bitfusion's:
 *
 *   server.addr, server.hostname       text; * stands for any characters; = and != only; upper and lower case are alike
 *   server.has-rdma                    true or false (yes, no, 1, 0); = and != only
 *   server.cuda-version, .driver-version   numbers with points, compared number by number: 12.10 is above 12.4
 *   device.index                       as the driver of its server counts
 *   device.id                          UUID, with or without "GPU-"; = and != only; * as above
 *   device.name                        text, as hostname
 *   device.memory, device.phy-memory   a size: 40G, 16GiB
 *   labels.NAME                        text, as hostname; with < <= > >=: a number, compared as such
 *
 * What is not known of a server (a label that it lacks, a version) equals nothing: = and comparisons fail, != holds.
 * Any thread; a parsed filter is not changed.
 */
#ifndef RG_POOL_FILTER_H
#define RG_POOL_FILTER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_POOL_FILTER_TEXT 256 /* bytes of a filter, with its end */

struct rg_pool_server;
struct rg_pool_device;

/** A label or taint of a server. */
struct rg_pool_label {
    const char *key, *value;
};

enum rg_pool_filter_key {
    RG_POOL_SERVER_ADDR,
    RG_POOL_SERVER_HOSTNAME,
    RG_POOL_SERVER_HAS_RDMA,
    RG_POOL_SERVER_CUDA_VERSION,
    RG_POOL_SERVER_DRIVER_VERSION,
    RG_POOL_DEVICE_INDEX,
    RG_POOL_DEVICE_ID,
    RG_POOL_DEVICE_NAME,
    RG_POOL_DEVICE_MEMORY,
    RG_POOL_LABEL,
};

enum rg_pool_filter_operator {
    RG_POOL_EQUAL,
    RG_POOL_UNEQUAL,
    RG_POOL_LESS,
    RG_POOL_AT_MOST,
    RG_POOL_MORE,
    RG_POOL_AT_LEAST,
};

#define RG_POOL_VERSION_PARTS 4

/** A parsed filter: holds no pointers, may be copied. Unused bytes are zero, so that equal filters have equal bytes. */
struct rg_pool_filter {
    enum rg_pool_filter_key key;
    enum rg_pool_filter_operator op;
    uint64_t number;                         /* memory, index, has-rdma (0 or 1) */
    uint32_t version[RG_POOL_VERSION_PARTS]; /* missing parts are 0 */
    double decimal;                          /* of an ordered label */
    char label[RG_POOL_FILTER_TEXT];         /* NAME of labels.NAME */
    char value[RG_POOL_FILTER_TEXT];         /* as written */
    char text[RG_POOL_FILTER_TEXT];          /* the filter as written, for messages */
};

/**
 * Parses one filter. RG_ERR_INVALID, and one sentence in `why`: an unknown key (with the list of all), an operator that
 * the key does not have, a value of the wrong kind.
 */
RG_MUST_CHECK enum rg_status rg_pool_filter_parse(const char *text, struct rg_pool_filter *out, char *why,
                                                  size_t why_size);
/** RG_ERR_INVALID if no GPU can satisfy all of them, whatever the pool: `why` says which excludes which. */
RG_MUST_CHECK enum rg_status rg_pool_filters_check(const struct rg_pool_filter *filters, uint32_t n,
                                                   char *why, size_t why_size);
/** Parses `n` texts into `out` (room for n) and checks them together. */
RG_MUST_CHECK enum rg_status rg_pool_filters_parse(const char *const *texts, uint32_t n,
                                                   struct rg_pool_filter *out, char *why, size_t why_size);

/** Whether it is about the server alone. */
bool rg_pool_filter_of_server(const struct rg_pool_filter *filter);
/** Whether this device of this server satisfies it; `device` is not looked at for a filter of the server alone. */
bool rg_pool_filter_matches(const struct rg_pool_filter *filter, const struct rg_pool_server *server,
                            const struct rg_pool_device *device);

#endif
