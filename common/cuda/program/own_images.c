/*
 * own_images.c - see own_images.h. Sections are not part of what is loaded, so the file is opened to find
 * them; what the file says is believed only as far as it lies in the parts that the loader has mapped. Each
 * file is held (dlopen) while its images are taken.
 */
#include "common/cuda/program/own_images.h"

#include "common/base/cleanup.h"
#include "common/cuda/image.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTION      ".nvFatBinSegment"
#define SECTIONS_MAX 4096u
#define NAMES_MAX    (1u << 20) /* bytes of the table of sections' names */
#define PARTS_MAX    16u

struct part {
    uintptr_t start, end;
};

/* A file that is loaded. */
struct file {
    char *name; /* "" for the program */
    uintptr_t base;
    unsigned n_parts;
    struct part parts[PARTS_MAX];
};

struct files {
    struct file *at;
    size_t n, room;
};

static int note_file(struct dl_phdr_info *info, size_t size, void *user)
{
    struct files *files = user;
    (void)size;
    if (files->n == files->room) {
        const size_t more = files->room ? 2 * files->room : 64;
        struct file *bigger = realloc(files->at, more * sizeof *bigger);
        if (!bigger)
            return 1;
        files->at = bigger;
        files->room = more;
    }
    struct file *file = &files->at[files->n];
    *file = (struct file){.base = info->dlpi_addr, .name = strdup(info->dlpi_name ? info->dlpi_name : "")};
    if (!file->name)
        return 1;
    for (unsigned i = 0; i < info->dlpi_phnum && file->n_parts < PARTS_MAX; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD)
            file->parts[file->n_parts++] = (struct part){info->dlpi_addr + part->p_vaddr,
                                                         info->dlpi_addr + part->p_vaddr + part->p_memsz};
    }
    files->n++;
    return 0;
}

/* Bytes from `start` on that are mapped; 0: none. */
static uint64_t mapped_from(const struct file *file, uintptr_t start)
{
    for (unsigned i = 0; i < file->n_parts; i++)
        if (start >= file->parts[i].start && start < file->parts[i].end)
            return file->parts[i].end - start;
    return 0;
}

static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
    return pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

/* Where the wrappers are, by the file's sections; false: it has none. */
static bool find_wrappers(const struct file *file, uintptr_t *start, uint64_t *size)
{
    ElfW(Ehdr) header;
    RG_CLEANUP_FD int fd = open(*file->name ? file->name : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_shentsize != sizeof(ElfW(Shdr)) || header.e_shnum > SECTIONS_MAX ||
        header.e_shstrndx >= header.e_shnum)
        return false;
    RG_CLEANUP_FREE ElfW(Shdr) *sections = calloc(header.e_shnum, sizeof *sections);
    if (!sections || !read_at(fd, sections, header.e_shnum * sizeof *sections, header.e_shoff))
        return false;
    const ElfW(Shdr) *names = &sections[header.e_shstrndx];
    RG_CLEANUP_FREE char *text =
        names->sh_size && names->sh_size <= NAMES_MAX ? malloc(names->sh_size) : NULL;
    if (!text || !read_at(fd, text, names->sh_size, names->sh_offset))
        return false;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        if (!(sections[i].sh_flags & SHF_ALLOC) || sections[i].sh_name > names->sh_size ||
            names->sh_size - sections[i].sh_name < sizeof SECTION ||
            memcmp(text + sections[i].sh_name, SECTION, sizeof SECTION) != 0)
            continue;
        *start = file->base + sections[i].sh_addr;
        *size = sections[i].sh_size;
        return *size <= mapped_from(file, *start) && *start % _Alignof(struct rg_cuda_wrapper) == 0;
    }
    return false;
}

/* Bytes of the image of a wrapper; 0: it is none that can be taken. */
static uint64_t size_of(const struct file *file, const struct rg_cuda_wrapper *wrapper)
{
    struct rg_cuda_image image;
    const uint64_t mapped = mapped_from(file, (uintptr_t)wrapper->container);
    const bool linked = wrapper->version == 1 || (wrapper->version == 2 && !wrapper->prelinked);
    if (wrapper->magic != RG_CUDA_WRAPPER_MAGIC || !linked || !mapped ||
        rg_cuda_image_identify_bytes(wrapper->container, mapped, &image) != RG_CUDA_IMAGE_CONTAINER)
        return 0;
    return image.size;
}

/* The images of one file, if they are within the limits, which are then what is left of them. */
static void take_file(const struct file *file, struct rg_own_images_limits *left,
                      void (*take)(void *user, const void *wrapper), void *user)
{
    uintptr_t start = 0;
    uint64_t size = 0, bytes = 0;
    unsigned n = 0;
    if (!find_wrappers(file, &start, &size))
        return;
    void *held = dlopen(*file->name ? file->name : NULL, RTLD_NOLOAD | RTLD_LAZY);
    struct link_map *map = NULL;
    if (!held || dlinfo(held, RTLD_DI_LINKMAP, &map) != 0 || map->l_addr != file->base)
        goto out; /* it has been unloaded */
    const struct rg_cuda_wrapper *wrappers = (const struct rg_cuda_wrapper *)start;
    const uint64_t count = size / sizeof *wrappers;
    bool fits = true;
    for (uint64_t i = 0; i < count && fits; i++) {
        const uint64_t image = size_of(file, &wrappers[i]);
        n += image != 0;
        bytes += image;
        fits = n <= left->images && image <= left->image_bytes && bytes <= left->bytes;
    }
    if (!fits)
        goto out;
    left->images -= n;
    left->bytes -= bytes;
    for (uint64_t i = 0; i < count; i++)
        if (size_of(file, &wrappers[i]))
            take(user, &wrappers[i]);
out:
    if (held)
        dlclose(held);
}

void rg_own_images(const struct rg_own_images_limits *limits, void (*take)(void *user, const void *wrapper),
                   void *user)
{
    struct rg_own_images_limits left = *limits;
    struct files files = {0};
    dl_iterate_phdr(note_file, &files);
    for (size_t i = 0; i < files.n; i++) {
        if (!limits->program || !*files.at[i].name)
            take_file(&files.at[i], &left, take, user);
        free(files.at[i].name);
    }
    free(files.at);
}
