/* usage.c - questions and answers about usage and quotas as bytes: what goes in comes out, and nothing else is believed. */
#include "proto/accounts/usage.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static unsigned char bytes[RG_ANSWER_SIZE_MAX];
static struct rg_usage_answer answer, back;

Test(usage, question)
{
    const struct rg_usage_question question = {.user = "alice",
                                               .project = "vision",
                                               .has_project = true,
                                               .since = 1790000000,
                                               .until = -5,
                                               .by = RG_USAGE_BY_DAY,
                                               .skip = 77};
    struct rg_usage_question out;
    const size_t size = rg_usage_pack_question(&question, bytes);
    cr_assert_eq(rg_usage_unpack_question(bytes, size, &out), RG_OK);
    cr_expect_eq(memcmp(&question, &out, sizeof out), 0);
    for (size_t cut = 0; cut < size; cut++)
        cr_expect_neq(rg_usage_unpack_question(bytes, cut, &out), RG_OK);
    bytes[0] = 99;
    cr_expect_neq(rg_usage_unpack_question(bytes, size, &out), RG_OK);
}

static void fill(uint32_t n, size_t text)
{
    memset(&answer, 0, sizeof answer);
    answer.everybody = true;
    answer.since = 5;
    answer.n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct rg_usage_row *row = &answer.rows[i];
        row->kind = RG_USAGE_CERTIFICATE;
        memset(row->user, 'u', text);
        memset(row->address, 'a', text);
        memset(row->project, 'p', text);
        row->session = i;
        row->peak_bytes = UINT64_MAX;
        row->sharing = (enum rg_sharing)(i % RG_SHARINGS);
        row->mig = i % 2;
    }
}

Test(usage, answer)
{
    fill(3, 10);
    const size_t size = rg_usage_pack_answer(&answer, bytes);
    cr_assert_eq(rg_usage_unpack_answer(bytes, size, &back), RG_OK);
    cr_expect_eq(memcmp(&answer, &back, sizeof back), 0);
    const size_t old = size - 3 * 4; /* of a server that does not tell how sessions shared their GPUs */
    for (size_t cut = 0; cut < size; cut++)
        cr_expect_eq(rg_usage_unpack_answer(bytes, cut, &back) == RG_OK, cut >= old && (cut - old) % 4 == 0);
    cr_assert_eq(rg_usage_unpack_answer(bytes, old, &back), RG_OK);
    cr_expect_eq(back.rows[1].sharing, RG_SHARING_UNKNOWN);
    cr_expect_not(back.rows[1].mig);
    cr_expect_eq(back.rows[2].session, 2);
    /* a way that this end does not know */
    bytes[size - 4] = 99;
    cr_assert_eq(rg_usage_unpack_answer(bytes, size, &back), RG_OK);
    cr_expect_eq(back.rows[2].sharing, RG_SHARING_UNKNOWN);
}

Test(usage, what_does_not_fit_is_for_another_page)
{
    fill(RG_USAGE_ROWS_MAX, RG_USAGE_TEXT - 1);
    const size_t size = rg_usage_pack_answer(&answer, bytes);
    cr_assert_leq(size, sizeof bytes);
    cr_assert_eq(rg_usage_unpack_answer(bytes, size, &back), RG_OK);
    cr_expect(back.more);
    cr_expect(back.n > 50 && back.n < RG_USAGE_ROWS_MAX);
    cr_expect_eq(memcmp(answer.rows, back.rows, back.n * sizeof *back.rows), 0);
}

Test(usage, quotas)
{
    struct rg_quota_answer quotas = {.user = "alice",
                                     .used_known = true,
                                     .now = 1,
                                     .day_ends = 2,
                                     .month_ends = 3},
                           out;
    quotas.n = RG_QUOTA_SCOPES_MAX;
    for (uint32_t i = 0; i < quotas.n; i++) {
        quotas.rows[i].scope = RG_QUOTA_GROUP;
        memset(quotas.rows[i].name, 'n', RG_USAGE_TEXT - 1);
        quotas.rows[i].used[RG_QUOTA_MEMORY] = i;
    }
    const size_t size = rg_quota_pack_answer(&quotas, bytes);
    cr_assert_leq(size, sizeof bytes);
    cr_assert_eq(rg_quota_unpack_answer(bytes, size, &out), RG_OK);
    cr_expect_eq(memcmp(&quotas, &out, sizeof out), 0);
    for (size_t cut = 0; cut < size; cut += 7)
        cr_expect_neq(rg_quota_unpack_answer(bytes, cut, &out), RG_OK);
}

/* Whatever the bytes are, nothing is read behind them, and what is taken for good is within its limits. */
Test(usage, any_bytes)
{
    struct rg_usage_question question;
    static struct rg_quota_answer quotas;
    srandom(1);
    for (int i = 0; i < 3000; i++) {
        const size_t size = (size_t)random() % 600;
        unsigned char *exact = malloc(size + 1);
        for (size_t j = 0; j < size; j++)
            exact[j] = random() % 4 ? 0 : (unsigned char)random();
        if (rg_usage_unpack_question(exact, size, &question) == RG_OK)
            cr_expect(question.by >= RG_USAGE_BY_USER && question.by <= RG_USAGE_BY_LAST);
        if (rg_usage_unpack_answer(exact, size, &back) == RG_OK)
            cr_expect_leq(back.n, RG_USAGE_ROWS_MAX);
        if (rg_quota_unpack_answer(exact, size, &quotas) == RG_OK)
            cr_expect_leq(quotas.n, RG_QUOTA_SCOPES_MAX);
        free(exact);
    }
}
