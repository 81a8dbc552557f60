/*
 * own_variables.c - see own_variables.h.
 *
 * The file is read as ld.so will read it: its dynamic section leads to the table of its symbols, which is looked into by its hash
 * (DT_GNU_HASH), and to the names of the libraries that it needs. Of these, the ones that its own search path (DT_RUNPATH, DT_RPATH)
 * has are looked at as well; those of the system have no such variables. Every offset is checked against the file's size. What is in a
 * file that cannot be understood is ld.so's to refuse.
 */
#include "interpose/own_variables.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Some of these has everybody who loads the driver, or its management library, by hand. */
static const char *const names[] = {"cuInit",           "cuDriverGetVersion",  "cuGetErrorName",
                                    "cuGetErrorString", "cuDeviceGet",         "cuDeviceGetCount",
                                    "cuCtxSetCurrent",  "cuCtxSynchronize",    "cuGetProcAddress",
                                    "cuLaunchKernel",   "cuStreamSynchronize", "nvmlInit",
                                    "nvmlInit_v2",      "nvmlErrorString"};

enum {
    LIBRARIES_MAX = 256, /* that are looked at for one file */
};

/* --- a file ------------------------------------------------------------------------------------------------- */

struct image {
    const unsigned char *bytes;
    size_t size;
    const Elf64_Phdr *parts;
    unsigned n_parts;
    const Elf64_Dyn *dynamic;
    size_t n_dynamic;
};

/* What is at an offset; NULL: not so much is there, or it is not aligned. */
static const void *at(const struct image *image, uint64_t offset, uint64_t size, size_t alignment)
{
    if (offset > image->size || size > image->size - offset || offset % alignment)
        return NULL;
    return image->bytes + offset;
}

/* The same by the address at which it would be; `*left`: how much of its part follows. */
static const void *at_address(const struct image *image, uint64_t address, size_t alignment, uint64_t *left)
{
    for (unsigned i = 0; i < image->n_parts; i++) {
        const Elf64_Phdr *part = &image->parts[i];
        if (part->p_type != PT_LOAD || address < part->p_vaddr || address - part->p_vaddr >= part->p_filesz)
            continue;
        const uint64_t inside = address - part->p_vaddr;
        *left = part->p_filesz - inside;
        if (part->p_offset > image->size || inside > image->size - part->p_offset)
            return NULL;
        return at(image, part->p_offset + inside, *left, alignment);
    }
    return NULL;
}

static bool understand(struct image *image)
{
    const Elf64_Ehdr *header = at(image, 0, sizeof *header, 1);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_phentsize != sizeof *image->parts)
        return false;
    image->n_parts = header->e_phnum;
    image->parts =
        at(image, header->e_phoff, (uint64_t)image->n_parts * sizeof *image->parts, _Alignof(Elf64_Phdr));
    for (unsigned i = 0; image->parts && i < image->n_parts; i++)
        if (image->parts[i].p_type == PT_DYNAMIC) {
            image->n_dynamic = image->parts[i].p_filesz / sizeof *image->dynamic;
            image->dynamic = at(image, image->parts[i].p_offset, image->n_dynamic * sizeof *image->dynamic,
                                _Alignof(Elf64_Dyn));
        }
    return image->dynamic != NULL;
}

