/* prepared.c - see prepared.h. */
#include "places/kubernetes/node/prepared.h"

#include "client/cli/cdi/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool rg_kube_uid_is_good(const char *uid)
{
    const size_t size = strlen(uid);
    return size > 0 && size < 64 &&
           strspn(uid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == size &&
           uid[0] != '-' && uid[size - 1] != '-';
}

/* --- what is kept ---------------------------------------------------------------------------------------------------- */

static bool kept_path(const struct rg_kube_places *places, const char *uid, char *out)
{
    return rg_kube_uid_is_good(uid) &&
           snprintf(out, PATH_MAX, "%s/claim-%s.json", places->state_folder, uid) < PATH_MAX;
}

static bool cdi_path(const struct rg_kube_places *places, const char *uid, char *out)
{
    return rg_kube_uid_is_good(uid) && snprintf(out, PATH_MAX, "%s/k8s." RG_KUBE_DRIVER "-claim-%s.json",
                                                places->cdi_folder, uid) < PATH_MAX;
}

json_t *rg_kube_prepared_make(const struct rg_kube_claim *claim)
{
    json_t *devices = json_array();
    for (unsigned i = 0; i < claim->n_devices; i++)
        json_array_append_new(devices,
                              json_pack("{s:s, s:s, s:s}", "request", claim->devices[i].request, "pool",
                                        claim->devices[i].pool, "device", claim->devices[i].name));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "uid", claim->uid, "namespace", claim->space, "name",
                     claim->name, "lease", claim->noted_lease, "servers", claim->noted_servers, "devices",
                     devices);
}

json_t *rg_kube_prepared_load(const struct rg_kube_places *places, const char *uid)
{
    char path[PATH_MAX];
    json_t *kept = kept_path(places, uid, path) ? json_load_file(path, 0, NULL) : NULL;
    if (kept && strcmp(rg_json_get_text(kept, "uid"), uid) == 0)
        return kept;
    json_decref(kept);
    return NULL;
}

/* --- the specification ----------------------------------------------------------------------------------------------- */

bool rg_kube_places_add_tree(const struct rg_kube_places *places, struct rg_cdi_spec *spec, char *why,
                             size_t why_size)
{
    static const struct rg_cli_settings plain; /* none of its settings is ours to make */
    char paths[4][PATH_MAX];
    const char *const roots[] = {places->client_root, places->client_here};
    bool good = true;
    for (int i = 0; i < 2; i++)
        good = good && snprintf(paths[2 * i], PATH_MAX, "%s" RG_CDI_LIBRARIES, roots[i]) < PATH_MAX &&
               snprintf(paths[2 * i + 1], PATH_MAX, "%s/bin/remote-gpu", roots[i]) < PATH_MAX;
    good = good && rg_cdi_add_tree(spec, &plain, paths[0], paths[1], paths[2], paths[3]);
    if (!good)
        rg_explain(why, why_size,
                   "the client tree in %s is not whole: the driver's installation on this node is not done",
                   places->client_root);
    return good;
}

static json_t *specification(const struct rg_kube_places *places, const json_t *prepared, char *why,
                             size_t why_size)
{
    struct rg_cdi_spec spec;
    json_t *whole = NULL;
    rg_cdi_init(&spec);
    if (rg_kube_places_add_tree(places, &spec, why, why_size)) {
        rg_cdi_add_variable(&spec, "REMOTE_GPU_SERVER", rg_json_get_text(prepared, "servers"));
        for (size_t i = 0; i < places->environment.n; i++)
            rg_cdi_add_assignment(&spec, places->environment.items[i]);
        whole = rg_cdi_finish_as(&spec, RG_KUBE_CDI_KIND, rg_json_get_text(prepared, "uid"),
                                 "REMOTE_GPU_LEASE", rg_json_get_text(prepared, "lease"));
        if (!whole)
            rg_explain(why, why_size,
                       "the CDI specification cannot be made: a text is no UTF-8, or there is no memory");
    }
    rg_cdi_fini(&spec);
    return whole;
}

bool rg_kube_prepared_save(const struct rg_kube_places *places, const json_t *prepared, char *why,
                           size_t why_size)
{
    char kept[PATH_MAX], cdi[PATH_MAX];
    const char *uid = rg_json_get_text(prepared, "uid");
    if (!kept_path(places, uid, kept) || !cdi_path(places, uid, cdi)) {
        rg_explain(why, why_size,
                   "the claim's UID cannot be part of a file's name, or a folder's name is too long");
        return false;
    }
    json_t *whole = specification(places, prepared, why, why_size);
    /* root's alone: where clients prove nothing, whoever knows a lease's number has its GPUs */
    const bool good = whole && rg_cdi_write(kept, 0600, prepared, why, why_size) &&
                      rg_cdi_write(cdi, 0600, whole, why, why_size);
    json_decref(whole);
    return good;
}

static bool remove_file(const char *path, char *why, size_t why_size)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return true;
    rg_explain(why, why_size, "cannot remove %s: %s", path, strerror(errno));
    return false;
}

bool rg_kube_prepared_remove(const struct rg_kube_places *places, const char *uid, char *why, size_t why_size)
{
    char kept[PATH_MAX], cdi[PATH_MAX];
    if (!kept_path(places, uid, kept) || !cdi_path(places, uid, cdi))
        return true; /* nothing was ever written for it */
    return remove_file(cdi, why, why_size) && remove_file(kept, why, why_size);
}
