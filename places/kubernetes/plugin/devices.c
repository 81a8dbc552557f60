/* devices.c - see devices.h. */
#include "places/kubernetes/plugin/devices.h"

#include "places/kubernetes/claim/claim.h"
#include "places/kubernetes/controller/slices.h"

#include <string.h>

json_t *rg_kube_plugin_devices(const json_t *picture, const json_t *ours)
{
    json_t *devices = json_object();
    const json_t *server, *gpu;
    size_t i, j;
    json_array_foreach(json_object_get(picture, "servers"), i, server)
        json_array_foreach(json_object_get(server, "gpus"), j, gpu)
    {
        const char *uuid = rg_json_get_text(gpu, "uuid");
        const bool healthy =
            !json_is_true(json_object_get(server, "draining")) && rg_kube_slices_is_ours(gpu, ours);
        if (*uuid && !json_object_get(devices, uuid))
            json_object_set_new(devices, uuid,
                                json_pack("{s:s, s:b}", "server", rg_json_get_text(server, "address"),
                                          "healthy", (int)healthy));
    }
    return devices;
}

/* --- the choice ------------------------------------------------------------------------------------------------------- */

static const char *server_of(const json_t *devices, const char *uuid)
{
    return rg_json_get_text(json_object_get(devices, uuid), "server");
}

static bool is_among(const char *uuid, const char *const *some, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(some[i], uuid) == 0)
            return true;
    return false;
}

/* How many of a server's are left to be chosen. */
static size_t left_on(const json_t *devices, const struct rg_kube_choice *choice, const char *server,
                      const char *const *chosen, size_t n_chosen)
{
    size_t n = 0;
    for (size_t i = 0; i < choice->n; i++)
        n += strcmp(server_of(devices, choice->available[i]), server) == 0 &&
             !is_among(choice->available[i], chosen, n_chosen);
    return n;
}

/* Whether a server with `left` is better than one with `best`, if `wanted` more are to come: the least that suffices, else the most. */
static bool is_better(size_t left, size_t best, size_t wanted)
{
    if (left >= wanted && best >= wanted)
        return left < best;
    return left > best;
}

/* The server to go on with: one that has been chosen of, while it has more; NULL: nothing is left. */
static const char *next_server(const json_t *devices, const struct rg_kube_choice *choice,
                               const char *const *chosen, size_t n_chosen)
{
    const char *found = NULL;
    size_t best = 0;
    for (size_t i = 0; i < n_chosen; i++)
        if (left_on(devices, choice, server_of(devices, chosen[i]), chosen, n_chosen))
            return server_of(devices, chosen[i]);
    for (size_t i = 0; i < choice->n; i++) {
        const char *server = server_of(devices, choice->available[i]);
        const size_t left = left_on(devices, choice, server, chosen, n_chosen);
        if (left && (!found || is_better(left, best, choice->wanted - n_chosen))) {
            found = server;
            best = left;
        }
    }
    return found;
}

size_t rg_kube_plugin_choose(const json_t *devices, const struct rg_kube_choice *choice, const char **out)
{
    const char *server;
    size_t n = 0;
    for (size_t i = 0; i < choice->n_must && n < choice->wanted; i++)
        out[n++] = choice->must[i];
    while (n < choice->wanted && (server = next_server(devices, choice, out, n)))
        for (size_t i = 0; i < choice->n && n < choice->wanted; i++)
            if (strcmp(server_of(devices, choice->available[i]), server) == 0 &&
                !is_among(choice->available[i], out, n))
                out[n++] = choice->available[i];
    return n;
}
