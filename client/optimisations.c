/* optimisations.c - see optimisations.h. */
#include "client/optimisations.h"

#include "common/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

bool rg_optimise[RG_OPT_COUNT] = {[0 ... RG_OPT_COUNT - 1] = true};

static const char *const names[RG_OPT_COUNT] = {
    [RG_OPT_ASYNC] = "async",
    [RG_OPT_BATCH] = "batch",
    [RG_OPT_SHADOW] = "shadow",
    [RG_OPT_DIRECT] = "direct",
    [RG_OPT_LATE] = "late",
    [RG_OPT_PUSH] = "push",
    [RG_OPT_AHEAD] = "ahead",
    [RG_OPT_KNOWN] = "known",
    [RG_OPT_PIECES] = "pieces",
    [RG_OPT_IMAGES] = "images",
    [RG_OPT_FORESEE] = "foresee",
    [RG_OPT_PRELOAD] = "preload",
};

const char *rg_optimisation_name(enum rg_optimisation optimisation)
{
    return names[optimisation];
}

/* Switches what `name` (of `length` bytes) says; false if nothing is called so. */
static bool set(const char *name, size_t length, bool on)
{
    bool known = false;
    for (int i = 0; i < RG_OPT_COUNT; i++)
        if ((length == 3 && memcmp(name, "all", 3) == 0) ||
            (strlen(names[i]) == length && memcmp(name, names[i], length) == 0)) {
            rg_optimise[i] = on;
            known = true;
        }
    return known;
}

/* Says what `name` could have been. */
static void warn_unknown(const char *name, size_t length)
{
    char all[256] = "all";
    for (int i = 0; i < RG_OPT_COUNT; i++) {
        strncat(all, ", ", sizeof all - strlen(all) - 1);
        strncat(all, names[i], sizeof all - strlen(all) - 1);
    }
    rg_warn("REMOTE_GPU_OPT: no optimisation is called '%.*s' (there are: %s)", (int)length, name, all);
}

static void read_once(void)
{
    const char *at = secure_getenv("REMOTE_GPU_OPT");
    while (at && *at) {
        const bool on = *at != '-';
        if (*at == '-' || *at == '+')
            at++;
        size_t length = strcspn(at, ",");
        if (length && !set(at, length, on))
            warn_unknown(at, length);
        at += length;
        at += *at == ',';
    }
}

void rg_optimisations_read(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_once);
}
