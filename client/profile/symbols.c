/* symbols.c - see symbols.h. */
#include "client/profile/symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * The few functions of libdwfl that are used, as its manual (elfutils/libdwfl.h) declares them; the library
 * is loaded by name, so that the build and programs that are not profiled do without it.
 */
struct dwfl_callbacks {
    void *find_elf, *find_debuginfo, *section_address;
    char **debuginfo_path;
};

static struct {
    void *(*begin)(const struct dwfl_callbacks *callbacks);
    int (*linux_proc_report)(void *dwfl, pid_t pid);
    int (*report_end)(void *dwfl, void *removed, void *argument);
    void *(*addrmodule)(void *dwfl, uint64_t address);
    const char *(*module_addrname)(void *module, uint64_t address);
    void *(*module_getsrc)(void *module, uint64_t address);
    const char *(*lineinfo)(void *line, uint64_t *address, int *number, int *column, uint64_t *time,
                            uint64_t *length);
} dw;
static void *session; /* of libdwfl, for this process */

/* Debug information in files of its own is not looked for: that may ask servers. */
static int no_debuginfo(void *module, void **user, const char *name, uint64_t base, const char *file,
                        const char *link, uint32_t crc, char **found)
{
    (void)module, (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)found;
    return -1;
}

static bool load(void)
{
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    static struct dwfl_callbacks callbacks;
    callbacks.find_elf = dlsym(library, "dwfl_linux_proc_find_elf");
    callbacks.find_debuginfo = (void *)no_debuginfo;
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"dwfl_begin", &dw.begin},
                     {"dwfl_linux_proc_report", &dw.linux_proc_report},
                     {"dwfl_report_end", &dw.report_end},
                     {"dwfl_addrmodule", &dw.addrmodule},
                     {"dwfl_module_addrname", &dw.module_addrname},
                     {"dwfl_module_getsrc", &dw.module_getsrc},
                     {"dwfl_lineinfo", &dw.lineinfo}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function || !callbacks.find_elf)
            return false;
        memcpy(functions[i].to, &function, sizeof function);
    }
    session = dw.begin(&callbacks);
    return session && dw.linux_proc_report(session, getpid()) == 0 && dw.report_end(session, NULL, NULL) == 0;
}

/* C++ names as they are written, if the program has a C++ runtime. */
static void name_function(struct rg_symbol *symbol, const char *name)
{
    char *(*demangle)(const char *, char *, size_t *, int *) = NULL;
    void *found = strncmp(name, "_Z", 2) == 0 ? dlsym(RTLD_DEFAULT, "__cxa_demangle") : NULL;
    memcpy(&demangle, &found, sizeof found);
    int status = -1;
    char *clear = demangle ? demangle(name, NULL, NULL, &status) : NULL;
    snprintf(symbol->function, sizeof symbol->function, "%s", clear && status == 0 ? clear : name);
    free(clear);
}

static void find_line(uint64_t address, struct rg_symbol *symbol)
{
    static int loaded; /* 1: yes, -1: it cannot be */
    if (!loaded)
        loaded = load() ? 1 : -1;
    void *module = loaded == 1 ? dw.addrmodule(session, address) : NULL;
    if (!module)
        return;
    const char *name = dw.module_addrname(module, address);
    if (name)
        name_function(symbol, name);
    void *line = dw.module_getsrc(module, address);
    const char *file = line ? dw.lineinfo(line, NULL, &symbol->line, NULL, NULL, NULL) : NULL;
    if (file)
        snprintf(symbol->file, sizeof symbol->file, "%s", file);
}

/* Whether `info` is the client core, or a stand-in library beside it. */
static bool is_ours(const Dl_info *info)
{
    Dl_info self;
    if (!dladdr((void *)rg_symbol_find, &self))
        return false;
    const char *slash = strrchr(self.dli_fname, '/');
    const size_t folder = slash ? (size_t)(slash - self.dli_fname) + 1 : 0;
    return self.dli_fbase == info->dli_fbase ||
           (folder && strncmp(info->dli_fname, self.dli_fname, folder) == 0 &&
            !strchr(info->dli_fname + folder, '/'));
}

void rg_symbol_find(const void *return_address, bool lines, struct rg_symbol *symbol)
{
    memset(symbol, 0, sizeof *symbol);
    const char *call = (const char *)return_address - 1;
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(call, &info, (void **)&map, RTLD_DL_LINKMAP) || !info.dli_fname) {
        symbol->offset = (uint64_t)(uintptr_t)return_address;
        return;
    }
    char program[256] = "";
    if (map && !*map->l_name) { /* the program itself; dli_fname is what it takes for its argv[0] */
        ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
        if (size > 0)
            info.dli_fname = program;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(symbol->module, sizeof symbol->module, "%s", slash ? slash + 1 : info.dli_fname);
    symbol->offset = (uint64_t)(call - (const char *)info.dli_fbase);
    symbol->ours = is_ours(&info);
    if (info.dli_sname)
        name_function(symbol, info.dli_sname);
    if (lines && !symbol->ours)
        find_line((uint64_t)(uintptr_t)call, symbol);
}
