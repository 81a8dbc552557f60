/*
 * version.c - see version.h.
 *
 * dlsym finds what the library's table of symbols says, so a later function is taken out of it: when the library is loaded
 * with SOFTGPU_DRIVER_VERSION, its symbols are made hidden in this process's copy of the table, which dynamic linkers pass
 * over. Nothing inside the library goes by that table any more (it is linked with -Bsymbolic, and what refers to the
 * functions was bound before).
 */
#include "softgpu/driver/behaviour/version.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"
#include "generated/proto/api_table.h"

#define NEWEST (&rg_driver_versions[RG_DRIVER_VERSIONS - 1])

static const struct rg_driver_version *chosen = NEWEST; /* by the constructor */

const struct rg_driver_version *sg_version(void)
{
    return chosen;
}

bool sg_version_is_newest(void)
{
    return chosen == NEWEST;
}

/* --- symbols ------------------------------------------------------------------------------------------------------ */

static int by_name(const void *name, const void *entry)
{
    return strcmp(name, *(const char *const *)entry);
}

static bool is_later(const char *symbol)
{
    const char *const *found = bsearch(symbol, rg_api_names, RG_API_COUNT, sizeof *rg_api_names, by_name);
    return found && rg_api_since[found - rg_api_names] > chosen->number;
}

/* The symbols of this library are those of the table before the strings, as linkers lay them out. */
static void hide_later(const struct link_map *self)
{
    Elf64_Sym *symbols = NULL;
    const char *names = NULL;
    for (const Elf64_Dyn *at = self->l_ld; at->d_tag != DT_NULL; at++) {
        if (at->d_tag == DT_SYMTAB)
            symbols = (Elf64_Sym *)at->d_un.d_ptr; /* glibc has made an address of it */
        if (at->d_tag == DT_STRTAB)
            names = (const char *)at->d_un.d_ptr;
    }
    if (!symbols || (const char *)symbols >= names)
        return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = (uintptr_t)symbols & ~(page - 1);
    const size_t size = (((uintptr_t)names + page - 1) & ~(page - 1)) - start;
    if (mprotect((void *)start, size, PROT_READ | PROT_WRITE) != 0) {
        rg_warn("SOFTGPU_DRIVER_VERSION: later functions cannot be taken out of the library");
        return;
    }
    for (Elf64_Sym *at = symbols; (const char *)(at + 1) <= names; at++)
        if (at->st_shndx != SHN_UNDEF && is_later(names + at->st_name))
            at->st_other = STV_HIDDEN;
    (void)mprotect((void *)start, size, PROT_READ);
}

__attribute__((constructor)) static void choose(void)
{
    const char *text = secure_getenv("SOFTGPU_DRIVER_VERSION");
    unsigned major, minor;
    char behind;
    if (!text || !*text)
        return;
    const bool read = sscanf(text, "%u.%u%c", &major, &minor, &behind) == 2;
    for (const struct rg_driver_version *at = rg_driver_versions; read && at <= NEWEST; at++)
        if (at->number == (int)(major * 1000 + minor * 10)) {
            struct link_map *self = NULL;
            Dl_info info;
            chosen = at;
            if (chosen != NEWEST &&
                dladdr1((const void *)rg_driver_versions, &info, (void **)&self, RTLD_DL_LINKMAP))
                hide_later(self);
            return;
        }
    rg_warn("SOFTGPU_DRIVER_VERSION: '%s' is none of 12.0 to 12.9 and 13.0: the newest is used", text);
}
