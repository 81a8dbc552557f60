/* What is done next about a claim: every state that a restart may find. */
#include "places/kubernetes/controller/decide.h"

#include <criterion/criterion.h>

#define DEVICES "lab/gpu-a"

static char lease[] = "id/0", servers[] = "h:1", others[] = "h:2";

static const struct rg_kube_grant grant = {lease, servers}, moved = {lease, others};

/* An allocated claim, in use, that the controller has been through with. */
static struct rg_kube_claim done(void)
{
    return (struct rg_kube_claim){.noted_devices = DEVICES,
                                  .noted_lease = lease,
                                  .noted_servers = servers,
                                  .noted_waiting = "",
                                  .has_finalizer = true,
                                  .in_use = true};
}

static enum rg_kube_step step_of(struct rg_kube_claim claim, const char *wanted,
                                 const struct rg_kube_grant *had)
{
    return rg_kube_decide(&claim, wanted, had);
}

Test(kube_decide, a_new_claim)
{
    struct rg_kube_claim claim = done();
    claim.noted_devices = claim.noted_lease = claim.noted_servers = "";
    claim.has_finalizer = false;
    cr_expect_eq(step_of(claim, "", NULL), RG_KUBE_NOTHING);
    cr_expect_eq(step_of(claim, DEVICES, NULL), RG_KUBE_NOTE);
    claim.noted_devices = DEVICES;
    cr_expect_eq(step_of(claim, DEVICES, NULL), RG_KUBE_NOTE, "the finalizer comes before the lease");
    claim.has_finalizer = true;
    cr_expect_eq(step_of(claim, DEVICES, NULL), RG_KUBE_TAKE);
    cr_expect_eq(step_of(claim, DEVICES, &grant), RG_KUBE_TELL);
    cr_expect_eq(step_of(done(), DEVICES, &grant), RG_KUBE_NOTHING);
}

Test(kube_decide, after_a_restart_the_lease_is_asked_for_again)
{
    cr_expect_eq(step_of(done(), DEVICES, NULL), RG_KUBE_TAKE);
}

Test(kube_decide, a_server_that_has_moved_is_told_and_nothing_is_given_back)
{
    cr_expect_eq(step_of(done(), DEVICES, &moved), RG_KUBE_TELL);
}

Test(kube_decide, why_it_waited_is_taken_off_when_it_has_its_lease)
{
    struct rg_kube_claim claim = done();
    claim.noted_waiting = "no GPU is free";
    cr_expect_eq(step_of(claim, DEVICES, &grant), RG_KUBE_TELL);
}

Test(kube_decide, deallocated_claims_give_back)
{
    struct rg_kube_claim claim = done();
    claim.in_use = false;
    cr_expect_eq(step_of(claim, "", &grant), RG_KUBE_GIVE_BACK);
    cr_expect_eq(step_of(claim, "", NULL), RG_KUBE_GIVE_BACK, "also where it is not known to be had");
    claim.noted_devices = "";
    cr_expect_eq(step_of(claim, "", NULL), RG_KUBE_CLEAR);
    claim.has_finalizer = false;
    cr_expect_eq(step_of(claim, "", NULL), RG_KUBE_NOTHING);
}

Test(kube_decide, other_devices_are_another_lease)
{
    cr_expect_eq(step_of(done(), "lab/gpu-b", NULL), RG_KUBE_GIVE_BACK);
}

Test(kube_decide, a_claim_deleted_while_a_pod_uses_it_keeps_its_lease)
{
    struct rg_kube_claim claim = done();
    claim.deleting = true;
    cr_expect_eq(step_of(claim, DEVICES, &grant), RG_KUBE_NOTHING);
    cr_expect_eq(step_of(claim, DEVICES, NULL), RG_KUBE_TAKE, "and gets it back after a restart");
    claim.in_use = false;
    cr_expect_eq(step_of(claim, DEVICES, &grant), RG_KUBE_GIVE_BACK);
}

Test(kube_decide, nothing_is_begun_for_what_is_being_deleted)
{
    struct rg_kube_claim claim = done();
    claim.deleting = true;
    claim.noted_devices = "";
    claim.has_finalizer = false;
    cr_expect_eq(step_of(claim, DEVICES, NULL), RG_KUBE_NOTHING, "a finalizer cannot be put onto it");
}

Test(kube_decide, those_who_look_get_no_lease)
{
    struct rg_kube_claim claim = done();
    claim.for_admin = true;
    claim.noted_devices = "";
    claim.has_finalizer = false;
    cr_expect_eq(step_of(claim, DEVICES, NULL), RG_KUBE_NOTHING);
}
