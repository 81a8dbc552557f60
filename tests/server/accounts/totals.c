/* totals.c - GPU time of users and projects, where there are more of them than are told apart. */
#include "server/accounts/totals.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct rg_account_owner owner_of(unsigned number)
{
    struct rg_account_owner owner = {.kind = RG_USAGE_CERTIFICATE};
    snprintf(owner.user, sizeof owner.user, "user%u", number);
    return owner;
}

static uint64_t spent_by(const struct rg_totals *totals, unsigned number)
{
    const struct rg_account_owner owner = owner_of(number);
    return rg_totals_spent(totals, false, owner.kind, owner.user, NULL).day_ns;
}

Test(totals, too_many_users_are_no_way_around_a_quota)
{
    static struct rg_totals totals;
    const rg_hour hour = 500000;
    cr_assert(rg_totals_set_hour(&totals, hour));
    for (unsigned i = 0; i < RG_ACCOUNTS_OWNERS_MAX + 10; i++) {
        const struct rg_account_owner owner = owner_of(i);
        struct rg_total *total = rg_totals_user(&totals, &owner);
        cr_assert_not_null(total);
        rg_totals_add(&totals, total, hour, 1000);
    }
    cr_assert_eq(spent_by(&totals, 0), 1000);
    cr_assert_eq(spent_by(&totals, RG_ACCOUNTS_OWNERS_MAX - 1), 1000);
    /* the last ten are one: each of them is said to have spent what all have */
    cr_assert_eq(spent_by(&totals, RG_ACCOUNTS_OWNERS_MAX + 3), 10000);
    cr_assert_eq(spent_by(&totals, RG_ACCOUNTS_OWNERS_MAX + 1000), 10000);
    rg_totals_fini(&totals);
}

/* Names that whoever likes can make up, as many as wanted: projects of a server without rules about them, and addresses. */
Test(totals, names_that_cost_nothing_take_no_places_of_users)
{
    static struct rg_totals totals;
    const rg_hour hour = 500000;
    cr_assert(rg_totals_set_hour(&totals, hour));
    for (unsigned i = 0; i < RG_ACCOUNTS_OWNERS_MAX + 10; i++) {
        struct rg_account_owner owner = owner_of(0);
        snprintf(owner.project, sizeof owner.project, "project%u", i);
        rg_totals_add(&totals, rg_totals_user(&totals, &owner), hour, 1);
        rg_totals_add(&totals, rg_totals_project(&totals, &owner), hour, 1);
    }
    for (unsigned i = 0; i < 10; i++) {
        struct rg_account_owner owner = {.kind = RG_USAGE_NOBODY, .user = RG_USAGE_UNAUTHENTICATED};
        snprintf(owner.address, sizeof owner.address, "10.0.0.%u", i);
        rg_totals_add(&totals, rg_totals_user(&totals, &owner), hour, 1000);
    }
    const struct rg_account_owner owner = owner_of(1);
    rg_totals_add(&totals, rg_totals_user(&totals, &owner), hour, 7);
    cr_assert_eq(spent_by(&totals, 0), RG_ACCOUNTS_OWNERS_MAX + 10);
    cr_assert_eq(spent_by(&totals, 1), 7);
    cr_assert_eq(spent_by(&totals, 2), 0);
    rg_totals_fini(&totals);
}

Test(totals, who_spent_nothing)
{
    static struct rg_totals totals;
    cr_assert(rg_totals_set_hour(&totals, 500000));
    cr_assert_eq(spent_by(&totals, 1), 0);
    const struct rg_account_owner owner = owner_of(2);
    rg_totals_add(&totals, rg_totals_user(&totals, &owner), 500000, 7);
    cr_assert_eq(spent_by(&totals, 1), 0);
    cr_assert_eq(spent_by(&totals, 2), 7);
    rg_totals_fini(&totals);
}
