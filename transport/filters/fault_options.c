/* fault_options.c - see fault_options.h. */
#include "transport/filters/fault_options.h"

#include "common/base/parse.h"
#include "transport/filters/option.h"

#include <string.h>

static const struct {
    const char *key;
    size_t offset;
} option_table[] = {
#define OPTION(name)                                                                                         \
    {                                                                                                        \
#name, offsetof(struct rg_fault_options, name)                                                       \
    }
    OPTION(send_close_after),
    OPTION(recv_close_after),
    OPTION(send_lost_at),
    OPTION(recv_lost_at),
    OPTION(send_fault_at),
    OPTION(send_corrupt_at),
    OPTION(recv_corrupt_at),
    OPTION(byte),
    OPTION(send_delay_at),
    OPTION(pause),
    OPTION(truncate_at),
    OPTION(bad_magic_at),
    OPTION(oversize_at),
    OPTION(cut_every),
    OPTION(seed),
#undef OPTION
};
enum { N_OPTIONS = sizeof option_table / sizeof option_table[0] };

static enum rg_status set_option(struct rg_fault_options *options, const struct rg_filter_option *option,
                                 char *why, size_t why_size)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strcmp(option_table[i].key, option->key) != 0)
            continue;
        uint64_t *field = (uint64_t *)((char *)options + option_table[i].offset);
        if (field == &options->pause)
            return rg_parse_duration(option->value, field, why, why_size);
        int64_t number;
        enum rg_status status = rg_parse_integer(option->value, 0, INT64_MAX, &number, why, why_size);
        if (status == RG_OK)
            *field = (uint64_t)number;
        return status;
    }
    return RG_FAILED(RG_ERR_INVALID, why, why_size, "there is no option '%s'", option->key);
}

enum rg_status rg_fault_options_parse(const char *text, struct rg_fault_options *out, char *why,
                                      size_t why_size)
{
    /* "close after 0" is a close before the first, so these count as off with another value */
    struct rg_fault_options options = {
        .send_close_after = UINT64_MAX, .recv_close_after = UINT64_MAX, .pause = 100000000u, .seed = 1};
    struct rg_filter_option option;
    enum rg_status status;
    for (const char *cur = text; rg_filter_option_next(&cur, &option, &status, why, why_size);) {
        status = set_option(&options, &option, why, why_size);
        if (status != RG_OK)
            return status;
    }
    if (status == RG_OK)
        *out = options;
    return status;
}
