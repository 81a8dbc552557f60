/* filter.c - filters: what they accept, what they match, which of them exclude each other, and what is said of wrong ones. */
#include "pool/schedule.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct rg_pool_label labels[] = {{"rack", "b4"}, {"watts", "350"}};
static const struct rg_pool_server server = {.address = "10.0.0.7:7600",
                                             .hostname = "gpu7",
                                             .labels = labels,
                                             .n_labels = 2,
                                             .has_rdma = true,
                                             .cuda_version = "12.10",
                                             .driver_version = "570.86.15"};
static const struct rg_pool_device device = {
    .index = 3, .uuid = "GPU-12ab", .name = "NVIDIA A100-SXM4-80GB", .memory = 80ull << 30};

static bool matches(const char *text)
{
    struct rg_pool_filter filter;
    char why[256];
    cr_assert_eq(rg_pool_filter_parse(text, &filter, why, sizeof why), RG_OK, "%s: %s", text, why);
    return rg_pool_filter_matches(&filter, &server, &device);
}

Test(pool_filter, every_key_and_operator)
{
    static const char *const yes[] = {
        "server.addr=10.0.0.7:7600",
        "server.addr = 10.0.0.*",
        "server.addr!=10.0.0.8:7600",
        "server.addr=*0.0.7*",
        "server.hostname=GPU7",
        "server.has-rdma=true",
        "server.has-rdma!=no",
        "server.cuda-version>12.4",
        "server.cuda-version>=12.10",
        "server.cuda-version<13",
        "server.driver-version=570.86.15",
        "server.driver-version<=570.86.15.1",
        "server.driver-version!=570",
        "device.index=3",
        "device.index<4",
        "device.id=GPU-12AB",
        "device.id=12ab",
        "device.name=*a100*",
        "device.name!=*H100*",
        "device.memory>=80G",
        "device.memory=81920M",
        "device.memory < 81GiB",
        "device.phy-memory>40000M",
        "labels.rack=b4",
        "labels.rack=b*",
        "labels.rack!=b5",
        "labels.watts>=350",
        "labels.watts<350.5",
        "labels.none!=x",
        "device.memory==80G",
    };
    static const char *const no[] = {
        "server.addr=10.0.0.8:7600",
        "server.hostname!=gpu7",
        "server.has-rdma=0",
        "server.cuda-version<12.9",
        "server.cuda-version=12.1",
        "server.driver-version<570.86.15",
        "device.index!=3",
        "device.id!=12ab",
        "device.name=A100",
        "device.memory>80G",
        "device.memory<80G",
        "labels.rack=B5",
        "labels.watts>350",
        "labels.rack>3",
        "labels.none=x",
        "labels.none<5",
        "device.name=*A100",
    };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        cr_expect(matches(yes[i]), "%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        cr_expect_not(matches(no[i]), "%s", no[i]);
}

Test(pool_filter, what_is_not_known_equals_nothing)
{
    static const struct rg_pool_server bare = {.address = "a"};
    static const struct rg_pool_device plain = {.memory = 1};
    static const char *const no[] = {"server.hostname=*", "server.cuda-version>=1", "device.id=*",
                                     "device.name=*"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        struct rg_pool_filter filter;
        cr_assert_eq(rg_pool_filter_parse(no[i], &filter, NULL, 0), RG_OK);
        cr_expect_not(rg_pool_filter_matches(&filter, &bare, &plain), "%s", no[i]);
    }
}

static void refused(const char *text, const char *said)
{
    struct rg_pool_filter filter;
    char why[512] = "";
    memset(&filter, 7, sizeof filter);
    cr_expect_eq(rg_pool_filter_parse(text, &filter, why, sizeof why), RG_ERR_INVALID, "%s", text);
    cr_expect(strstr(why, said), "%s: \"%s\" should say \"%s\"", text, why, said);
    cr_expect_not(strchr(why, '\n'));
}

Test(pool_filter, wrong_ones_are_named)
{
    refused("device.colour=red", "'device.colour' is no key");
    refused("device.colour=red", "server.driver-version, device.index");
    refused("labels.=x", "is no key");
    refused("memory>=4G", "labels.NAME");
    refused("device.memory", "KEY OPERATOR VALUE");
    refused("", "KEY OPERATOR VALUE");
    refused("device.memory!40G", "KEY OPERATOR VALUE");
    refused("device.memory>=", "compares device.memory with nothing");
    refused("device.memory>=40Q", "'40Q' is not a size");
    refused("device.index=-1", "device.index=-1");
    refused("server.has-rdma=maybe", "neither true nor false");
    refused("server.has-rdma>true", "only = and !=");
    refused("device.name<A", "only = and !=");
    refused("server.cuda-version>=twelve", "is not a version");
    refused("server.cuda-version>=12.", "is not a version");
    refused("server.driver-version=1.2.3.4.5", "is not a version");
    refused("server.driver-version=4294967296", "is not a version");
    refused("labels.watts>=many", "is not a number");
    refused("device.name=a\nb", "printable");
    char longest[400];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "device.name=", 12);
    longest[sizeof longest - 1] = 0;
    refused(longest, "at most 255");
}

