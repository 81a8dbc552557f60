/*
 * pool_filter.c - filters of a pool's requests, which one user writes and every member of the pool reads.
 *
 * The input: filters, one a line. What is accepted holds for a server or not, says the same when it is read again, and is
 * explained in one line if not.
 */
#include "pool/schedule.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdlib.h>
#include <string.h>

enum { FILTERS = 16 };

static const struct rg_pool_label labels[] = {{"rack", "b4"}, {"watts", "350"}, {"empty", NULL}};
static const struct rg_pool_server servers[] = {
    {.address = "10.0.0.7:7600",
     .hostname = "gpu7",
     .labels = labels,
     .n_labels = 3,
     .has_rdma = true,
     .cuda_version = "12.10",
     .driver_version = "570.86.15"},
    {.cuda_version = "none"},
};
static const struct rg_pool_device devices[] = {
    {.index = 3, .uuid = "GPU-12ab", .name = "NVIDIA A100-SXM4-80GB", .memory = 80ull << 30},
    {.server = 1, .memory = 1},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rg_pool_filter filters[FILTERS], again;
    char why[4 * RG_POOL_FILTER_TEXT] = "", *text = malloc(size + 1), *rest = text;
    uint32_t n = 0;
    CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line; n < FILTERS && (line = strsep(&rest, "\n"));) {
        memset(&again, 0xff, sizeof again);
        why[0] = '\0';
        if (rg_pool_filter_parse(line, &filters[n], why, sizeof why) != RG_OK) {
            CHECK(why[0] && !strchr(why, '\n'));
            continue;
        }
        CHECK(rg_pool_filter_parse(filters[n].text, &again, why, sizeof why) == RG_OK);
        CHECK(memcmp(&again, &filters[n], sizeof again) == 0);
        for (int i = 0; i < 2; i++)
            (void)!rg_pool_filter_matches(&filters[n], &servers[i], &devices[i]);
        n++;
    }
    /* What both hold for is no contradiction. */
    bool together = n > 0;
    for (uint32_t i = 0; i < n; i++)
        together &= rg_pool_filter_matches(&filters[i], &servers[0], &devices[0]);
    const enum rg_status status = rg_pool_filters_check(filters, n, why, sizeof why);
    CHECK(!together || status == RG_OK);
    CHECK(status == RG_OK || (why[0] && !strchr(why, '\n')));
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const texts[][2] = {
        {"server",
         "server.addr=10.0.0.*\nserver.hostname!=gpu7\nserver.has-rdma=true\nserver.cuda-version>=12.10"},
        {"device", "device.index<4\ndevice.id=GPU-12ab\ndevice.name=*A100*\ndevice.memory >= "
                   "40G\ndevice.phy-memory<81G"},
        {"labels", "labels.rack=b*\nlabels.watts>300\nlabels.empty=\nserver.driver-version<=570.86.15"},
        {"both", "device.memory>40G\ndevice.memory<=40G\nserver.hostname=a\nserver.hostname=b*"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fuzz_seed(texts[i][0], texts[i][1], strlen(texts[i][1]));
}
