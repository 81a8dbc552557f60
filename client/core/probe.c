/* probe.c - who measures what happens inside of calls, and what the application therefore calls. See
 * probe.h. */
#include "client/core/probe.h"

#include "client/core/api_table.h"

const struct rg_probe *rg_probe;
void *const *rg_api_table = rg_client_api;
