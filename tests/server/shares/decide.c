/* decide.c - what a session gets of what it wishes for; every refusal is a sentence. */
#include "server/shares/decide.h"

#include <criterion/criterion.h>
#include <string.h>

#define GIB (1ull << 30)

static const struct rg_share_user alice = {.kind = RG_SHARE_NAME, .name = "alice"};
static const struct rg_share_user owner = {.kind = RG_SHARE_UID, .owner = true};
static const struct rg_share_card cards[] = {{0, 16 * GIB}, {3, 8 * GIB}};
static const struct rg_share_limits none;

static struct rg_share_grant grant_of(const struct rg_share_limits *limits, const struct rg_share_wish *wish)
{
    struct rg_share_grant grant;
    char why[512] = "";
    cr_assert_eq(rg_share_decide(limits, &alice, wish, cards, 2, &grant, why, sizeof why), RG_OK, "%s", why);
    return grant;
}

static void refused(const struct rg_share_limits *limits, const struct rg_share_wish *wish,
                    const char *expected)
{
    struct rg_share_grant grant;
    char why[512] = "";
    cr_expect_eq(rg_share_decide(limits, &alice, wish, cards, 2, &grant, why, sizeof why), RG_ERR_REFUSED,
                 "%s", expected);
    cr_expect(strstr(why, expected), "'%s' is not in: %s", expected, why);
}

Test(decide, without_a_wish_and_rules)
{
    const struct rg_share_grant grant = grant_of(&none, &(struct rg_share_wish){0});
    cr_expect_eq(grant.n_devices, 2);
    cr_expect_eq(grant.devices[1].ordinal, 3);
    cr_expect_eq(grant.devices[0].memory_limit, 0);
    cr_expect_eq(grant.compute_millionths, 0);
    cr_expect_eq(grant.weight, 100);
    cr_expect_eq(grant.priority, RG_SHARE_PRIORITY_NORMAL);
    cr_expect_eq(grant.idle_timeout_ns, 0);
}

Test(decide, memory)
{
    struct rg_share_grant grant = grant_of(&none, &(struct rg_share_wish){.memory_bytes = 8 * GIB});
    cr_expect_eq(grant.devices[0].memory_limit, 8 * GIB);
    cr_expect_eq(grant.devices[1].memory_limit, 8 * GIB);
    grant = grant_of(&none, &(struct rg_share_wish){.memory_millionths = 250000});
    cr_expect_eq(grant.devices[0].memory_limit, 4 * GIB);
    cr_expect_eq(grant.devices[1].memory_limit, 2 * GIB);
    grant = grant_of(&none, &(struct rg_share_wish){.memory_millionths = 1000000});
    cr_expect_eq(grant.devices[0].memory_limit, 16 * GIB);
    grant = grant_of(&none, &(struct rg_share_wish){.memory_bytes = 1});
    cr_expect_eq(grant.devices[0].memory_limit, 1);
    refused(&none, &(struct rg_share_wish){.memory_bytes = 8 * GIB + 1},
            "GPU 3 has 8 GiB; ask for at most 8 GiB");
    refused(&none, &(struct rg_share_wish){.memory_bytes = UINT64_MAX},
            "GPU 0 has 16 GiB; ask for at most 8 GiB");
    refused(&none, &(struct rg_share_wish){.memory_bytes = 1, .memory_millionths = 1}, "one of both");
}

