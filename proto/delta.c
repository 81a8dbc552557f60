/* delta.c - see delta.h: the history, of which the same is done at both ends. */
#include "proto/delta_history.h"

#include "common/base/limits.h"

#include <assert.h>
#include <stdlib.h>

static_assert(RG_DELTA_HISTORY >= 2 * RG_MESSAGE_MAX, "a batch leaves some of the history");
static_assert((RG_DELTA_RECORDS & (RG_DELTA_RECORDS - 1)) == 0, "numbers wrap by masking");

struct rg_delta *rg_delta_create(void)
{
    return calloc(1, sizeof(struct rg_delta)); /* so large that the pages come as they are used */
}

void rg_delta_destroy(struct rg_delta *delta)
{
    free(delta);
}

unsigned char *rg_delta_make_room(struct rg_delta *delta, size_t size)
{
    if (delta->next >= RG_DELTA_RECORDS && delta->oldest < delta->next - (RG_DELTA_RECORDS - 1))
        delta->oldest = delta->next - (RG_DELTA_RECORDS - 1);
    if (size > RG_DELTA_HISTORY - delta->used) {
        while (delta->oldest < delta->next && delta->at[rg_delta_slot(delta->oldest)] >= delta->used)
            delta->oldest++;
        delta->used = 0;
    }
    const size_t begin = delta->used, end = begin + size;
    while (delta->oldest < delta->next && delta->at[rg_delta_slot(delta->oldest)] >= begin &&
           delta->at[rg_delta_slot(delta->oldest)] < end)
        delta->oldest++;
    delta->used = end;
    return delta->bytes + begin;
}
