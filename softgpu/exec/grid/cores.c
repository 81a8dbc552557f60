/*
 * cores.c - how many cores work: those that the process may run on, as SOFTGPU_CORES or the driver limits them. What is
 * no number there is said once, and all cores are used. Any thread.
 */
#include "softgpu/exec/exec.h"

#include "common/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define CORES_MAX 1024u

static pthread_once_t cores_once = PTHREAD_ONCE_INIT;
static _Atomic unsigned n_cores;

static void count_cores(void)
{
    const char *text = secure_getenv("SOFTGPU_CORES");
    if (text && *text) {
        char *end;
        errno = 0;
        unsigned long value = strtoul(text, &end, 10);
        if (!errno && !*end && value >= 1 && value <= CORES_MAX) {
            n_cores = (unsigned)value;
            return;
        }
        rg_warn("SOFTGPU_CORES: \"%s\" is not a number from 1 to %u; all cores are used", text, CORES_MAX);
    }
    int count = 0;
    for (size_t bits = 1024; !count && bits <= 1u << 20; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC(bits);
        if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(bits), set) == 0)
            count = CPU_COUNT_S(CPU_ALLOC_SIZE(bits), set);
        CPU_FREE(set);
    }
    n_cores = count < 1 ? 1 : count > (int)CORES_MAX ? CORES_MAX : (unsigned)count;
}

unsigned sg_exec_cores(void)
{
    pthread_once(&cores_once, count_cores);
    return atomic_load_explicit(&n_cores, memory_order_relaxed);
}

void sg_exec_limit_cores(unsigned most)
{
    if (most < sg_exec_cores())
        atomic_store_explicit(&n_cores, most, memory_order_relaxed);
}