Test(decide, defaults_are_fitted_and_wishes_refused)
{
    const struct rg_share_limits limits = {.memory = {.bytes = 12 * GIB},
                                           .max_memory = {.millionths = 500000}};
    struct rg_share_grant grant = grant_of(&limits, &(struct rg_share_wish){0});
    cr_expect_eq(grant.devices[0].memory_limit, 8 * GIB);
    cr_expect_eq(grant.devices[1].memory_limit, 4 * GIB);
    grant = grant_of(&limits, &(struct rg_share_wish){.memory_bytes = 4 * GIB});
    cr_expect_eq(grant.devices[1].memory_limit, 4 * GIB);
    refused(&limits, &(struct rg_share_wish){.memory_bytes = 5 * GIB},
            "5 GiB of GPU 3's memory were asked for, and you may have 4 GiB at most");
    const struct rg_share_limits large = {.memory = {.bytes = 12 * GIB}};
    grant = grant_of(&large, &(struct rg_share_wish){0});
    cr_expect_eq(grant.devices[0].memory_limit, 12 * GIB);
    cr_expect_eq(grant.devices[1].memory_limit, 8 * GIB, "a default is fitted to the card");
}

Test(decide, never_open_by_failing)
{
    const struct rg_share_limits must = {.require_memory = true};
    refused(&must, &(struct rg_share_wish){0}, "wants every session to say how much");
    cr_expect_eq(grant_of(&must, &(struct rg_share_wish){.memory_bytes = GIB}).devices[0].memory_limit, GIB);
    /* a maximum holds for who asks for nothing, too */
    const struct rg_share_limits most = {.max_memory = {.bytes = GIB},
                                         .max_compute = 250000,
                                         .max_weight = 50,
                                         .max_priority = RG_SHARE_PRIORITY_LOW,
                                         .max_idle_timeout_ns = 5};
    const struct rg_share_grant grant = grant_of(&most, &(struct rg_share_wish){0});
    cr_expect_eq(grant.devices[0].memory_limit, GIB);
    cr_expect_eq(grant.compute_millionths, 250000);
    cr_expect_eq(grant.weight, 50);
    cr_expect_eq(grant.priority, RG_SHARE_PRIORITY_LOW);
    cr_expect_eq(grant.idle_timeout_ns, 5);
}

Test(decide, the_rest)
{
    const struct rg_share_limits limits = {.compute = 500000,
                                           .max_compute = 750000,
                                           .weight = 200,
                                           .max_weight = 300,
                                           .max_idle_timeout_ns = 2000000000};
    struct rg_share_grant grant = grant_of(&limits, &(struct rg_share_wish){0});
    cr_expect_eq(grant.compute_millionths, 500000);
    cr_expect_eq(grant.weight, 200);
    grant = grant_of(&limits, &(struct rg_share_wish){.compute_millionths = 750000,
                                                      .weight = 300,
                                                      .priority = RG_SHARE_PRIORITY_LOW,
                                                      .idle_timeout_ns = 1});
    cr_expect_eq(grant.compute_millionths, 750000);
    cr_expect_eq(grant.weight, 300);
    cr_expect_eq(grant.priority, RG_SHARE_PRIORITY_LOW);
    cr_expect_eq(grant.idle_timeout_ns, 1);
    refused(&limits, &(struct rg_share_wish){.compute_millionths = 750001}, "you may have 75 % at most");
    refused(&limits, &(struct rg_share_wish){.weight = 301}, "you may have 300 at most");
    refused(&limits, &(struct rg_share_wish){.priority = RG_SHARE_PRIORITY_HIGH},
            "you may have normal at most");
    refused(&limits, &(struct rg_share_wish){.idle_timeout_ns = 3000000000}, "you may have 2 s at most");
    char why[256] = "";
    const struct rg_share_wish high = {.priority = RG_SHARE_PRIORITY_HIGH};
    cr_expect_eq(rg_share_decide(&none, &owner, &high, cards, 1, &grant, why, sizeof why), RG_OK, "%s", why);
    const struct rg_share_wish whole = {.compute_millionths = 1000000};
    cr_expect_eq(grant_of(&none, &whole).compute_millionths, 0, "all of the time is no cap");
}

