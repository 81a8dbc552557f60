/* gpu_groups.c - see gpu_groups.h. */
#include "server/daemon/probe/gpu_groups.h"

/* Whether a GPU is linked with all that are in a group so far: they are those before it. */
static bool fits(uint32_t gpu, int32_t number, rg_gpu_linked *linked, void *data, const int32_t *group)
{
    for (uint32_t i = 0; i < gpu; i++)
        if (group[i] == number && !linked(data, i, gpu))
            return false;
    return true;
}

static bool is_alone(uint32_t n, const int32_t *group, uint32_t gpu)
{
    for (uint32_t i = 0; i < n; i++)
        if (i != gpu && group[i] == group[gpu])
            return false;
    return true;
}

void rg_gpu_groups(uint32_t n, rg_gpu_linked *linked, void *data, int32_t *group)
{
    int32_t n_groups = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t number = 0;
        while (number < n_groups && !fits(i, number, linked, data, group))
            number++;
        n_groups += number == n_groups;
        group[i] = number;
    }
    for (uint32_t i = 0; i < n; i++)
        if (group[i] >= 0 && is_alone(n, group, i))
            group[i] = -1;
}
