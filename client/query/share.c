/* share.c - see share.h. */
#include "client/query/share.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/parse.h"

#include <stdlib.h>
#include <string.h>

static bool wrong(const char *name, const char *why)
{
    rg_error("%s: %s; correct it, or unset it", name, why);
    return false;
}

static const char *text_of(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text ? text : NULL;
}

static bool get_fraction(const char *name, uint32_t *out)
{
    char why[160];
    const char *text = text_of(name);
    return !text || rg_parse_fraction(text, out, why, sizeof why) == RG_OK || wrong(name, why);
}

static bool get_memory(const char *name, uint64_t *out)
{
    char why[160];
    const char *text = text_of(name);
    if (!text)
        return true;
    if (rg_parse_size(text, out, why, sizeof why) != RG_OK)
        return wrong(name, why);
    return *out || wrong(name, "no memory at all is no share of a GPU");
}

static bool get_weight(const char *name, uint32_t *out)
{
    char why[160];
    int64_t number = 0;
    const char *text = text_of(name);
    if (text && rg_parse_integer(text, 1, RG_SHARE_WEIGHT_MAX, &number, why, sizeof why) != RG_OK)
        return wrong(name, why);
    *out = (uint32_t)number;
    return true;
}

static bool get_priority(const char *name, enum rg_share_priority *out)
{
    const char *text = text_of(name);
    return !text || rg_share_priority_parse(text, out) || wrong(name, "it is none of low, normal, high");
}

/* As the option is written: seconds, or a time with its unit. */
static bool get_duration(const char *name, uint64_t *out)
{
    char why[160];
    int64_t seconds;
    const char *text = text_of(name);
    if (text && rg_parse_integer(text, 0, 1 << 30, &seconds, NULL, 0) == RG_OK)
        *out = (uint64_t)seconds * 1000000000u;
    else if (text && rg_parse_duration(text, out, why, sizeof why) != RG_OK)
        return wrong(name, why);
    return true;
}

static bool get_flag(const char *name, uint32_t *out)
{
    const char *text = text_of(name);
    *out = text && strcmp(text, "yes") == 0;
    return !text || *out || strcmp(text, "no") == 0 || wrong(name, "it is neither yes nor no");
}

static bool get_project(const char *name, char *out, size_t size)
{
    const char *text = text_of(name);
    if (text && strlen(text) >= size)
        return wrong(name, "the name is too long");
    if (text)
        rg_control_text(out, size, text, strlen(text));
    return true;
}

bool rg_share_wanted(struct rg_share_wish *out)
{
    *out = (struct rg_share_wish){0};
    return get_memory("REMOTE_GPU_MEMORY", &out->memory_bytes) &&
           get_fraction("REMOTE_GPU_FRACTION", &out->memory_millionths) &&
           (!out->memory_bytes || !out->memory_millionths ||
            wrong("REMOTE_GPU_MEMORY",
                  "REMOTE_GPU_FRACTION is set as well, and only one of both can hold")) &&
           get_fraction("REMOTE_GPU_COMPUTE", &out->compute_millionths) &&
           get_weight("REMOTE_GPU_WEIGHT", &out->weight) &&
           get_priority("REMOTE_GPU_PRIORITY", &out->priority) &&
           get_duration("REMOTE_GPU_IDLE_TIMEOUT", &out->idle_timeout_ns) &&
           get_flag("REMOTE_GPU_EXCLUSIVE", &out->exclusive) &&
           get_project("REMOTE_GPU_PROJECT", out->project, sizeof out->project);
}
