/* hooks.c - the table, empty until client/modules.c fills it. See hooks.h. */
#include "client/core/hooks.h"

struct rg_hooks rg_hooks;
