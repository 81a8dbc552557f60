/* kept.c - see kept.h. The file is a JSON array: [{"lease": id, "devices": ["GPU-…", …]}, …]. */
#include "places/kubernetes/plugin/kept.h"

#include "client/cli/cdi/spec.h"
#include "common/base/clock.h"
#include "common/base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void rg_kube_kept_fini(struct rg_kube_kept *kept)
{
    for (size_t i = 0; i < kept->n; i++)
        json_decref(kept->items[i].devices);
    free(kept->items);
    *kept = (struct rg_kube_kept){0};
}

/* Takes the devices. */
static struct rg_kube_kept_lease *append(struct rg_kube_kept *kept, const char *id, json_t *devices)
{
    struct rg_kube_kept_lease *grown = devices ? realloc(kept->items, (kept->n + 1) * sizeof *grown) : NULL;
    if (!grown) {
        json_decref(devices);
        return NULL;
    }
    kept->items = grown;
    struct rg_kube_kept_lease *lease = &grown[kept->n++];
    *lease = (struct rg_kube_kept_lease){.devices = devices, .since_ns = rg_now_ns()};
    snprintf(lease->id, sizeof lease->id, "%s", id);
    return lease;
}

bool rg_kube_kept_load(struct rg_kube_kept *kept, const char *path, char *why, size_t why_size)
{
    json_error_t error;
    json_t *one;
    size_t i;
    *kept = (struct rg_kube_kept){.path = path};
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return true;
    json_t *whole = json_load_file(path, 0, &error);
    bool good = json_is_array(whole);
    if (!good)
        rg_explain(why, why_size,
                   "%s cannot be understood (%s); leases that it knew end by themselves: remove it", path,
                   whole ? "no array" : error.text);
    json_array_foreach(whole, i, one)
    {
        const json_t *devices = json_object_get(one, "devices");
        if (strlen(rg_json_get_text(one, "lease")) == RG_KUBE_LEASE_ID - 1 && json_is_array(devices))
            good = append(kept, rg_json_get_text(one, "lease"), json_deep_copy(devices)) && good;
    }
    json_decref(whole);
    return good;
}

static bool save(const struct rg_kube_kept *kept, char *why, size_t why_size)
{
    json_t *whole = json_array();
    for (size_t i = 0; i < kept->n; i++)
        json_array_append_new(
            whole, json_pack("{s:s, s:O}", "lease", kept->items[i].id, "devices", kept->items[i].devices));
    const bool good = rg_cdi_write(kept->path, 0600, whole, why, why_size);
    json_decref(whole);
    return good;
}

struct rg_kube_kept_lease *rg_kube_kept_add(struct rg_kube_kept *kept, char *const *devices, size_t n,
                                            char *why, size_t why_size)
{
    uint64_t number;
    char id[RG_KUBE_LEASE_ID];
    json_t *names = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(names, json_string(devices[i]));
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number || json_array_size(names) != n) {
        json_decref(names);
        rg_explain(why, why_size, "out of memory, or no random numbers");
        return NULL;
    }
    snprintf(id, sizeof id, "%016llx", (unsigned long long)number);
    struct rg_kube_kept_lease *lease = append(kept, id, names);
    if (lease && save(kept, why, why_size))
        return lease;
    if (lease)
        json_decref(kept->items[--kept->n].devices);
    else
        rg_explain(why, why_size, "out of memory");
    return NULL;
}

bool rg_kube_kept_remove(struct rg_kube_kept *kept, size_t i, char *why, size_t why_size)
{
    const struct rg_kube_kept_lease old = kept->items[i];
    kept->items[i] = kept->items[--kept->n];
    if (save(kept, why, why_size)) {
        json_decref(old.devices);
        return true;
    }
    kept->items[kept->n++] = kept->items[i];
    kept->items[i] = old;
    return false;
}

bool rg_kube_kept_has(const struct rg_kube_kept_lease *lease, const char *device)
{
    const json_t *one;
    size_t i;
    json_array_foreach(lease->devices, i, one) if (json_is_string(one) &&
                                                   strcmp(json_string_value(one), device) == 0) return true;
    return false;
}

json_t *rg_kube_kept_ids(const struct rg_kube_kept *kept)
{
    json_t *ids = json_object();
    for (size_t i = 0; i < kept->n; i++)
        json_object_set_new(ids, kept->items[i].id, json_true());
    return ids;
}
