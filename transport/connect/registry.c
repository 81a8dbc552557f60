/*
 * registry.c - which transports and filters there are.
 *
 * Built in are transport mem and the filters. Any other transport is looked for among those registered and
 * then in lib/remote-gpu/transport/NAME.so, which is opened once and never closed. The daemon, the worker and
 * the client core each have this file linked in and find the same part relative to themselves
 * (common/base/path.h); a program that lies elsewhere either names the folder (REMOTE_GPU_LIBDIR) or links
 * the transport and registers its table.
 *
 * A transport that is not there, or a part of another build, is explained in `why`. Threads: any; the table
 * has a lock, which is not held while a part is loaded: the loader has one of its own, and a thread that holds that while
 * constructors of a library of the program's run may come here.
 */
#include "transport/connect/registry.h"

#include "common/base/path.h"
#include "common/sync/scoped_lock.h"
#include "transport/connect/connect.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TRANSPORTS_MAX = 8 };

static const struct rg_filter *const filters[] = {&rg_filter_delay, &rg_filter_fault};
enum { N_FILTERS = sizeof filters / sizeof filters[0] };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct rg_transport_ops *registry[TRANSPORTS_MAX]; /* registry_lock */

static void complete_filters(void)
{
    for (int i = 0; i < N_FILTERS; i++)
        rg_transport_complete(filters[i]->ops, true);
}

const struct rg_filter *rg_filter_find(const char *name, size_t length)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, complete_filters);
    for (int i = 0; i < N_FILTERS; i++)
        if (strlen(filters[i]->name) == length && memcmp(filters[i]->name, name, length) == 0)
            return filters[i];
    return NULL;
}

static const struct rg_transport_ops *find_registered(const char *name)
{
    for (int i = 0; i < TRANSPORTS_MAX && registry[i]; i++)
        if (strcmp(registry[i]->name, name) == 0)
            return registry[i];
    return NULL;
}

static const struct rg_transport_ops *add_locked(struct rg_transport_ops *ops)
{
    const struct rg_transport_ops *known = find_registered(ops->name);
    if (known)
        return known;
    for (int i = 0; i < TRANSPORTS_MAX; i++) {
        if (!registry[i]) {
            rg_transport_complete(ops, false);
            registry[i] = ops;
            return ops;
        }
    }
    return NULL;
}

void rg_transport_register(struct rg_transport_ops *ops)
{
    RG_SCOPED_LOCK(&registry_lock);
    if (!add_locked(ops))
        rg_error("transport %s: more than %d transports", ops->name, TRANSPORTS_MAX);
}

/* Opens lib/remote-gpu/transport/NAME.so; `name` is letters and digits only (address.c). */
static struct rg_transport_ops *load_part(const char *name, char *why, size_t why_size)
{
    char relative[64], path[PATH_MAX];
    snprintf(relative, sizeof relative, "transport/%s.so", name);
    if (rg_path_library(relative, path, sizeof path) != RG_OK) {
        rg_explain(why, why_size, "cannot find lib/remote-gpu, where transport %s should be", name);
        return NULL;
    }
    void *part = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!part) {
        if (access(path, F_OK) != 0 &&
            (strcmp(name, "tcp") == 0 || strcmp(name, "tls") == 0 || strcmp(name, "rdma") == 0))
            rg_explain(why, why_size, "there is no transport %s (%s does not exist)", name, path);
        else if (access(path, F_OK) != 0)
            rg_explain(why, why_size,
                       "there is no transport %s; an address is HOST[:PORT], unix:/PATH or unix:@NAME", name);
        else
            rg_explain(why, why_size, "transport %s cannot be loaded: %s", name, dlerror());
        return NULL;
    }
    rg_transport_part_fn enter = (rg_transport_part_fn)(uintptr_t)dlsym(part, RG_TRANSPORT_PART_SYMBOL);
    struct rg_transport_host host = {
        .size = sizeof host,
        .ops_size = sizeof(struct rg_transport_ops),
        .version = RG_VERSION,
        .log_name = rg_log_get_name(),
        .log_level = rg_log_get_level(),
    };
    struct rg_transport_ops *ops = enter ? enter(&host) : NULL;
    if (!ops || strcmp(ops->name, name) != 0) {
        rg_explain(why, why_size, "%s is not of this build of remote-gpu (%s)", path, RG_VERSION);
        dlclose(part);
        return NULL;
    }
    return ops;
}

static const struct rg_transport_ops *find(const char *name)
{
    RG_SCOPED_LOCK(&registry_lock);
    add_locked(&rg_transport_mem_ops);
    return find_registered(name);
}

static const struct rg_transport_ops *add(struct rg_transport_ops *ops)
{
    RG_SCOPED_LOCK(&registry_lock);
    return add_locked(ops);
}

const struct rg_transport_ops *rg_transport_find(const char *name, char *why, size_t why_size)
{
    const struct rg_transport_ops *ops = find(name);
    if (ops)
        return ops;
    struct rg_transport_ops *loaded =
        load_part(name, why, why_size); /* others may load it at the same time */
    return loaded ? add(loaded) : NULL;
}
