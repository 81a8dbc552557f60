/*
 * cubin.c - see cubin.h.
 *
 * The shape is written as PTX that the rest of the driver takes: kernels that return at once, variables without values. The
 * architecture stands in e_flags: in the second byte from ABI version 8 on (ptxas 13), in the first before.
 */
#include "softgpu/driver/module/cubin.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/cuda/fatbin/extract.h"
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/parameters.h"
#include "common/cuda/fatbin/variables.h"

#define ABI_WITH_LONGER_FLAGS 8
#define ALIGN_MOST            16u /* of parameters */
#define VARIABLE_ALIGN        16  /* at least as much as any variable's that nvcc aligns by itself */

static unsigned architecture_of(const void *elf, uint64_t size)
{
    Elf64_Ehdr header;
    if (size < sizeof header)
        return 0;
    memcpy(&header, elf, sizeof header);
    return header.e_ident[EI_ABIVERSION] >= ABI_WITH_LONGER_FLAGS ? header.e_flags >> 8 & 0xff
                                                                  : header.e_flags & 0xff;
}

/* Machine code runs on devices of its major version that are as new as it is. */
static bool fits(unsigned architecture)
{
    return architecture / 10 == sg_state.capability / 10 && architecture <= sg_state.capability;
}

static void write_variable(void *file, const struct rg_image_variable *variable)
{
    if (variable->bytes == RG_VARIABLE_UNSIZED || variable->bytes == 0 || *variable->name == '.')
        return;
    fprintf(file, ".visible .global %s.align %d .b8 %.*s[%llu];\n",
            variable->managed ? ".attribute(.managed) " : "", VARIABLE_ALIGN, (int)variable->length,
            variable->name, (unsigned long long)variable->bytes);
}

/* Each parameter is aligned to its offset, so that it lies there again. */
static void write_kernel(void *file, const struct rg_kernel_layout *kernel)
{
    fprintf(file, ".visible .entry %.*s(", (int)kernel->length, kernel->name);
    for (uint32_t i = 0; i < kernel->n; i++) {
        const uint32_t offset = kernel->parameters[i].offset, align = offset & -offset;
        fprintf(file, "%s\n.param .align %u .b8 p%u[%u]", i ? "," : "",
                align && align < ALIGN_MOST ? align : ALIGN_MOST, i, kernel->parameters[i].size);
    }
    fputs(")\n{ ret; }\n", file);
}

CUresult sg_cubin_add(struct sg_sources *sources, const void *elf, uint64_t size, struct sg_text *log)
{
    const unsigned architecture = architecture_of(elf, size);
    char *text = NULL;
    size_t length = 0;
    if (!fits(architecture)) {
        sg_log_say(log, "the image is machine code for compute capability %u.%u, the device has %u.%u",
                   architecture / 10, architecture % 10, sg_state.capability / 10, sg_state.capability % 10);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    FILE *file = open_memstream(&text, &length);
    if (file == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fprintf(file, ".version 7.8\n.target sm_75\n.address_size 64\n");
    const bool read = rg_image_variables(elf, size, write_variable, file) &&
                      rg_image_parameters(elf, size, sg_state.capability, write_kernel, file);
    const bool written = !ferror(file);
    if (fclose(file) != 0 || !written || !read) {
        free(text);
        return read ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
    }
    rg_warn("SOFTGPU_BEHAVE: a module of machine code is taken for its shape: launches of its kernels do "
            "nothing");
    const CUresult result = sg_sources_add_text(sources, text, length);
    free(text);
    return result;
}

CUresult sg_cubin_add_of_container(struct sg_sources *sources, const void *data, uint64_t size,
                                   struct sg_text *log)
{
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry, best = {0};
    char *elf = NULL;
    size_t elf_size = 0;
    if (rg_fatbin_open(&fatbin, data, size) != RG_FATBIN_OK)
        return CUDA_ERROR_INVALID_IMAGE;
    while (rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK)
        if (entry.kind == RG_FATBIN_ELF && fits(entry.architecture) && entry.architecture > best.architecture)
            best = entry;
    if (best.architecture == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (rg_fatbin_extract(&best, &elf, &elf_size) != RG_FATBIN_OK)
        return CUDA_ERROR_INVALID_IMAGE;
    const CUresult result = sg_cubin_add(sources, elf, elf_size, log);
    free(elf);
    return result;
}
