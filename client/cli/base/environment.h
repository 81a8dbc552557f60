/*
 * environment.h - the environment in which a command finds remote-gpu instead of a CUDA driver.
 */
#ifndef RG_CLIENT_CLI_BASE_ENVIRONMENT_H
#define RG_CLIENT_CLI_BASE_ENVIRONMENT_H

#include "client/cli/base/settings.h"
#include "common/base/status.h"

/**
 * Sets this process's environment for the command: LD_PRELOAD and LD_LIBRARY_PATH lead to the client
 * libraries, and REMOTE_GPU_* carry the settings. Says what is wrong with the installation if something is.
 */
RG_MUST_CHECK enum rg_status rg_cli_set_environment(const struct rg_cli_settings *settings,
                                                    const char *server);

#endif