Test(decide, ways_of_sharing)
{
    const struct rg_share_wish any = {0}, alone = {.exclusive = 1};
    static const struct {
        enum rg_share_mode mode;
        bool server_has_mps;
        enum rg_sharing any, alone; /* UNKNOWN: refused */
    } cases[] = {
        {RG_SHARE_MODE_ANY, false, RG_SHARING_TURNS, RG_SHARING_EXCLUSIVE},
        {RG_SHARE_MODE_ANY, true, RG_SHARING_MPS, RG_SHARING_EXCLUSIVE},
        {RG_SHARE_MODE_SHARED, false, RG_SHARING_TURNS, RG_SHARING_UNKNOWN},
        {RG_SHARE_MODE_SHARED, true, RG_SHARING_MPS, RG_SHARING_UNKNOWN},
        {RG_SHARE_MODE_TURNS, true, RG_SHARING_TURNS, RG_SHARING_UNKNOWN},
        {RG_SHARE_MODE_MPS, true, RG_SHARING_MPS, RG_SHARING_UNKNOWN},
        {RG_SHARE_MODE_EXCLUSIVE, true, RG_SHARING_EXCLUSIVE, RG_SHARING_EXCLUSIVE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct rg_share_limits limits = {.mode = cases[i].mode, .mps = cases[i].server_has_mps};
        cr_expect_eq(rg_share_sharing(&limits, &any), cases[i].any, "case %zu", i);
        cr_expect_eq(rg_share_sharing(&limits, &alone), cases[i].alone, "case %zu", i);
        const struct rg_share_grant grant = grant_of(&limits, &any);
        cr_expect_eq(rg_share_grant_sharing(&grant), cases[i].any, "case %zu", i);
    }
    const struct rg_share_limits mps = {.mode = RG_SHARE_MODE_MPS};
    refused(&mps, &alone, "has you share them by MPS;");
    refused(&(struct rg_share_limits){.mode = RG_SHARE_MODE_TURNS}, &alone, "has you share them;");
}

Test(decide, parts_by_mps)
{
    const struct rg_share_limits mps = {.mps = true};
    cr_expect_eq(grant_of(&mps, &(struct rg_share_wish){.compute_millionths = 250000}).compute_millionths,
                 250000);
    cr_expect_eq(grant_of(&mps, &(struct rg_share_wish){.compute_millionths = 10000}).compute_millionths,
                 10000);
    cr_expect_eq(grant_of(&mps, &(struct rg_share_wish){.compute_millionths = 1000000}).compute_millionths, 0,
                 "all is no limit");
    refused(&mps, &(struct rg_share_wish){.compute_millionths = 125000},
            "12.5 % of a GPU were asked for, and your sessions share this server's GPUs by MPS");
    refused(&mps, &(struct rg_share_wish){.compute_millionths = 9999}, "whole percents");
    refused(&mps, &(struct rg_share_wish){.weight = 100}, "MPS, which knows none");
    /* what a rule says is fitted, but not to nothing */
    const struct rg_share_limits ruled = {.mps = true, .compute = 335000, .weight = 200};
    cr_expect_eq(grant_of(&ruled, &(struct rg_share_wish){0}).compute_millionths, 330000);
    const struct rg_share_limits tiny = {.mps = true, .max_compute = 5000};
    refused(&tiny, &(struct rg_share_wish){0}, "0.5 % of a GPU are what its rules say");
    /* alone, there is nobody to share with */
    cr_expect_eq(grant_of(&mps, &(struct rg_share_wish){.compute_millionths = 125000, .exclusive = 1})
                     .compute_millionths,
                 125000);
}

Test(decide, bytes_as_people_read_them)
{
    char text[32];
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},
                 {4097, "4.0 KiB"},
                 {4096, "4 KiB"},
                 {8 * GIB, "8 GiB"},
                 {GIB + GIB / 2, "1.5 GiB"},
                 {GIB + 1, "1024.0 MiB"},
                 {79 * GIB + 5, "79.0 GiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rg_share_bytes_text(cases[i].bytes, text, sizeof text);
        cr_expect_str_eq(text, cases[i].text);
    }
}
