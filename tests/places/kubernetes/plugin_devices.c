/* What the pool is to a kubelet, and which GPUs are best given to one container; the file of leases. */
#include "places/kubernetes/plugin/devices.h"
#include "places/kubernetes/plugin/kept.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES(...) ((char **)(uintptr_t)(const char *[]){__VA_ARGS__})

/* Servers a with three GPUs, b with two and c, which drains. Of a, GPU-a2 is somebody's, and GPU-a3 is by lease "ours". */
static json_t *pool(void)
{
    return json_pack(
        "{s:[{s:s, s:[{s:s}, {s:s, s:[{s:s}]}, {s:s, s:[{s:s}]}]}, {s:s, s:[{s:s}, {s:s}]}, {s:s, s:b, "
        "s:[{s:s}]}]}",
        "servers", "address", "a", "gpus", "uuid", "GPU-a1", "uuid", "GPU-a2", "granted", "lease", "theirs",
        "uuid", "GPU-a3", "granted", "lease", "ours", "address", "b", "gpus", "uuid", "GPU-b1", "uuid",
        "GPU-b2", "address", "c", "draining", 1, "gpus", "uuid", "GPU-c1");
}

static json_t *devices(void)
{
    json_t *picture = pool(), *ours = json_pack("{s:b}", "ours", 1);
    cr_assert(picture);
    json_t *found = rg_kube_plugin_devices(picture, ours);
    json_decref(picture);
    json_decref(ours);
    return found;
}

Test(kube_plugin, what_others_have_is_unhealthy)
{
    json_t *found = devices();
    const struct {
        const char *uuid, *server;
        bool healthy;
    } wanted[] = {{"GPU-a1", "a", true}, {"GPU-a2", "a", false}, {"GPU-a3", "a", true},
                  {"GPU-b1", "b", true}, {"GPU-b2", "b", true},  {"GPU-c1", "c", false}};
    cr_assert_eq(json_object_size(found), sizeof wanted / sizeof wanted[0]);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const json_t *one = json_object_get(found, wanted[i].uuid);
        cr_expect_str_eq(json_string_value(json_object_get(one, "server")), wanted[i].server);
        cr_expect_eq(json_is_true(json_object_get(one, "healthy")), wanted[i].healthy, "%s", wanted[i].uuid);
    }
    json_decref(found);
}

/* What is chosen, in the order in which it was, with spaces between. */
static const char *chosen(const struct rg_kube_choice *choice)
{
    static char text[256];
    json_t *found = devices();
    const char *out[8] = {0};
    const size_t n = rg_kube_plugin_choose(found, choice, out);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", out[i]);
    json_decref(found);
    return text;
}

Test(kube_plugin, as_few_servers_as_possible)
{
    char **all = NAMES("GPU-a1", "GPU-b1", "GPU-a2", "GPU-b2", "GPU-a3");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 5, NULL, 0, 2}), "GPU-b1 GPU-b2",
                     "b is enough, and has nothing left then");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 5, NULL, 0, 3}), "GPU-a1 GPU-a2 GPU-a3");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 5, NULL, 0, 4}), "GPU-a1 GPU-a2 GPU-a3 GPU-b1");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 5, NAMES("GPU-a3"), 1, 2}), "GPU-a3 GPU-a1",
                     "with one that must be there, the others of its server");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 5, NAMES("GPU-a3", "GPU-b2"), 2, 2}),
                     "GPU-a3 GPU-b2");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 1, NULL, 0, 3}), "GPU-a1", "there are no more");
    cr_expect_str_eq(chosen(&(struct rg_kube_choice){all, 5, NULL, 0, 0}), "");
}

Test(kube_plugin, leases_are_kept_over_a_restart)
{
    char path[64], why[512] = "";
    struct rg_kube_kept kept;
    snprintf(path, sizeof path, "/tmp/rg-kept-%d.json", (int)getpid());
    cr_assert(rg_kube_kept_load(&kept, path, why, sizeof why), "no file is an empty one: %s", why);
    cr_assert_eq(kept.n, 0);
    const struct rg_kube_kept_lease *one =
        rg_kube_kept_add(&kept, NAMES("GPU-a", "GPU-b"), 2, why, sizeof why);
    cr_assert(one, "%s", why);
    char first[RG_KUBE_LEASE_ID];
    snprintf(first, sizeof first, "%s", one->id);
    cr_assert(rg_kube_kept_add(&kept, NAMES("GPU-c"), 1, why, sizeof why), "%s", why);
    cr_expect_str_neq(kept.items[1].id, first);
    struct stat about;
    cr_expect(stat(path, &about) == 0 && (about.st_mode & 07777) == 0600, "whoever knows a lease may use it");
    rg_kube_kept_fini(&kept);

    cr_assert(rg_kube_kept_load(&kept, path, why, sizeof why), "%s", why);
    cr_assert_eq(kept.n, 2);
    cr_expect_str_eq(kept.items[0].id, first);
    cr_expect(rg_kube_kept_has(&kept.items[0], "GPU-b") && !rg_kube_kept_has(&kept.items[0], "GPU-c"));
    cr_assert(rg_kube_kept_remove(&kept, 0, why, sizeof why), "%s", why);
    json_t *ids = rg_kube_kept_ids(&kept);
    cr_expect(json_object_size(ids) == 1 && !json_object_get(ids, first));
    json_decref(ids);
    rg_kube_kept_fini(&kept);

    FILE *file = fopen(path, "we");
    cr_assert(file);
    fputs("{", file);
    fclose(file);
    cr_expect_not(rg_kube_kept_load(&kept, path, why, sizeof why));
    cr_expect(strstr(why, "remove it"), "%s", why);
    rg_kube_kept_fini(&kept);
    unlink(path);
}