static bool together(const char *const *texts, uint32_t n, char *why, size_t why_size)
{
    struct rg_pool_filter filters[4];
    return rg_pool_filters_parse(texts, n, filters, why, why_size) == RG_OK;
}

Test(pool_filter, contradictions_name_both)
{
    static const char *const pairs[][2] = {
        {"device.memory>=40G", "device.memory<20G"},
        {"device.memory>40G", "device.memory<=40G"},
        {"device.memory=40G", "device.memory=80G"},
        {"device.memory=40G", "device.memory!=40960M"},
        {"device.memory=40G", "device.memory>40G"},
        {"device.index>3", "device.index<4"},
        {"server.cuda-version>=12.10", "server.cuda-version<12.9"},
        {"server.has-rdma=true", "server.has-rdma=no"},
        {"server.has-rdma!=true", "server.has-rdma!=false"},
        {"server.has-rdma=true", "server.has-rdma!=yes"},
        {"server.hostname=a", "server.hostname=b"},
        {"server.hostname=node1", "server.hostname=gpu*"},
        {"server.hostname=gpu1", "server.hostname!=gpu*"},
        {"device.id=GPU-1", "device.id!=1"},
        {"labels.rack=a", "labels.rack=b"},
        {"labels.watts>300", "labels.watts<300"},
        {"labels.watts=200", "labels.watts>300"},
        {"labels.rack=b", "labels.rack>3"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char why[600] = "";
        cr_expect_not(together(pairs[i], 2, why, sizeof why), "%s and %s", pairs[i][0], pairs[i][1]);
        cr_expect(strstr(why, pairs[i][0]) && strstr(why, pairs[i][1]), "%s", why);
        const char *const swapped[] = {pairs[i][1], pairs[i][0]};
        cr_expect_not(together(swapped, 2, NULL, 0), "%s and %s", pairs[i][1], pairs[i][0]);
    }
    char why[600] = "";
    cr_expect_not(
        together((const char *const[]){"device.memory>=40G", "device.memory<20G"}, 2, why, sizeof why));
    cr_expect(strstr(why, "excludes all below 40G") && strstr(why, "excludes 20G and above") &&
                  strstr(why, "remove or change one"),
              "%s", why);
    cr_expect_not(
        together((const char *const[]){"server.has-rdma=true", "server.has-rdma!=yes"}, 2, why, sizeof why));
    cr_expect(strstr(why, "excludes all but true") && strstr(why, "excludes yes"), "%s", why);
    cr_expect_not(together((const char *const[]){"device.memory<0"}, 1, why, sizeof why));
    cr_expect(strstr(why, "below 0"), "%s", why);
}

Test(pool_filter, what_can_be_together_is)
{
    static const char *const pairs[][2] = {
        {"device.memory>=40G", "device.memory<=40G"},
        {"device.memory>40G", "device.memory<80G"},
        {"device.index>3", "device.index<5"},
        {"server.has-rdma=true", "server.has-rdma!=false"},
        {"server.hostname=gpu*", "server.hostname=*7"},
        {"server.hostname=gpu7", "server.hostname=gpu*"},
        {"server.hostname=gpu*", "server.hostname!=gpu7"},
        {"labels.rack=a", "labels.row=b"},
        {"labels.watts=350", "labels.watts>300"},
        {"device.memory!=40G", "device.memory!=80G"},
        {"device.id=GPU-1", "device.id=1"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char why[600] = "";
        cr_expect(together(pairs[i], 2, why, sizeof why), "%s", why);
    }
}

Test(pool_filter, equal_filters_have_equal_bytes)
{
    struct rg_pool_filter a, b;
    memset(&a, 1, sizeof a);
    memset(&b, 2, sizeof b);
    cr_assert_eq(rg_pool_filter_parse("device.memory >= 4G", &a, NULL, 0), RG_OK);
    cr_assert_eq(rg_pool_filter_parse("device.memory >= 4G", &b, NULL, 0), RG_OK);
    cr_expect_eq(memcmp(&a, &b, sizeof a), 0);
}

Test(pool_filter, patterns_take_linear_time_enough)
{
    /* A pattern that takes exponential time where every * is tried with every other. */
    char name[256];
    memset(name, 'a', 255);
    name[255] = 0;
    const struct rg_pool_device long_named = {.name = name, .memory = 1};
    struct rg_pool_filter filter;
    cr_assert_eq(
        rg_pool_filter_parse("device.name=*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", &filter, NULL, 0),
        RG_OK);
    cr_expect_not(rg_pool_filter_matches(&filter, &server, &long_named));
}
