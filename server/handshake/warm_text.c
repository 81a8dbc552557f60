/* warm_text.c - what a warm worker is to expect, as its argument: for the worker and for the monitor, which starts it. */
#include "server/handshake/warm.h"

#include <inttypes.h>
#include <stdio.h>

void rg_warm_format(const struct rg_shape *shape, uint64_t contexts, char out[RG_WARM_TEXT])
{
    snprintf(out, RG_WARM_TEXT, "%" PRIx64 ":%" PRIx64 ":%" PRIx32 ":%" PRIu32 ":%" PRIx64,
             shape->window_start, shape->window_size, shape->address_part, shape->capability, contexts);
}

bool rg_warm_parse(const char *text, struct rg_shape *shape, uint64_t *contexts)
{
    int used = 0;
    return sscanf(text, "%" SCNx64 ":%" SCNx64 ":%" SCNx32 ":%" SCNu32 ":%" SCNx64 "%n", &shape->window_start,
                  &shape->window_size, &shape->address_part, &shape->capability, contexts, &used) == 5 &&
           text[used] == '\0';
}
