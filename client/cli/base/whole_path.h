/* whole_path.h - files that are named from the current folder, for programs that leave it. */
#ifndef RG_CLIENT_CLI_BASE_WHOLE_PATH_H
#define RG_CLIENT_CLI_BASE_WHOLE_PATH_H

#include <limits.h>
#include <stdbool.h>

/** The file that `option` names, from the root on. False: it cannot be said from there; it was told why. */
bool rg_cli_whole_path(const char *option, const char *name, char path[PATH_MAX]);

#endif
