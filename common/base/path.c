/*
 * path.c - the installed tree, found from the file that this code was mapped from.
 *
 * The main program's file is /proc/self/exe, or, where /proc is not mounted, what it was started as. A shared library's name in the link map is absolute unless it
 * was loaded by a relative name, which stops being true with the first chdir; /proc/self/maps then says which
 * file it is.
 */
#include "common/base/path.h"

#include "common/base/cleanup.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static char library_dir[PATH_MAX];

void rg_path_set_library_dir(const char *dir)
{
    snprintf(library_dir, sizeof library_dir, "%s", dir ? dir : "");
}

static enum rg_status format_path(char *out, size_t size, const char *a, const char *b, const char *c)
{
    int n = snprintf(out, size, "%s%s%s", a, b, c);
    return n >= 0 && (size_t)n < size ? RG_OK : RG_ERR_INVALID;
}

/* The file that is mapped at `address`, as the kernel knows it. */
static bool mapped_file(const void *address, char *out, size_t size)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return false;
    RG_CLEANUP_FREE char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    while (!found && getline(&line, &capacity, maps) > 0) {
        unsigned long low, high;
        if (sscanf(line, "%lx-%lx", &low, &high) != 2)
            continue;
        if ((uintptr_t)address < low || (uintptr_t)address >= high)
            continue;
        const char *path = strchr(line, '/');
        if (!path)
            break;
        line[strcspn(line, "\n")] = '\0';
        found = format_path(out, size, path, "", "") == RG_OK;
    }
    fclose(maps);
    return found;
}

enum rg_status rg_path_self(char *out, size_t size)
{
    const void *here = (const void *)(uintptr_t)&rg_path_self;
    Dl_info info;
    struct link_map *map = NULL;
    char name[PATH_MAX] = "/proc/self/exe";
    if (dladdr1(here, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name[0] != '\0') {
        if (map->l_name[0] == '/') {
            if (format_path(name, sizeof name, map->l_name, "", "") != RG_OK)
                return RG_ERR_INVALID;
        } else if (!mapped_file(here, name, sizeof name)) {
            return RG_ERR_NOT_FOUND;
        }
    }
    char resolved[PATH_MAX];
    if (!realpath(name, resolved)) {
        const char *started_as = (const char *)(uintptr_t)getauxval(AT_EXECFN);
        if (strcmp(name, "/proc/self/exe") != 0 || !started_as || !realpath(started_as, resolved))
            return RG_ERR_NOT_FOUND;
    }
    return format_path(out, size, resolved, "", "");
}

static bool cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

/* lib/remote-gpu, without a slash at its end. */
static enum rg_status find_library_dir(char *out, size_t size)
{
    const char *named = library_dir[0] ? library_dir : secure_getenv("REMOTE_GPU_LIBDIR");
    if (named && *named)
        return format_path(out, size, named, "", "");

    char path[PATH_MAX];
    RG_TRY(rg_path_self(path, sizeof path));
    if (!cut_last(path))
        return RG_ERR_NOT_FOUND;
    if (ends_with(path, "/bin")) {
        cut_last(path);
        return format_path(out, size, path, "/lib/remote-gpu", "");
    }
    if (!ends_with(path, "/lib/remote-gpu"))
        cut_last(path);
    if (ends_with(path, "/lib/remote-gpu"))
        return format_path(out, size, path, "", "");
    return RG_ERR_NOT_FOUND;
}

enum rg_status rg_path_library(const char *part, char *out, size_t size)
{
    char dir[PATH_MAX];
    RG_TRY(find_library_dir(dir, sizeof dir));
    return format_path(out, size, dir, *part ? "/" : "", part);
}

enum rg_status rg_path_program(const char *name, char *out, size_t size)
{
    char dir[PATH_MAX];
    RG_TRY(find_library_dir(dir, sizeof dir));
    if (!ends_with(dir, "/lib/remote-gpu"))
        return RG_ERR_NOT_FOUND;
    cut_last(dir);
    cut_last(dir);
    return format_path(out, size, dir, "/bin/", name);
}
