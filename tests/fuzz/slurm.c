/*
 * slurm.c - what users of Slurm give to programs of root's: the options of a job as the controller gets them in its environment, names
 * that are filled into patterns, ids of leases, and the environment that a command of the user's prints on a node.
 *
 * The input is steps, each a byte that says what it is (modulo STEPS) and texts (steps.h):
 *
 *   ASK       text for each option, none where it is empty: SPANK_… of the environment
 *   FILL      texts: pattern, user, account
 *   LEASE     text: an id; u8: a cluster
 *   COMPARE   texts: what the command printed; what there was before, variables with a 0 behind each
 */
#include "common/base/log.h"
#include "places/slurm/ask.h"
#include "places/slurm/environment.h"
#include "places/slurm/job.h"
#include "tests/fuzz/steps.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ASK, FILL, LEASE, COMPARE, STEPS };
enum { BEFORE_MAX = 64 };

static char why[512];

/* An environment of the fuzzer's own: the C library keeps every value that it was given. */
static void ask(void)
{
    static struct rg_slurm_ask read;
    static char texts[RG_SLURM_OPTIONS][FUZZ_TEXT_MAX + 64], *variables[RG_SLURM_OPTIONS + 1];
    char **const before = environ;
    unsigned n = 0;
    for (unsigned i = 0; i < RG_SLURM_OPTIONS; i++) {
        size_t size;
        const char *text = fuzz_text(&size);
        if (*text) {
            snprintf(texts[i], sizeof texts[i], "SPANK_%s=%s", rg_slurm_options[i].variable, text);
            variables[n++] = texts[i];
        }
    }
    variables[n] = NULL;
    environ = variables;
    why[0] = '\0';
    const bool good = rg_slurm_ask_read(&read, why, sizeof why);
    environ = before;
    if (!good) {
        CHECK(why[0]);
        return;
    }
    CHECK(strlen(read.filters) < sizeof read.filters && read.fraction <= 1000000);
    CHECK(!read.given[RG_SLURM_GPUS] || read.gpus);
}

static void fill(void)
{
    static char texts[3][FUZZ_TEXT_MAX + 1];
    char out[256], small[16];
    size_t size;
    for (int i = 0; i < 3; i++) {
        const char *text = fuzz_text(&size);
        memcpy(texts[i], text, size + 1);
    }
    if (rg_slurm_fill(texts[0], texts[1], texts[2], out, sizeof out, why, sizeof why))
        CHECK(strlen(out) < sizeof out);
    if (rg_slurm_fill(texts[0], texts[1], texts[2], small, sizeof small, why, sizeof why))
        CHECK(strlen(small) < sizeof small);
}

static void lease(void)
{
    size_t size;
    uint32_t job;
    char cluster[2] = {(char)fuzz_u8(), 0}, again[RG_SLURM_ID];
    const char *id = fuzz_text(&size);
    if (!rg_slurm_lease_job(cluster, id, &job))
        return;
    rg_slurm_lease_id(cluster, job, again);
    CHECK(strcmp(again, id) == 0);
}

static bool set(void *context, const char *name, const char *value)
{
    unsigned *n = context;
    CHECK(*name && !strchr(name, '='));
    *n += 1 + (value ? strlen(value) : 0);
    return true;
}

static void compare(void)
{
    static char printed[FUZZ_TEXT_MAX + 1];
    char *before[BEFORE_MAX + 1];
    unsigned n = 0, changes = 0;
    size_t size, before_size;
    const char *text = fuzz_text(&size);
    memcpy(printed, text, size + 1);
    char *at = (char *)(uintptr_t)fuzz_text(&before_size), *end = at + before_size;
    for (; n < BEFORE_MAX && at < end; at += strlen(at) + 1)
        before[n++] = at;
    before[n] = NULL;
    if (!size)
        return;
    struct rg_slurm_environment now = {.text = malloc(size), .size = size}; /* not a byte more */
    CHECK(now.text);
    memcpy(now.text, printed, size);
    now.text[size - 1] = '\0'; /* as rg_slurm_environment_ask makes sure */
    (void)rg_slurm_environment_compare(&now, before, set, &changes);
    rg_slurm_environment_fini(&now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const steps[STEPS])(void) = {ask, fill, lease, compare};
    fuzz_in = rg_reader_of(data, size);
    while (fuzz_more())
        steps[fuzz_u8() % STEPS]();
    return 0;
}

void fuzz_seeds(void)
{
    char id[RG_SLURM_ID];
    FUZZ_STEP("2", ASK);
    fuzz_add_text("20G", 3);
    fuzz_add_text("device.memory>=40G,server.rdma=true", 35);
    fuzz_add_text("1", 1);
    FUZZ_STEP("1", ASK);
    fuzz_add_text("50%", 3);
    fuzz_finish("options");
    FUZZ_STEP("%u@%a%%", FILL);
    fuzz_add_text("alice", 5);
    fuzz_add_text("physics", 7);
    fuzz_finish("pattern");
    rg_slurm_lease_id("c", 4711, id);
    FUZZ_STEP(id, LEASE, 'c');
    fuzz_finish("lease");
    FUZZ_STEP(NULL, COMPARE);
    fuzz_add_text("A=1\0B=two\0C=\0", 13);
    fuzz_add_text("A=1\0B=2\0GONE=x\0NAMELESS\0", 25);
    fuzz_finish("environment");
}
