/* launch_blocking.c - see launch_blocking.h. */
#include "common/cuda/launch_blocking.h"

#include <stdatomic.h>
#include <stdlib.h>

bool rg_launches_block(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int known; /* threads that look at the same time find the same */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        const char *wanted = secure_getenv("CUDA_LAUNCH_BLOCKING");
        answer = wanted && strtol(wanted, NULL, 10) != 0 ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}
