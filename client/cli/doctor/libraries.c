/*
 * libraries.c - librdmacm, libibverbs and the provider of each device; what shadows them; whether transport
 * rdma loads.
 *
 * rdma-core's libraries come as one set: libibverbs loads libNAME-rdmavN.so of the device's driver from its
 * own folder. Mellanox OFED brings a set of its own, without providers for other makers' devices (vmw_pvrdma
 * among them).
 */
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/tree.h"
#include "common/base/path.h"
#include "transport/rdma/verbs.h"
#include "transport/topology/devices.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Provider of a device, by the kernel driver's name. */
static const struct {
    const char *driver, *device, *provider;
} providers[] = {{"vmw_pvrdma", "vmw_pvrdma", "vmw_pvrdma"},
                 {"mlx5_core", "mlx5", "mlx5"},
                 {"mlx4_core", "mlx4", "mlx4"},
                 {"bnxt_en", "bnxt_re", "bnxt_re"},
                 {"irdma", "irdma", "irdma"},
                 {"", "rxe", "rxe"},
                 {"", "siw", "siw"}};

static const char *provider_of(const struct rg_doctor_device *device)
{
    for (size_t i = 0; i < sizeof providers / sizeof *providers; i++)
        if ((device->driver[0] && strcmp(device->driver, providers[i].driver) == 0) ||
            strncmp(device->name, providers[i].device, strlen(providers[i].device)) == 0)
            return providers[i].provider;
    return NULL;
}

static bool has_provider(struct rg_doctor *doctor, const char *library, const char *provider)
{
    static struct rg_tree_names names;
    char folder[PATH_MAX], start[64];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(library, '/') - library), library);
    int size = snprintf(start, sizeof start, "lib%s-rdmav", provider);
    rg_tree_list(doctor, &names, "%s/libibverbs", folder);
    for (unsigned i = 0; i < names.n; i++)
        if (strncmp(names.names[i], start, (size_t)size) == 0)
            return true;
    return false;
}

static bool check_libraries(struct rg_doctor *doctor, char *verbs, size_t size)
{
    char path[PATH_MAX], version[64], other[64];
    bool has_verbs = rg_rdma_library(doctor->root, "libibverbs.so.1", verbs, size, version, sizeof version);
    bool has_cm = rg_rdma_library(doctor->root, "librdmacm.so.1", path, sizeof path, other, sizeof other);
    if (has_verbs && has_cm)
        rg_doctor_say(doctor, RG_CHECK_OK, "libraries", NULL, "libibverbs %s (%s), librdmacm %s (%s)",
                      version, verbs, other, path);
    else
        rg_doctor_say(doctor, doctor->n_devices ? RG_CHECK_PROBLEM : RG_CHECK_OK, "libraries",
                      doctor->n_devices ? "apt-get install libibverbs1 librdmacm1 ibverbs-providers (or: dnf "
                                          "install libibverbs librdmacm)"
                                        : NULL,
                      "%s%s%s not there%s", has_verbs ? "" : "libibverbs", has_verbs || has_cm ? "" : " and ",
                      has_cm ? "" : "librdmacm", doctor->n_devices ? "" : ", and not needed");
    return has_verbs;
}

/* A second set of libraries that the loader or a build finds first. */
static bool find_shadow(struct rg_doctor *doctor, char *out, size_t size)
{
    static const char *const folders[] = {"/opt/mellanox/lib",     "/opt/mellanox/lib64",
                                          "/usr/local/lib",        "/usr/local/lib64",
                                          "/usr/local/ofed/lib64", "/opt/mellanox/ofed/lib"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(out, size, "%s/libibverbs.so.1", folders[i]);
        if (rg_tree_exists(doctor, "%s", out))
            return true;
    }
    snprintf(out, size, "/usr/bin/ofed_info");
    return rg_tree_exists(doctor, "/usr/bin/ofed_info");
}

static void check_providers(struct rg_doctor *doctor, const char *verbs)
{
    char shadow[128];
    bool ofed = find_shadow(doctor, shadow, sizeof shadow);
    unsigned missing = 0;
    const char *fix =
        ofed
            ? "remove Mellanox OFED's user libraries (its uninstall.sh, or in an image: do not install them) "
              "and install rdma-core's: apt-get install --reinstall libibverbs1 librdmacm1 ibverbs-providers"
            : "apt-get install ibverbs-providers (or: dnf install libibverbs)";
    for (unsigned i = 0; i < doctor->n_devices; i++) {
        const char *provider = provider_of(&doctor->devices[i]);
        if (!provider || has_provider(doctor, verbs, provider))
            continue;
        missing++;
        rg_doctor_say(doctor, RG_CHECK_PROBLEM, "provider", fix,
                      "%s: libibverbs has no provider '%s' for it, so programs do not see the device",
                      doctor->devices[i].name, provider);
    }
    if (ofed)
        rg_doctor_say(
            doctor, RG_CHECK_WARNING, "ofed", fix,
            "%s: Mellanox OFED is here; its libraries shadow rdma-core's, and know Mellanox devices only",
            shadow);
    else if (missing == 0)
        rg_doctor_say(doctor, RG_CHECK_OK, "provider", NULL, "libibverbs has the providers of all devices");
}

typedef enum rg_status (*verbs_open_fn)(char *why, size_t why_size);

/* The product's own part, with the libraries that the loader finds for it. */
static void check_part(struct rg_doctor *doctor)
{
    char path[PATH_MAX];
    enum rg_check_level bad = doctor->n_devices ? RG_CHECK_PROBLEM : RG_CHECK_OK;
    if (rg_path_library("transport/rdma.so", path, sizeof path) != RG_OK || access(path, R_OK) != 0) {
        rg_doctor_say(doctor, bad, "transport",
                      "install a build with transport rdma (librdmacm-dev, libibverbs-dev)",
                      "transport/rdma.so is not installed");
        return;
    }
    void *part = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!part) {
        rg_doctor_say(doctor, bad, "transport", "install remote-gpu again",
                      "transport/rdma.so does not load: %s", dlerror());
        return;
    }
    char why[512] = "it is of another version";
    verbs_open_fn verbs_open = (verbs_open_fn)(uintptr_t)dlsym(part, RG_RDMA_VERBS_SYMBOL);
    if (verbs_open && verbs_open(why, sizeof why) == RG_OK)
        rg_doctor_say(doctor, RG_CHECK_OK, "transport", NULL, "transport/rdma.so loads");
    else
        rg_doctor_say(doctor, bad, "transport",
                      doctor->n_devices
                          ? "apt-get install libibverbs1 librdmacm1 (or: dnf install libibverbs librdmacm)"
                          : NULL,
                      "transport/rdma.so cannot be used: %s", why);
}

void rg_doctor_libraries(struct rg_doctor *doctor)
{
    char verbs[PATH_MAX];
    if (check_libraries(doctor, verbs, sizeof verbs) && doctor->n_devices)
        check_providers(doctor, verbs);
    if (!doctor->root[0])
        check_part(doctor);
}
