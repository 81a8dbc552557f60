/*
 * environment.h - the environment in which a command finds remote-gpu instead of a CUDA driver.
 */
#ifndef RG_CLIENT_CLI_BASE_ENVIRONMENT_H
#define RG_CLIENT_CLI_BASE_ENVIRONMENT_H

#include "client/cli/base/settings.h"
#include "common/base/status.h"

#include <stdbool.h>

/**
 * Sets this process's environment for the command: LD_PRELOAD and LD_LIBRARY_PATH lead to the client
 * libraries, and REMOTE_GPU_* carry the settings. Says what is wrong with the installation if something is.
 */
RG_MUST_CHECK enum rg_status rg_cli_set_environment(const struct rg_cli_settings *settings,
                                                    const char *server);

/**
 * For a command all of whose devices are the software device: Triton and JAX, which run ptxas by themselves, find the device's by this
 * process's environment, unless the user names another one.
 */
RG_MUST_CHECK enum rg_status rg_cli_offer_ptxas(void);

#define RG_CLI_PRELOADS 4

/**
 * The libraries in `library_dir` that a command with these settings is to have preloaded, by their paths in it and in LD_PRELOAD's order. RG_ERR_NOT_FOUND: one
 * that has to be there is not; it was said.
 */
RG_MUST_CHECK enum rg_status rg_cli_find_preloads(const struct rg_cli_settings *settings,
                                                  const char *library_dir, const char *names[RG_CLI_PRELOADS],
                                                  unsigned *n);

/** What takes variables: this process's environment, or a file that is written. */
struct rg_cli_sink {
    bool (*set)(void *context, const char *name, const char *value); /* false: it cannot */
    void *context;
};

/**
 * Puts REMOTE_GPU_* for all settings that are the client library's, wherever it runs: not the server, nor what names files of this
 * machine. False: the sink's word.
 */
RG_MUST_CHECK bool rg_cli_put_settings(const struct rg_cli_settings *settings,
                                       const struct rg_cli_sink *sink);

#endif
