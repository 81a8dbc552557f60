/*
 * image.c - what a module image is and how long; see image.h.
 *
 * All forms share the code: every read is checked against the bytes available, which for a bare pointer are
 * as many as an image may have. Nothing is logged: what an unknown image means is the caller's to say. Any
 * thread.
 */
#include "common/cuda/image.h"

#include "common/base/limits.h"

#include <elf.h>
#include <string.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif
#define OLD_WRAPPER_MAGIC 0x1ee55a01u /* what came before wrappers: pointers, all of it */

static const uint32_t wrapper_magic = RG_CUDA_WRAPPER_MAGIC, container_magic = RG_CUDA_CONTAINER_MAGIC;

struct bytes {
    const unsigned char *data;
    uint64_t available;
};

struct container {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
};
_Static_assert(sizeof(struct container) == RG_CUDA_CONTAINER_SIZE, "as in files");

static bool has(const struct bytes *b, uint64_t offset, uint64_t size)
{
    return offset <= b->available && size <= b->available - offset;
}

static bool read_at(const struct bytes *b, uint64_t offset, void *to, uint64_t size)
{
    if (!has(b, offset, size))
        return false;
    memcpy(to, b->data + offset, size);
    return true;
}

/** Whether the image starts with these bytes; looks no further than the first that differs. */
static bool starts_with(const struct bytes *b, const void *magic, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (i >= b->available || b->data[i] != ((const unsigned char *)magic)[i])
            return false;
    return true;
}

/* Each of these returns the image's size, or 0 if it is not what it seemed. */

static uint64_t container_size(const struct bytes *b)
{
    struct container header;
    if (!read_at(b, 0, &header, sizeof(header)))
        return 0;
    if (header.version != 1 || header.header_size != RG_CUDA_CONTAINER_SIZE ||
        !has(b, sizeof(header), header.size))
        return 0;
    return sizeof(header) + header.size;
}

/** Moves *end to the end of [offset, offset + size) if that is further; false if it is out of reach. */
static bool extend(const struct bytes *b, uint64_t offset, uint64_t size, uint64_t *end)
{
    if (!has(b, offset, size))
        return false;
    if (offset + size > *end)
        *end = offset + size;
    return true;
}

/* Where an ELF file ends, whatever machine it is for; 0: it leads outside of what there is. */
static uint64_t elf_extent(const struct bytes *b)
{
    Elf64_Ehdr header;
    if (!read_at(b, 0, &header, sizeof(header)))
        return 0;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        return 0;

    uint64_t end = sizeof(header), n_sections = header.e_shnum, n_segments = header.e_phnum;
    Elf64_Shdr section;
    Elf64_Phdr segment;
    if (header.e_shoff) {
        if (header.e_shentsize != sizeof(section) || !read_at(b, header.e_shoff, &section, sizeof(section)))
            return 0;
        if (!n_sections)
            n_sections = section.sh_size; /* too many for the header's field */
        if (n_segments == PN_XNUM)
            n_segments = section.sh_info;
        if (n_sections > b->available / sizeof(section) ||
            !extend(b, header.e_shoff, n_sections * sizeof(section), &end))
            return 0;
        for (uint64_t i = 1; i < n_sections; i++) {
            memcpy(&section, b->data + header.e_shoff + i * sizeof(section), sizeof(section));
            if (section.sh_type != SHT_NULL && section.sh_type != SHT_NOBITS &&
                !extend(b, section.sh_offset, section.sh_size, &end))
                return 0;
        }
    }
    if (header.e_phoff && n_segments) {
        if (header.e_phentsize != sizeof(segment) || n_segments > b->available / sizeof(segment) ||
            !extend(b, header.e_phoff, n_segments * sizeof(segment), &end))
            return 0;
        for (uint64_t i = 0; i < n_segments; i++) {
            memcpy(&segment, b->data + header.e_phoff + i * sizeof(segment), sizeof(segment));
            if (!extend(b, segment.p_offset, segment.p_filesz, &end))
                return 0;
        }
    }
    return end;
}

static uint64_t elf_size(const struct bytes *b)
{
    Elf64_Ehdr header;
    return read_at(b, 0, &header, sizeof(header)) && header.e_machine == EM_CUDA ? elf_extent(b) : 0;
}

/* Any text that says something: whether it is PTX is the compiler's to say, with a message. */
static uint64_t text_size(const struct bytes *b)
{
    bool says_something = false;
    for (uint64_t i = 0; i < b->available; i++) {
        unsigned char c = b->data[i];
        if (c == 0)
            return says_something ? i + 1 : 0;
        bool blank = c == ' ' || (c >= '\t' && c <= '\r');
        if ((c < ' ' && !blank) || c == 0x7f)
            return 0;
        says_something |= !blank;
    }
    return 0;
}

