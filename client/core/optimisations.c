/* optimisations.c - see optimisations.h. */
#include "client/core/optimisations.h"

#include "common/base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

bool rg_optimise[RG_OPT_COUNT] = {[0 ... RG_OPT_COUNT - 1] = true};

static const char *const names[RG_OPT_COUNT] = {
    [RG_OPT_ASYNC] = "async",
    [RG_OPT_BATCH] = "batch",
    [RG_OPT_QUERY_CACHE] = "query-cache",
    [RG_OPT_INLINE_SEND] = "inline-send",
    [RG_OPT_DEFERRED_COPIES] = "deferred-copies",
    [RG_OPT_COMPLETION_PUSH] = "completion-push",
    [RG_OPT_PREALLOC] = "prealloc",
    [RG_OPT_IMAGE_CACHE] = "image-cache",
    [RG_OPT_CHUNKS] = "chunks",
    [RG_OPT_IMAGE_DEDUP] = "image-dedup",
    [RG_OPT_STARTUP_PREFETCH] = "startup-prefetch",
    [RG_OPT_IMAGE_PREFETCH] = "image-prefetch",
    [RG_OPT_DELTA] = "delta",
    [RG_OPT_PEERS] = "peers",
};

const char *rg_optimisation_name(enum rg_optimisation optimisation)
{
    return names[optimisation];
}

static bool is_called(const char *name, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(name, word, length) == 0;
}

/* What stands in for NCCL, which is none of them: what it computes need not be what the program's own does. */
static bool is_nccl(const char *name, size_t length)
{
    return is_called(name, length, "nccl");
}

/* Switches what `name` (of `length` bytes) says where `on` is not NULL; false if nothing is called so. */
static bool set(const char *name, size_t length, const bool *on)
{
    bool known = is_nccl(name, length);
    for (int i = 0; i < RG_OPT_COUNT; i++)
        if (is_called(name, length, "all") || is_called(name, length, names[i])) {
            if (on)
                rg_optimise[i] = *on;
            known = true;
        }
    return known;
}

/* Says what `name` could have been. */
static void explain_unknown(const char *name, size_t length, char *why, size_t why_size)
{
    char all[256] = "all";
    for (int i = 0; i < RG_OPT_COUNT; i++) {
        strncat(all, ", ", sizeof all - strlen(all) - 1);
        strncat(all, names[i], sizeof all - strlen(all) - 1);
    }
    rg_explain(why, why_size, "no optimisation is called '%.*s' (there are: %s; and nccl, which is none)",
               (int)length, name, all);
}

/* The next name of the list at *at, behind its sign; NULL: there is none. */
static const char *next(const char **at, size_t *length, bool *on)
{
    while (**at) {
        *on = **at != '-';
        if (**at == '-' || **at == '+')
            ++*at;
        const char *name = *at;
        *length = strcspn(name, ",");
        *at += *length;
        *at += **at == ',';
        if (*length)
            return name;
    }
    return NULL;
}

enum rg_status rg_optimisations_check(const char *list, char *why, size_t why_size)
{
    const char *name;
    size_t length;
    bool on;
    while ((name = next(&list, &length, &on)))
        if (!set(name, length, NULL)) {
            explain_unknown(name, length, why, why_size);
            return RG_ERR_INVALID;
        }
    return RG_OK;
}

bool rg_optimisations_with_nccl(const char *list)
{
    const char *name;
    size_t length;
    bool on, with = true;
    while (list && (name = next(&list, &length, &on)))
        if (is_nccl(name, length))
            with = on;
    return with;
}

static void read_once(void)
{
    const char *list = secure_getenv("REMOTE_GPU_OPT"), *name;
    size_t length;
    bool on;
    while (list && (name = next(&list, &length, &on)))
        if (!set(name, length, &on)) {
            char why[512];
            explain_unknown(name, length, why, sizeof why);
            rg_warn("REMOTE_GPU_OPT: %s", why);
        }
}

void rg_optimisations_read(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_once);
}
