/* decide.c - see decide.h. */
#include "places/kubernetes/controller/decide.h"

#include <string.h>

enum rg_kube_step rg_kube_decide(const struct rg_kube_claim *claim, const char *wanted,
                                 const struct rg_kube_grant *grant)
{
    /* one that is being deleted keeps its lease while pods use it: Kubernetes takes the allocation away when none does */
    const bool wants = *wanted && !claim->for_admin && (!claim->deleting || claim->in_use);
    const bool noted = *claim->noted_devices != '\0';
    if (noted && (!wants || strcmp(claim->noted_devices, wanted) != 0))
        return RG_KUBE_GIVE_BACK;
    if (!wants)
        return claim->has_finalizer ? RG_KUBE_CLEAR : RG_KUBE_NOTHING;
    if (!noted || !claim->has_finalizer)
        return claim->deleting ? RG_KUBE_NOTHING : RG_KUBE_NOTE; /* nothing can be put onto it any more */
    if (!grant)
        return RG_KUBE_TAKE;
    return strcmp(grant->lease, claim->noted_lease) != 0 ||
                   strcmp(grant->servers, claim->noted_servers) != 0 || *claim->noted_waiting
               ? RG_KUBE_TELL
               : RG_KUBE_NOTHING;
}