static enum rg_cuda_image_kind identify(const struct bytes *b, struct rg_cuda_image *image)
{
    memset(image, 0, sizeof(*image));
    enum rg_cuda_image_kind kind;
    uint64_t size;
    if (starts_with(b, &wrapper_magic, sizeof(wrapper_magic))) {
        return RG_CUDA_IMAGE_UNKNOWN; /* its magic could be text, too */
    } else if (starts_with(b, &container_magic, sizeof(container_magic))) {
        kind = RG_CUDA_IMAGE_CONTAINER;
        size = container_size(b);
    } else if (starts_with(b, ELFMAG, SELFMAG)) {
        kind = RG_CUDA_IMAGE_ELF;
        size = elf_size(b);
    } else {
        kind = RG_CUDA_IMAGE_PTX;
        size = text_size(b);
    }
    if (!size)
        return RG_CUDA_IMAGE_UNKNOWN;
    image->data = b->data;
    image->size = size;
    return image->kind = kind;
}

/* The same for memory of the application's, whose wrappers are followed. */
static enum rg_cuda_image_kind identify_own(const struct bytes *b, struct rg_cuda_image *image)
{
    memset(image, 0, sizeof(*image));
    if (!b->data)
        return RG_CUDA_IMAGE_UNKNOWN;
    if (!starts_with(b, &wrapper_magic, sizeof(wrapper_magic)))
        return identify(b, image);

    struct rg_cuda_wrapper wrapper;
    if (!read_at(b, 0, &wrapper, sizeof(wrapper)) || (wrapper.version != 1 && wrapper.version != 2) ||
        !wrapper.container)
        return RG_CUDA_IMAGE_UNKNOWN;
    const struct bytes container = {wrapper.container, RG_IMAGE_MAX};
    if (identify(&container, image) == RG_CUDA_IMAGE_UNKNOWN)
        return RG_CUDA_IMAGE_UNKNOWN;
    image->wrapper_version = wrapper.version;
    image->prelinked = wrapper.version == 2 ? wrapper.prelinked : NULL;
    return image->kind;
}

enum rg_cuda_image_kind rg_cuda_image_identify(const void *pointer, struct rg_cuda_image *image)
{
    const struct bytes b = {pointer, RG_IMAGE_MAX};
    return identify_own(&b, image);
}

enum rg_cuda_image_kind rg_cuda_image_identify_sized(const void *pointer, uint64_t size,
                                                     struct rg_cuda_image *image)
{
    const struct bytes b = {pointer, size < RG_IMAGE_MAX ? size : RG_IMAGE_MAX};
    return identify_own(&b, image);
}

enum rg_cuda_image_kind rg_cuda_image_identify_bytes(const void *bytes, uint64_t size,
                                                     struct rg_cuda_image *image)
{
    struct bytes b = {bytes, size < RG_IMAGE_MAX ? size : RG_IMAGE_MAX};
    memset(image, 0, sizeof(*image));
    return bytes ? identify(&b, image) : RG_CUDA_IMAGE_UNKNOWN;
}

bool rg_cuda_image_leads_outside(const void *bytes, uint64_t size)
{
    static const uint32_t pointers[] = {RG_CUDA_WRAPPER_MAGIC, OLD_WRAPPER_MAGIC};
    const struct bytes b = {bytes, size};
    for (size_t i = 0; i < sizeof(pointers) / sizeof(*pointers); i++)
        if (starts_with(&b, &pointers[i], sizeof(pointers[i])))
            return true;
    if (starts_with(&b, ELFMAG, SELFMAG))
        return !elf_extent(&b);
    return starts_with(&b, &container_magic, sizeof(container_magic)) && !container_size(&b);
}

/* What came before wrappers: a magic, a version and another magic, as wide as pointers, and then pointers. */
static bool holds_old_wrapper(const struct bytes *b)
{
    const uint64_t magic = OLD_WRAPPER_MAGIC;
    const unsigned char *at = b->data;
    while ((at = memmem(at, b->available - (uint64_t)(at - b->data), &magic, sizeof(magic))) != NULL) {
        uint64_t version;
        if (read_at(b, (uint64_t)(at - b->data) + sizeof(magic), &version, sizeof(version)) && version < 256)
            return true;
        at++;
    }
    return false;
}

bool rg_cuda_image_holds_address(const void *bytes, uint64_t size)
{
    const struct bytes b = {bytes, size};
    const unsigned char *at = bytes;
    if (holds_old_wrapper(&b))
        return true;
    while ((at = memmem(at, size - (uint64_t)(at - b.data), &wrapper_magic, sizeof(wrapper_magic))) != NULL) {
        struct rg_cuda_wrapper wrapper;
        if (read_at(&b, (uint64_t)(at - b.data), &wrapper, sizeof(wrapper)) &&
            (wrapper.version == 1 || wrapper.version == 2) && (wrapper.container || wrapper.prelinked))
            return true;
        at++;
    }
    return false;
}
