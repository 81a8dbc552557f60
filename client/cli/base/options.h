/* options.h - the rows of options.c. Constant: any thread. */
#ifndef RG_CLIENT_CLI_BASE_OPTIONS_H
#define RG_CLIENT_CLI_BASE_OPTIONS_H

#include "client/cli/base/settings.h"

/* Of these commands' options, what the command's client library is told. */
#define RG_CLI_RUNS (RG_CLI_RUN | RG_CLI_CDI)

extern const struct rg_option rg_cli_options[];
extern const size_t rg_cli_n_options;

#endif
