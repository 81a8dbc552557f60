/* ask.c - see ask.h. */
#include "places/slurm/ask.h"

#include "common/base/limits.h"
#include "common/base/parse.h"
#include "common/base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rg_slurm_option_row rg_slurm_options[RG_SLURM_OPTIONS] = {
    [RG_SLURM_GPUS] = {"remote-gpu", "N", "GPUs of the pool for the job", "RGPU_ASK_GPUS"},
    [RG_SLURM_MEMORY] = {"remote-gpu-mem", "SIZE",
                         "memory of each, like 20G or 50%, which others may then share; without it a GPU is "
                         "the job's alone",
                         "RGPU_ASK_MEMORY"},
    [RG_SLURM_FILTER] = {"remote-gpu-filter", "CONDITION",
                         "only GPUs and servers like this, as in device.memory>=40G; several have commas "
                         "between them",
                         "RGPU_ASK_FILTER"},
    [RG_SLURM_SPREAD] = {"remote-gpu-spread", NULL, "the GPUs may be on several servers", "RGPU_ASK_SPREAD"},
};

static bool take_memory(struct rg_slurm_ask *ask, const char *text, char *why, size_t why_size)
{
    const size_t size = strlen(text);
    if (size && text[size - 1] == '%')
        return rg_parse_fraction(text, &ask->fraction, why, why_size) == RG_OK;
    if (rg_parse_size(text, &ask->memory, why, why_size) != RG_OK)
        return false;
    if (ask->memory)
        return true;
    rg_explain(why, why_size, "no memory at all is no part of a GPU");
    return false;
}

static bool take_filter(struct rg_slurm_ask *ask, const char *text, char *why, size_t why_size)
{
    const size_t used = strlen(ask->filters), room = sizeof ask->filters - used;
    if (!*text)
        rg_explain(why, why_size, "the condition is empty");
    else if (snprintf(ask->filters + used, room, "%s%s", used ? "," : "", text) >= (int)room)
        rg_explain(why, why_size, "the conditions have more than %d bytes together",
                   RG_SLURM_FILTERS_SIZE - 1);
    else
        return true;
    return false;
}

bool rg_slurm_ask_take(struct rg_slurm_ask *ask, enum rg_slurm_option option, const char *text, char *why,
                       size_t why_size)
{
    int64_t number;
    ask->given[option] = true;
    switch (option) {
    case RG_SLURM_GPUS:
        if (rg_parse_integer(text ? text : "", 1, RG_POOL_GPUS_MAX, &number, why, why_size) != RG_OK)
            return false;
        ask->gpus = (unsigned)number;
        return true;
    case RG_SLURM_MEMORY:
        ask->memory = 0;
        ask->fraction = 0;
        return take_memory(ask, text ? text : "", why, why_size);
    case RG_SLURM_FILTER:
        return take_filter(ask, text ? text : "", why, why_size);
    case RG_SLURM_SPREAD:
        ask->spread = true;
        return true;
    case RG_SLURM_OPTIONS:
        break;
    }
    return false;
}

bool rg_slurm_ask_check(const struct rg_slurm_ask *ask, char *why, size_t why_size)
{
    for (unsigned i = 0; i < RG_SLURM_OPTIONS; i++)
        if (ask->given[i] && !ask->given[RG_SLURM_GPUS]) {
            rg_explain(why, why_size, "--%s says what GPUs are to be like: say how many, too, by --%s=N",
                       rg_slurm_options[i].name, rg_slurm_options[RG_SLURM_GPUS].name);
            return false;
        }
    return true;
}

bool rg_slurm_ask_read(struct rg_slurm_ask *ask, char *why, size_t why_size)
{
    memset(ask, 0, sizeof *ask);
    for (unsigned i = 0; i < RG_SLURM_OPTIONS; i++) {
        char name[64], what[512] = "";
        snprintf(name, sizeof name, "SPANK_%s", rg_slurm_options[i].variable);
        const char *text = getenv(name);
        if (text && !rg_slurm_ask_take(ask, i, text, what, sizeof what)) {
            rg_explain(why, why_size, "--%s: %s", rg_slurm_options[i].name, what);
            return false;
        }
    }
    return rg_slurm_ask_check(ask, why, why_size);
}
