/*
 * llvm_library.c - see llvm_library.h.
 *
 * A C++ compiler registers the destructor of such an object by __cxa_atexit (Itanium C++ ABI, 3.3.6.3), which a library calls by an address
 * in its relocation tables (ELF gABI, "Dynamic Section"). That address becomes one of a function that does nothing.
 */
#include "softgpu/compiler/jit/llvm_library.h"

#include <dlfcn.h>
#include <link.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
    uintptr_t first, end;
};

struct library {
    uintptr_t base;
    struct range code;
    struct range sealed; /* written by the dynamic linker only */
    const ElfW(Dyn) * dynamic;
};

extern void *const __dso_handle __attribute__((visibility("hidden")));

/* __cxa_atexit itself. Where LLVM is part of this library, a call of it by its name comes to forget, too. */
static int (*register_exit)(void (*destroy)(void *), void *object, void *library);

static bool contains(struct range range, uintptr_t address)
{
    return address >= range.first && address < range.end;
}

static int find(struct dl_phdr_info *object, size_t size, void *out)
{
    struct library found = {.base = object->dlpi_addr};
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const struct range range = {found.base + part->p_vaddr, found.base + part->p_vaddr + part->p_memsz};
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && contains(range, (uintptr_t)LLVMRunPasses))
            found.code = range;
        else if (part->p_type == PT_GNU_RELRO)
            found.sealed = range;
        else if (part->p_type == PT_DYNAMIC)
            found.dynamic = (const void *)range.first;
    }
    if (found.code.first)
        *(struct library *)out = found;
    return found.code.first != 0;
}

bool sg_llvm_code(uintptr_t *first, uintptr_t *end)
{
    struct library library = {0};
    if (!dl_iterate_phdr(find, &library))
        return false;
    *first = library.code.first;
    *end = library.code.end;
    return true;
}

/* In place of __cxa_atexit. This library's own exit handlers, where LLVM is part of it, have no object. */
static int forget(void (*destroy)(void *), void *object, void *library)
{
    return library == &__dso_handle && !object ? register_exit(destroy, object, library) : 0;
}

static void redirect(const struct library *library, _Atomic uintptr_t *slot)
{
    const uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)slot & ~(page_size - 1));
    const bool sealed = contains(library->sealed, (uintptr_t)slot);
    if (sealed && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0)
        return;
    atomic_store(slot, (uintptr_t)forget);
    if (sealed)
        (void)mprotect(page, page_size, PROT_READ);
}

/* A value of the dynamic section: addresses are the process's where the dynamic linker has made them so, else the file's. */
static uintptr_t value_of(const struct library *library, ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *entry = library->dynamic; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return entry->d_un.d_val;
    return 0;
}

static const void *address_of(const struct library *library, ElfW(Sxword) tag)
{
    const uintptr_t value = value_of(library, tag);
    return (const void *)(value && value < library->base ? value + library->base : value);
}

static void redirect_all(const struct library *library, ElfW(Sxword) table_tag, ElfW(Sxword) size_tag)
{
    const ElfW(Rela) *table = address_of(library, table_tag);
    const ElfW(Sym) *symbols = address_of(library, DT_SYMTAB);
    const char *names = address_of(library, DT_STRTAB);
    const size_t n = table && symbols && names ? value_of(library, size_tag) / sizeof *table : 0;
    for (size_t i = 0; i < n; i++) {
        const size_t symbol = ELF64_R_SYM(table[i].r_info);
        if (symbol && strcmp(names + symbols[symbol].st_name, "__cxa_atexit") == 0)
            redirect(library, (_Atomic uintptr_t *)(library->base + table[i].r_offset));
    }
}

void sg_llvm_keep_objects(void)
{
    struct library library = {0};
    *(void **)&register_exit = dlsym(RTLD_DEFAULT, "__cxa_atexit");
    if (!register_exit || !dl_iterate_phdr(find, &library) || !library.dynamic)
        return;
    if (value_of(&library, DT_PLTREL) == DT_RELA)
        redirect_all(&library, DT_JMPREL, DT_PLTRELSZ);
    redirect_all(&library, DT_RELA, DT_RELASZ);
}