/* Maps a file; false: it is none, or not a library. */
static bool open_image(const char *file, struct image *image)
{
    struct stat state;
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    *image = (struct image){.bytes = MAP_FAILED};
    if (fd >= 0 && fstat(fd, &state) == 0 && S_ISREG(state.st_mode) && state.st_size > 0) {
        image->size = (size_t)state.st_size;
        image->bytes = mmap(NULL, image->size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0)
        close(fd);
    if (image->bytes == MAP_FAILED)
        return false;
    if (understand(image))
        return true;
    munmap((void *)image->bytes, image->size);
    return false;
}

static void close_image(struct image *image)
{
    munmap((void *)image->bytes, image->size);
}

/* The value of the first entry with that tag; 0: there is none. */
static uint64_t entry(const struct image *image, int64_t tag)
{
    for (size_t i = 0; i < image->n_dynamic && image->dynamic[i].d_tag != DT_NULL; i++)
        if (image->dynamic[i].d_tag == tag)
            return image->dynamic[i].d_un.d_val;
    return 0;
}

/* A text of the table of texts; NULL: it is not there, or does not end. */
static const char *text(const struct image *image, uint64_t offset)
{
    uint64_t left;
    const char *texts = at_address(image, entry(image, DT_STRTAB), 1, &left);
    if (!texts || offset >= left || !memchr(texts + offset, '\0', left - offset))
        return NULL;
    return texts + offset;
}

/* --- its symbols -------------------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool is_variable(const struct image *image, uint32_t index, const char *name)
{
    uint64_t left;
    const Elf64_Sym *symbols = at_address(image, entry(image, DT_SYMTAB), _Alignof(Elf64_Sym), &left);
    if (!symbols || index >= left / sizeof *symbols)
        return false;
    const Elf64_Sym *symbol = &symbols[index];
    const char *its_name = text(image, symbol->st_name);
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && its_name &&
           strcmp(its_name, name) == 0;
}

/* Whether a variable of that name is among the symbols that the library offers. The table: a header of four words, a filter of 64-bit
 * words, buckets, chains whose last hash is odd. */
static bool has_variable(const struct image *image, const char *name)
{
    uint64_t left;
    const uint32_t *words = at_address(image, entry(image, DT_GNU_HASH), _Alignof(uint64_t), &left);
    const uint64_t n_words = words ? left / sizeof *words : 0;
    if (n_words < 4)
        return false;
    const uint64_t n_buckets = words[0], first = words[1], buckets = 4 + 2ull * words[2],
                   chains = buckets + n_buckets;
    const uint32_t hash = hash_of(name);
    if (n_buckets == 0 || chains > n_words)
        return false;
    uint64_t index = words[buckets + hash % n_buckets];
    if (index < first)
        return false;
    for (; chains + index - first < n_words; index++) {
        const uint32_t here = words[chains + index - first];
        if ((here | 1) == (hash | 1) && is_variable(image, (uint32_t)index, name))
            return true;
        if (here & 1)
            break;
    }
    return false;
}

/* --- what it needs ------------------------------------------------------------------------------------------ */

/* Paths that are looked at, in order; each once. */
struct list {
    char *paths[LIBRARIES_MAX];
    size_t n;
};

static void add(struct list *list, const char *path)
{
    char real[PATH_MAX];
    if (list->n == LIBRARIES_MAX || !realpath(path, real))
        return;
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->paths[i], real) == 0)
            return;
    list->paths[list->n] = strdup(real);
    list->n += list->paths[list->n] != NULL;
}

/* Folder `length` bytes long of a search path, and in it a library, into `out`. */
static bool put_together(const char *file, const char *folder, size_t length, const char *library,
                         char out[PATH_MAX])
{
    static const char *const origins[] = {"$ORIGIN", "${ORIGIN}"};
    size_t own = 0;
    for (size_t i = 0; i < sizeof origins / sizeof origins[0]; i++)
        if (length >= strlen(origins[i]) && memcmp(folder, origins[i], strlen(origins[i])) == 0)
            own = strlen(origins[i]);
    const char *slash = strrchr(file, '/');
    const int written = snprintf(out, PATH_MAX, "%.*s%.*s/%s", own && slash ? (int)(slash - file) : 0, file,
                                 (int)(length - own), folder + own, library);
    return written > 0 && written < PATH_MAX;
}

static void add_needed(struct list *list, const struct image *image, const char *file, const char *library)
{
    const uint64_t offset = entry(image, DT_RUNPATH) ? entry(image, DT_RUNPATH) : entry(image, DT_RPATH);
    const char *folder = offset ? text(image, offset) : NULL;
    char path[PATH_MAX];
    while (folder && *folder) {
        const size_t length = strcspn(folder, ":");
        if (length && put_together(file, folder, length, library, path) && access(path, R_OK) == 0) {
            add(list, path);
            return;
        }
        folder += length + (folder[length] == ':');
    }
}

static bool look_at(struct list *list, const char *file)
{
    struct image image;
    bool found = false;
    if (!open_image(file, &image))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !found; i++)
        found = has_variable(&image, names[i]);
    for (size_t i = 0; i < image.n_dynamic && image.dynamic[i].d_tag != DT_NULL && !found; i++) {
        const char *library =
            image.dynamic[i].d_tag == DT_NEEDED ? text(&image, image.dynamic[i].d_un.d_val) : NULL;
        if (library && !strchr(library, '/'))
            add_needed(list, &image, file, library);
    }
    close_image(&image);
    return found;
}

bool rg_has_own_variables(const char *file)
{
    struct list *list = calloc(1, sizeof *list);
    bool found = false;
    if (!list)
        return false;
    add(list, file);
    for (size_t i = 0; i < list->n && !found; i++)
        found = look_at(list, list->paths[i]);
    for (size_t i = 0; i < list->n; i++)
        free(list->paths[i]);
    free(list);
    return found;
}
