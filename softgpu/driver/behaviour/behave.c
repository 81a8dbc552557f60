/* behave.c - see behave.h. */
#include "softgpu/driver/behaviour/behave.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/addresses.h"
#include "common/base/align.h"
#include "common/base/log.h"
#include "common/cuda/behaviour.h"

#define BLOCK (2u << 20)

static const struct sg_behaviour orderly = {.peers = true, .registers = true};
static const struct sg_behaviour nvidia = {.nvidia = true,
                                           .init_ms = 1000,
                                           .context_ms = 300,
                                           .work_us = 200,
                                           .host_us = 500,
                                           .queue = 1024,
                                           .resolution_ns = 512,
                                           .peers = true,
                                           .registers = true,
                                           .lazy = true,
                                           .fixed = true};
static struct sg_behaviour chosen;
static _Atomic uint64_t random_state;
static _Atomic unsigned launches, loads;

/* --- the setting -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
    bool flag;
} numbers[] = {
    {"init", offsetof(struct sg_behaviour, init_ms), false},
    {"context", offsetof(struct sg_behaviour, context_ms), false},
    {"work", offsetof(struct sg_behaviour, work_us), false},
    {"host", offsetof(struct sg_behaviour, host_us), false},
    {"queue", offsetof(struct sg_behaviour, queue), false},
    {"resolution", offsetof(struct sg_behaviour, resolution_ns), false},
    {"peers", offsetof(struct sg_behaviour, peers), true},
    {"registers", offsetof(struct sg_behaviour, registers), true},
    {"lazy", offsetof(struct sg_behaviour, lazy), true},
    {"prohibited", offsetof(struct sg_behaviour, prohibited), true},
    {"exclusive", offsetof(struct sg_behaviour, exclusive), true},
    {"cubins", offsetof(struct sg_behaviour, cubins), true},
    {"process", offsetof(struct sg_behaviour, process), true},
    {"fixed", offsetof(struct sg_behaviour, fixed), true},
};

static bool set_number(const char *name, const char *value)
{
    char *end;
    const unsigned long number = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || number > 1000000000)
        return false;
    if (strcmp(name, "seed") == 0) {
        atomic_store(&random_state, number * 0x9e3779b97f4a7c15ull + 1);
        return true;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        void *at = (char *)&chosen + numbers[i].offset;
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        if (numbers[i].flag && number > 1)
            return false;
        if (numbers[i].flag)
            *(bool *)at = number == 1;
        else
            *(unsigned *)at = (unsigned)number;
        return true;
    }
    return false;
}

/* "719@3": the third fails with error 719. */
static bool set_failure(const char *value, CUresult *with, unsigned *which)
{
    unsigned code, at;
    char behind;
    if (sscanf(value, "%u@%u%c", &code, &at, &behind) != 2 || !code || code > 999 || !at)
        return false;
    *with = (CUresult)code;
    *which = at;
    return true;
}

static bool set(const char *name, const char *value)
{
    if (strcmp(name, "fail") == 0)
        return set_failure(value, &chosen.fail_with, &chosen.fail_at);
    if (strcmp(name, "load") == 0)
        return set_failure(value, &chosen.load_with, &chosen.load_at);
    return set_number(name, value);
}

static void read_settings(char *settings)
{
    char *rest = settings;
    for (char *word; (word = strsep(&rest, ":")) != NULL;) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        if (!value || !set(word, value))
            rg_warn("SOFTGPU_BEHAVE: '%s%s%s' means nothing here and is ignored (docs/software-device.md)",
                    word, value ? "=" : "", value ? value : "");
    }
}

static void choose(void)
{
    const char *text = secure_getenv("SOFTGPU_BEHAVE");
    chosen = orderly;
    if (!text || !*text)
        return;
    if (!rg_behaviour_is_nvidia(text)) {
        rg_warn("SOFTGPU_BEHAVE: '%s' is not nvidia or nvidia:KEY=VALUE…; ignored", text);
        return;
    }
    chosen = nvidia;
    const char *behind = strchr(text, ':');
    char *settings = behind ? strdup(behind + 1) : NULL;
    if (settings)
        read_settings(settings);
    free(settings);
}

const struct sg_behaviour *sg_behaviour(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return &chosen;
}

/* --- by chance ---------------------------------------------------------------------------------------------------- */

uint64_t sg_behave_chance(uint64_t n)
{
    if (!sg_behaviour()->nvidia || n == 0)
        return 0;
    uint64_t x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15ull);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (x ^ x >> 31) % n;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0) /* a signal */
        ;
}

/* Most of the time not at all: what is late stands out against what is not, and loops of graphs come to an end. */
void sg_behave_late(unsigned most_us)
{
    if (most_us && sg_behave_chance(8) == 1)
        sleep_ns(sg_behave_chance((uint64_t)most_us * 1000u));
}

void sg_behave_sleep_ms(unsigned ms)
{
    if (ms)
        sleep_ns((uint64_t)ms * 1000000u);
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

bool sg_behave_take_addresses(void)
{
#ifndef RG_SANITIZED /* a sanitizer has them */
    static const struct {
        uint64_t start, size;
    } taken[] = {{RG_ADDRESS_LOW_START, (4ull << 30) + BLOCK}, {RG_ADDRESS_LOW_NEXT, 64ull << 20}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken && sg_behaviour()->fixed; i++) {
        void *wanted = (void *)(uintptr_t)taken[i].start;
        void *got = mmap(wanted, taken[i].size, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == wanted)
            continue;
        if (got != MAP_FAILED) /* a kernel that takes the address as a hint */
            munmap(got, taken[i].size);
        rg_error("SOFTGPU_BEHAVE: the addresses from %#" PRIx64
                 " on, where NVIDIA's driver has its own, are another's (fixed=0 does without)",
                 taken[i].start);
        return false;
    }
#endif
    return true;
}

/* --- memory and launches ------------------------------------------------------------------------------------------ */

uint64_t sg_behave_taken(uint64_t size, uint64_t block)
{
    const bool large = sg_behaviour()->nvidia && size > BLOCK / 2;
    const uint64_t whole = large && block < BLOCK ? BLOCK : block;
    return rg_align_up(size, whole);
}

CUresult sg_behave_launch(bool *at_once)
{
    const struct sg_behaviour *behaviour = sg_behaviour();
    if (!behaviour->fail_at || atomic_fetch_add(&launches, 1) + 1 != behaviour->fail_at)
        return CUDA_SUCCESS;
    *at_once = behaviour->fail_with < CUDA_ERROR_ILLEGAL_ADDRESS ||
               behaviour->fail_with == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return behaviour->fail_with;
}

CUresult sg_behave_load(void)
{
    const struct sg_behaviour *behaviour = sg_behaviour();
    if (!behaviour->load_at || atomic_fetch_add(&loads, 1) + 1 != behaviour->load_at)
        return CUDA_SUCCESS;
    return behaviour->load_with;
}

int sg_behave_compute_mode(void)
{
    const struct sg_behaviour *behaviour = sg_behaviour();
    return behaviour->prohibited  ? CU_COMPUTEMODE_PROHIBITED
           : behaviour->exclusive ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
                                  : CU_COMPUTEMODE_DEFAULT;
}
