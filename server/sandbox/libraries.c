/*
 * libraries.c - where the server's environment has the linker find libraries, and NCCL: as the server's processes are told of it, and what
 * of it they see although it lies in a folder that is covered for them.
 *
 * Both go by folders' own names, without links, `..` and slashes too many (realpath): what a link leads through is not there for them, and
 * what is kept is the folder that is meant and none that it lies in. What is not there, or what only the linker knows ($ORIGIN, …), stays as
 * it is named, and is kept from none. The monitor's main thread.
 */
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "server/sandbox/group.h"
#include "server/sandbox/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list for the linker that is being made, and what is kept. */
struct search {
    struct rg_sandbox_lease *lease;
    FILE *list;
    int n_keep;
    bool any;
};

/* The folder's own name; NULL: there is none of that name, or it is not for us to look up. The caller's. */
static char *own_name(const char *name, size_t size)
{
    RG_CLEANUP_FREE char *text = strndup(name, size);
    return text && text[0] == '/' && !strchr(text, '$') ? realpath(text, NULL) : NULL;
}

/* Takes the name over. */
static void keep(struct search *search, char *folder)
{
    struct rg_sandbox_lease *lease = search->lease;
    if (!rg_sandbox_is_below_cover(folder)) {
        free(folder);
        return;
    }
    if (search->n_keep == RG_SANDBOX_KEEP) {
        rg_info("sandbox: there are more than %d folders of libraries below those that are covered: %s is "
                "not seen by workers",
                RG_SANDBOX_KEEP, folder);
        free(folder);
        return;
    }
    lease->kept[search->n_keep] = folder;
    lease->sandbox.keep[search->n_keep++].folder = folder;
}

/* One more for the list. */
static void add(struct search *search, const char *name, size_t size)
{
    char *folder = own_name(name, size);
    if (search->list)
        fprintf(search->list, "%s%.*s", search->any ? ":" : "", folder ? (int)strlen(folder) : (int)size,
                folder ? folder : name);
    search->any = true;
    if (folder)
        keep(search, folder);
}

static void add_list(struct search *search, const char *list)
{
    for (const char *at = list; *at;) {
        const size_t size = strcspn(at, ":;");
        add(search, at, size);
        at += size;
        if (*at && !*++at)
            add(search, at, 0); /* an empty one at the end */
    }
}

/* The library is named as it lies in its folder. */
static void find_nccl(struct search *search, const char *named)
{
    const char *slash = named ? strrchr(named, '/') : NULL;
    char *folder = slash && slash != named ? own_name(named, (size_t)(slash - named)) : NULL;
    if (!folder)
        return;
    if (asprintf(&search->lease->nccl, "REMOTE_GPU_NCCL=%s%s", folder, slash) < 0)
        search->lease->nccl = NULL;
    keep(search, folder);
}

void rg_sandbox_find_libraries(struct rg_sandbox_lease *lease, const char *driver, int n)
{
    const char *list = getenv("LD_LIBRARY_PATH"), *slash = driver ? strrchr(driver, '/') : NULL;
    size_t size;
    struct search search = {.lease = lease, .n_keep = n, .list = open_memstream(&lease->linker, &size)};
    if (search.list)
        fputs("LD_LIBRARY_PATH=", search.list);
    if (list)
        add_list(&search, list);
    if (slash && slash != driver)
        add(&search, driver, (size_t)(slash - driver));
    if (search.list && (fclose(search.list) != 0 || !search.any)) {
        free(lease->linker);
        lease->linker = NULL;
    }
    find_nccl(&search, getenv("REMOTE_GPU_NCCL"));
}

void rg_sandbox_forget_libraries(struct rg_sandbox_lease *lease)
{
    for (int i = 0; i < RG_SANDBOX_KEEP; i++)
        free(lease->kept[i]);
    free(lease->linker);
    free(lease->nccl);
}
