/* modules.c - the table of modules. See modules.h. */
#include "server/modules.h"

_Static_assert(RG_MODULE_COUNT <= RG_MODULES_MAX, "a worker has places for their states");

const struct rg_server_module *const rg_server_modules[RG_MODULE_COUNT + 1] = {
#define ENTRY(place, hooks) [place] = &(hooks),
    RG_SERVER_MODULES(ENTRY)
#undef ENTRY
};
