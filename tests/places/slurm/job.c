/* job.c - ids of leases, names by patterns, and for how long leases are kept. */
#include "places/slurm/job.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

Test(slurm_job, ids)
{
    char id[RG_SLURM_ID], other[RG_SLURM_ID];
    uint32_t job = 0;
    rg_slurm_lease_id("lab", 4711, id);
    cr_expect(strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16, "%s", id);
    cr_expect_str_eq(id + 8, "00001267");
    cr_expect(rg_slurm_lease_job("lab", id, &job) && job == 4711);
    cr_expect(!rg_slurm_lease_job("lab2", id, &job));
    rg_slurm_lease_id("lab2", 4711, other);
    cr_expect(memcmp(id, other, 8) != 0);
    rg_slurm_lease_id("lab", UINT32_MAX, id);
    cr_expect(rg_slurm_lease_job("lab", id, &job) && job == UINT32_MAX);
}

Test(slurm_job, ids_of_others)
{
    static const char *const others[] = {"", "00c0ffee00000001", "0123", "0123456789abcdef0",
                                         "zzzzzzzzzzzzzzzz"};
    char id[RG_SLURM_ID];
    uint32_t job;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_expect(!rg_slurm_lease_job("lab", others[i], &job), "%s", others[i]);
    rg_slurm_lease_id("lab", 0xabc, id);
    id[14] = 'B'; /* the pool has them in small letters */
    cr_expect(!rg_slurm_lease_job("lab", id, &job));
    id[8] = ' ';
    cr_expect(!rg_slurm_lease_job("lab", id, &job));
}

Test(slurm_job, names)
{
    char out[16], why[256] = "";
    cr_expect(rg_slurm_fill("%u", "alice", "physics", out, sizeof out, why, sizeof why));
    cr_expect_str_eq(out, "alice");
    cr_expect(rg_slurm_fill("%a/%u", "alice", "physics", out, sizeof out, why, sizeof why));
    cr_expect_str_eq(out, "physics/alice");
    cr_expect(rg_slurm_fill("5%%", "alice", "physics", out, sizeof out, why, sizeof why));
    cr_expect_str_eq(out, "5%");
    cr_expect(!rg_slurm_fill("%x", "alice", "physics", out, sizeof out, why, sizeof why) &&
              strstr(why, "%x"));
    cr_expect(!rg_slurm_fill("%", "alice", "physics", out, sizeof out, why, sizeof why));
    cr_expect(!rg_slurm_fill("%u@%a", "alice", "astrophysics", out, sizeof out, why, sizeof why));
    cr_expect(strstr(why, "15 bytes"), "%s", why);
}

Test(slurm_job, how_long)
{
    cr_expect(rg_slurm_seconds(1000, 1600, 60) == 660);
    cr_expect(rg_slurm_seconds(1000, 900, 60) == 60);
    cr_expect(rg_slurm_seconds(1000, 900, 0) == 1);
    cr_expect(rg_slurm_seconds(1000, RG_SLURM_NO_END, 60) == RG_POOL_KEPT_MAX_S);
    cr_expect(rg_slurm_seconds(1000, 1000 + RG_POOL_KEPT_MAX_S, 60) == RG_POOL_KEPT_MAX_S);
    cr_expect(rg_slurm_seconds(1000, INT64_MAX - 1, 60) == RG_POOL_KEPT_MAX_S);
}

Test(slurm_job, when_to_renew)
{
    cr_expect(!rg_slurm_is_short(1660, 1000, 1600, 60));
    cr_expect(!rg_slurm_is_short(1610, 1000, 1600, 60)); /* less than a minute too short */
    cr_expect(rg_slurm_is_short(1590, 1000, 1600, 60));
    cr_expect(!rg_slurm_is_short(1000 + RG_POOL_KEPT_MAX_S / 2, 1000, RG_SLURM_NO_END, 60));
    cr_expect(rg_slurm_is_short(1000 + RG_POOL_KEPT_MAX_S / 2 - 1, 1000, RG_SLURM_NO_END, 60));
}
