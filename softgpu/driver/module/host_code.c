/*
 * host_code.c - objects and libraries of host code that a linker is given, for the device code that nvcc has put into them.
 *
 * An object has its fat binaries in a section, one behind the other. A library is an archive of objects, and all of them are taken:
 * none is looked for by what it defines. What is none of these, and what has no fat binary, is refused.
 *
 * Behind a server the bytes are the client's: every offset and size is checked, and no more is looked at than there is. Any thread.
 */
#include <ar.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda/fatbin/elf_sections.h"
#include "common/cuda/image.h"
#include "softgpu/driver/module/module.h"

#define STEP 8u /* fat binaries begin at multiples of it */

/* The fat binaries of a section; what lies between them is padding. */
static CUresult add_section(struct sg_sources *sources, const unsigned char *data, uint64_t size,
                            struct sg_text *log)
{
    const uint32_t magic = RG_CUDA_CONTAINER_MAGIC;
    for (uint64_t at = 0; at < size && size - at >= sizeof magic;) {
        struct rg_cuda_image image = {.size = 1};
        if (memcmp(data + at, &magic, sizeof magic) == 0 &&
            rg_cuda_image_identify_bytes(data + at, size - at, &image) == RG_CUDA_IMAGE_CONTAINER)
            RG_TRY(sg_sources_add_found(sources, &image, log));
        at += image.size > STEP ? (image.size + STEP - 1) / STEP * STEP : STEP;
    }
    return CUDA_SUCCESS;
}

/* Where relocatable device code is, and where that is which is complete. */
static bool has_device_code(const char *name)
{
    return name != NULL && (strcmp(name, "__nv_relfatbin") == 0 || strcmp(name, ".nv_fatbin") == 0);
}

static CUresult add_object(struct sg_sources *sources, const unsigned char *data, uint64_t size,
                           struct sg_text *log)
{
    struct rg_elf elf;
    struct rg_look look = {.left = size};
    Elf64_Shdr section;
    if (!rg_elf_open(&elf, data, size) || memcmp(elf.header.e_ident, ELFMAG, SELFMAG) != 0 ||
        elf.header.e_ident[EI_CLASS] != ELFCLASS64)
        return CUDA_SUCCESS; /* such as a library's list of symbols */
    for (uint64_t i = 0; i < elf.header.e_shnum; i++)
        if (rg_elf_section(&elf, i, &section) && section.sh_type == SHT_PROGBITS &&
            has_device_code(rg_elf_name(&elf, elf.header.e_shstrndx, section.sh_name, &look)) &&
            rg_look_at(&look, section.sh_size))
            RG_TRY(add_section(sources, data + section.sh_offset, section.sh_size, log));
    return CUDA_SUCCESS;
}

static CUresult add_library(struct sg_sources *sources, const unsigned char *data, uint64_t size,
                            struct sg_text *log)
{
    struct ar_hdr header;
    for (uint64_t at = SARMAG; at < size && size - at >= sizeof header;) {
        char digits[sizeof header.ar_size + 1] = "";
        memcpy(&header, data + at, sizeof header);
        memcpy(digits, header.ar_size, sizeof header.ar_size);
        const uint64_t length = strtoull(digits, NULL, 10);
        at += sizeof header;
        if (memcmp(header.ar_fmag, ARFMAG, sizeof header.ar_fmag) != 0 || length > size - at) {
            sg_log_say(log, "the library is damaged");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        RG_TRY(add_object(sources, data + at, length, log));
        at += length + length % 2;
    }
    return CUDA_SUCCESS;
}

/* What had been added when the rest was found to be wrong. */
static void take_back(struct sg_sources *sources, size_t n)
{
    while (sources->n > n) {
        const struct sg_source *last = &sources->at[--sources->n];
        sources->bytes -= last->size;
        free((char *)(uintptr_t)last->ptx);
    }
}

CUresult sg_sources_add_host_code(struct sg_sources *sources, const void *data, size_t size,
                                  struct sg_text *log)
{
    const size_t before = sources->n;
    const bool library = size >= SARMAG && memcmp(data, ARMAG, SARMAG) == 0;
    const CUresult result = (library ? add_library : add_object)(sources, data, size, log);
    if (result != CUDA_SUCCESS) {
        take_back(sources, before);
        return result;
    }
    if (sources->n > before)
        return CUDA_SUCCESS;
    sg_log_say(log,
               "no device code: of objects and libraries, those that nvcc made with PTX can be linked here");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}
