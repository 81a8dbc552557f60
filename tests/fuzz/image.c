/*
 * image.c - device code of any origin: what it is and how long, the entries of fat binaries and their contents, the
 * variables and the layouts of kernels' parameters of ELF files and PTX, the PTX that an ELF file may carry.
 */
#include "common/cuda/image.h"
#include "common/cuda/fatbin/extract.h"
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/parameters.h"
#include "common/cuda/fatbin/variables.h"
#include "common/cuda/ptx_carrier.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdlib.h>
#include <string.h>

static unsigned extracted;

static void on_variable(void *user, const struct rg_image_variable *variable)
{
    (void)user;
    fuzz_read(variable->name, variable->length);
}

static void on_layout(void *user, const struct rg_kernel_layout *layout)
{
    (void)user;
    fuzz_read(layout->name, layout->length);
    CHECK(layout->n <= RG_KERNEL_PARAMETERS_MAX);
    for (uint32_t i = 0; i < layout->n; i++)
        CHECK(layout->parameters[i].size && layout->parameters[i].offset < RG_PARAMS_MAX &&
              layout->parameters[i].size <= RG_PARAMS_MAX - layout->parameters[i].offset);
}

static void entry_of(const struct rg_fatbin_entry *entry)
{
    char *text;
    size_t size;
    fuzz_read(entry->payload, entry->stored_size);
    fuzz_read(entry->name, entry->name_size);
    fuzz_read(entry->options, entry->options_size);
    (void)rg_fatbin_fits(entry, 90);
    /* What says that it is large may be so: a few of these, and no half gigabyte, which would only take time. */
    if (entry->size < 1u << 20 && extracted++ < 16 &&
        rg_fatbin_extract(entry, &text, &size) == RG_FATBIN_OK) {
        fuzz_read(text, size + 1);
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_cuda_image image;
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    struct rg_ptx_carrier carrier;
    const char *text;
    size_t text_size;
    extracted = 0;
    if (rg_cuda_image_identify_bytes(data, size, &image) != RG_CUDA_IMAGE_UNKNOWN) {
        const unsigned char *start = image.data;
        CHECK(start == data && image.size <= size && image.wrapper_version == 0 && !image.prelinked);
        fuzz_read(start, image.size);
        CHECK(!rg_cuda_image_leads_outside(data, size));
    }
    (void)rg_cuda_image_holds_address(data, size);
    if (rg_fatbin_open(&fatbin, data, size) == RG_FATBIN_OK)
        while (rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK)
            entry_of(&entry);
    if (rg_fatbin_select(data, size, 120, &entry) == RG_FATBIN_OK)
        CHECK(entry.kind == RG_FATBIN_PTX);
    (void)rg_image_variables(data, size, on_variable, NULL);
    (void)rg_image_parameters(data, size, 90, on_layout, NULL);
    if (rg_ptx_carrier_open(&carrier, data, size))
        while (rg_ptx_carrier_next(&carrier, &text, &text_size))
            fuzz_read(text, text_size);
    return 0;
}

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 some[16];\n"
    ".const .f32 pi = 0f40490fdb;\n.visible .entry k(.param .u64 p)\n{\nret;\n}\n";

void fuzz_seeds(void)
{
    size_t size;
    fuzz_seed("ptx", ptx, sizeof ptx);
    void *elf = rg_ptx_carrier_make(ptx, sizeof ptx, 120, true, &size);
    CHECK(elf);
    fuzz_seed("carrier", elf, size);
    free(elf);
}
