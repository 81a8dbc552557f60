/* ask.c - what jobs ask for: options as people and liars write them. */
#include "places/slurm/ask.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char why[512];

static bool take(struct rg_slurm_ask *ask, enum rg_slurm_option option, const char *text)
{
    *why = '\0';
    return rg_slurm_ask_take(ask, option, text, why, sizeof why);
}

Test(slurm_ask, all_options)
{
    struct rg_slurm_ask ask = {.gpus = 0};
    cr_expect(take(&ask, RG_SLURM_GPUS, "2"));
    cr_expect(take(&ask, RG_SLURM_MEMORY, "20G"));
    cr_expect(take(&ask, RG_SLURM_FILTER, "device.memory>=40G"));
    cr_expect(take(&ask, RG_SLURM_FILTER, "labels.room=north"));
    cr_expect(take(&ask, RG_SLURM_SPREAD, NULL));
    cr_expect(ask.gpus == 2 && ask.memory == 20ull << 30 && ask.spread && !ask.fraction);
    cr_expect_str_eq(ask.filters, "device.memory>=40G,labels.room=north");
    cr_expect(rg_slurm_ask_check(&ask, why, sizeof why));
    cr_expect(take(&ask, RG_SLURM_MEMORY, "50%")); /* the last holds */
    cr_expect(ask.fraction == 500000 && ask.memory == 0);
}

Test(slurm_ask, mistakes)
{
    static const struct {
        enum rg_slurm_option option;
        const char *text;
    } wrong[] = {{RG_SLURM_GPUS, ""},       {RG_SLURM_GPUS, "two"},   {RG_SLURM_GPUS, "-1"},
                 {RG_SLURM_GPUS, "0"},      {RG_SLURM_GPUS, "99999"}, {RG_SLURM_GPUS, NULL},
                 {RG_SLURM_MEMORY, "0"},    {RG_SLURM_MEMORY, "20Q"}, {RG_SLURM_MEMORY, ""},
                 {RG_SLURM_MEMORY, "150%"}, {RG_SLURM_MEMORY, "0%"},  {RG_SLURM_MEMORY, NULL},
                 {RG_SLURM_FILTER, ""},     {RG_SLURM_FILTER, NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct rg_slurm_ask ask = {.gpus = 0};
        cr_expect(!take(&ask, wrong[i].option, wrong[i].text), "%s", wrong[i].text);
        cr_expect(*why, "%s: nothing is said", wrong[i].text);
    }
}

Test(slurm_ask, filters_have_an_end)
{
    struct rg_slurm_ask ask = {.gpus = 0};
    unsigned n = 0;
    while (n < 10000 && take(&ask, RG_SLURM_FILTER, "device.memory>=40G"))
        n++;
    cr_expect(n > 10 && n < 1000 && strlen(ask.filters) < RG_SLURM_FILTERS_SIZE);
    cr_expect(strstr(why, "bytes together"), "%s", why);
}

Test(slurm_ask, how_many_must_be_said)
{
    struct rg_slurm_ask ask = {.gpus = 0};
    cr_expect(rg_slurm_ask_check(&ask, why, sizeof why));
    cr_expect(take(&ask, RG_SLURM_SPREAD, ""));
    cr_expect(!rg_slurm_ask_check(&ask, why, sizeof why));
    cr_expect(strstr(why, "--remote-gpu=N"), "%s", why);
}

Test(slurm_ask, read_again_by_the_controller)
{
    struct rg_slurm_ask ask;
    cr_expect(rg_slurm_ask_read(&ask, why, sizeof why) && ask.gpus == 0);
    setenv("SPANK_RGPU_ASK_GPUS", "3", 1);
    setenv("SPANK_RGPU_ASK_SPREAD", "", 1);
    cr_expect(rg_slurm_ask_read(&ask, why, sizeof why) && ask.gpus == 3 && ask.spread, "%s", why);
    setenv("SPANK_RGPU_ASK_MEMORY", "lots", 1); /* as somebody may put it there */
    cr_expect(!rg_slurm_ask_read(&ask, why, sizeof why));
    cr_expect(strstr(why, "--remote-gpu-mem: "), "%s", why);
}
