/*
 * tree.h - the client tree as containers have it: below one folder, so that nothing of an image is hidden, and preloaded.
 */
#ifndef RG_CLIENT_CLI_CDI_TREE_H
#define RG_CLIENT_CLI_CDI_TREE_H

#include "client/cli/base/settings.h"
#include "client/cli/cdi/spec.h"

#define RG_CDI_INSIDE    "/opt/remote-gpu" /* in containers */
#define RG_CDI_LIBRARIES "/lib/remote-gpu" /* in a tree */

/**
 * Adds mounts of the libraries and, where it is there, of the command, and LD_PRELOAD. `libraries`, `program`: where this machine has
 * them; `…_here`: where this process sees them, which differs if it is in a container itself. False: the tree is not whole, which
 * was said.
 */
RG_MUST_CHECK bool rg_cdi_add_tree(struct rg_cdi_spec *spec, const struct rg_cli_settings *settings,
                                   const char *libraries, const char *program, const char *libraries_here,
                                   const char *program_here);

#endif
