/*
 * spec.h - a specification of the Container Device Interface, put together as JSON.
 *
 * The format is CNCF's (github.com/cncf-tags/container-device-interface, SPEC.md). Runtimes refuse a file with a member that its
 * version does not have, so what is written is of the oldest version that suffices: 0.5.0, since when names may begin with a digit.
 *
 * What is added stands in the edits of all devices. An addition that cannot be made (no memory, a text that is no UTF-8) is
 * remembered, and rg_cdi_finish returns NULL. One thread.
 */
#ifndef RG_CLIENT_CLI_CDI_SPEC_H
#define RG_CLIENT_CLI_CDI_SPEC_H

#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define RG_CDI_VERSION "0.5.0"

struct rg_cdi_spec {
    json_t *env, *mounts, *nodes; /* NULL: something could not be added */
};

/** Whether `kind` is VENDOR/CLASS as CDI wants both; `why` says what is wrong. */
bool rg_cdi_kind_is_valid(const char *kind, char *why, size_t why_size);

/** A specification that says nothing yet; what is added is copied. */
void rg_cdi_init(struct rg_cdi_spec *spec);
void rg_cdi_fini(struct rg_cdi_spec *spec);
/** A variable of the container. */
void rg_cdi_add_variable(struct rg_cdi_spec *spec, const char *name, const char *value);
/** The same of "NAME=VALUE". */
void rg_cdi_add_assignment(struct rg_cdi_spec *spec, const char *assignment);
/** A file or folder of the host, read-only; once, if it is added again. */
void rg_cdi_add_mount(struct rg_cdi_spec *spec, const char *host, const char *container);
/** A device file, by the same path in the container. */
void rg_cdi_add_node(struct rg_cdi_spec *spec, const char *path);
/**
 * The whole, with devices "1" to `count` and "all", which say by the variable `counter` how many GPUs the container sees (empty:
 * all). NULL: it could not be made.
 */
json_t *rg_cdi_finish(const struct rg_cdi_spec *spec, const char *kind, const char *counter, unsigned count);
/** The same with one device, `name`, whose own edit is that variable. */
json_t *rg_cdi_finish_as(const struct rg_cdi_spec *spec, const char *kind, const char *name,
                         const char *variable, const char *value);

/**
 * Writes JSON to a file at once, since runtimes read the folder at any time: beside its place under a name that they pass over, then
 * moved there. False: `why` says what cannot be done.
 */
RG_MUST_CHECK bool rg_cdi_write(const char *path, mode_t mode, const json_t *whole, char *why,
                                size_t why_size);

#endif
