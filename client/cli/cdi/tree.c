/* tree.c - see tree.h. */
#include "client/cli/cdi/tree.h"

#include "client/cli/base/environment.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool rg_cdi_add_tree(struct rg_cdi_spec *spec, const struct rg_cli_settings *settings, const char *libraries,
                     const char *program, const char *libraries_here, const char *program_here)
{
    char preload[RG_CLI_PRELOADS * 64] = "";
    const char *names[RG_CLI_PRELOADS];
    unsigned n;
    if (rg_cli_find_preloads(settings, libraries_here, names, &n) != RG_OK)
        return false;
    for (unsigned i = 0; i < n; i++)
        snprintf(preload + strlen(preload), sizeof preload - strlen(preload),
                 "%s" RG_CDI_INSIDE RG_CDI_LIBRARIES "/%s", i ? ":" : "", names[i]);
    rg_cdi_add_mount(spec, libraries, RG_CDI_INSIDE RG_CDI_LIBRARIES);
    if (access(program_here, X_OK) == 0)
        rg_cdi_add_mount(spec, program, RG_CDI_INSIDE "/bin/remote-gpu");
    rg_cdi_add_variable(spec, "LD_PRELOAD", preload);
    return true;
}
