/* admissions.c - sessions that wait for room: one user leaves some for others. */
#include "server/daemon/monitor/serving.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct rg_monitor monitor;

static bool wait_as(const struct rg_who *who, const char *address)
{
    if (!rg_monitor_may_wait(&monitor, who, address))
        return false;
    struct rg_admission *admission = calloc(1, sizeof *admission);
    admission->who = *who;
    strcpy(admission->question.peer.address, address);
    monitor.admissions[monitor.n_admissions++] = admission;
    return true;
}

static void forget_all(void)
{
    while (monitor.n_admissions > 0)
        free(monitor.admissions[--monitor.n_admissions]);
}

Test(admissions, a_lease_is_lent_to_its_user_alone)
{
    struct rg_session_entry *entry = calloc(1, sizeof *entry);
    struct rg_session_entry *entries[] = {entry};
    struct rg_sessions sessions = {.entries = entries, .n = 1};
    struct rg_who alice, mallory, nobody = {.proof = RG_PROOF_NONE};
    rg_who_user(1000, &alice);
    rg_who_user(1001, &mallory);
    entry->info.id = 7;
    entry->pool_lease = 99;
    entry->who = alice;
    cr_expect_eq(rg_sessions_lease(&sessions, 7, &alice), 99);
    cr_expect_eq(rg_sessions_lease(&sessions, 7, &mallory), 0);
    cr_expect_eq(rg_sessions_lease(&sessions, 7, &nobody), 0);
    cr_expect_eq(rg_sessions_lease(&sessions, 6, &alice), 0, "no such session");
    cr_expect_eq(rg_sessions_lease(&sessions, 0, &alice), 0);
    entry->kill_ns = 1;
    cr_expect_eq(rg_sessions_lease(&sessions, 7, &alice), 0, "it ends");
    entry->kill_ns = 0;
    entry->who = nobody;
    cr_expect_eq(rg_sessions_lease(&sessions, 7, &nobody), 0,
                 "who has proved nothing shows a lease by knowing it");
    free(entry);
}

Test(admissions, one_user_leaves_room_for_others)
{
    struct rg_who alice, nobody = {.proof = RG_PROOF_NONE};
    unsigned n = 0;
    rg_who_user(1000, &alice);
    while (n < RG_ADMISSIONS_MAX && wait_as(&alice, "unix"))
        n++;
    cr_assert_eq(n, RG_ADMISSIONS_OF_ONE_MAX);
    cr_expect(wait_as(&nobody, "10.0.0.1:7"));
    cr_expect(wait_as(&nobody, "10.0.0.1:8"));
    cr_expect(!wait_as(&nobody, "10.0.0.2:7"), "there are no more places");
    forget_all();
    for (n = 0; n < RG_ADMISSIONS_MAX && wait_as(&nobody, n % 2 ? "10.0.0.1:7" : "10.0.0.1:8"); n++)
        ;
    cr_expect_eq(n, RG_ADMISSIONS_OF_ONE_MAX, "an address is one, whatever its ports");
    cr_expect(wait_as(&nobody, "10.0.0.2:7"));
    forget_all();
}
