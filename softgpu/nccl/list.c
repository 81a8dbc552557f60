/* list.c - see list.h. */
#include "softgpu/nccl/list.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sg_clique *list;

void sg_cliques_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sg_cliques_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct sg_clique **sg_cliques(void)
{
    return &list;
}
