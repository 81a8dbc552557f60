/* parameters.c - layouts of kernels' parameters: in PTX, in cubins and fat binaries by nvcc, and in what is broken. */
#include "common/cuda/fatbin/parameters.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    char text[4096];
    size_t length;
};

static void add(struct seen *seen, const char *format, unsigned a, unsigned b)
{
    seen->length +=
        (size_t)snprintf(seen->text + seen->length, sizeof seen->text - seen->length, format, a, b);
    cr_assert(seen->length < sizeof seen->text);
}

/* "name offset+size offset+size; " */
static void note(void *user, const struct rg_kernel_layout *layout)
{
    struct seen *seen = user;
    cr_assert(seen->length + layout->length + 3 < sizeof seen->text);
    memcpy(seen->text + seen->length, layout->name, layout->length);
    seen->length += layout->length;
    for (uint32_t i = 0; i < layout->n; i++)
        add(seen, " %u+%u", layout->parameters[i].offset, layout->parameters[i].size);
    add(seen, "; ", 0, 0);
}

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

static void expect(const char *ptx, const char *layouts)
{
    struct seen seen = {.length = 0};
    cr_expect(rg_image_parameters(ptx, strlen(ptx) + 1, 90, note, &seen));
    cr_expect_str_eq(seen.text, layouts, "of %s: %s", ptx, seen.text);
}

Test(parameters, declarations)
{
    expect(HEAD ".visible .entry none() { ret; } .entry bare { ret; }", "none; bare; ");
    expect(
        HEAD
        ".visible .entry k(.param .u64 p, .param .u8 c, .param .align 8 .b8 s[24], .param .f32 f) { ret; }",
        "k 0+8 8+1 16+24 40+4; ");
    expect(HEAD ".weak .entry $k_1(.param .align 16 .b8 v[32],\n// .param .u64 no\n.param .b16 h)\n"
                ".maxntid 32, 1, 1\n{ .reg .b32 %r<2>; { .param .b32 inner; } ret; }",
           "$k_1 0+32 32+2; ");
    expect(HEAD ".entry p(.param .u8 c, .param .u64 .ptr .global .align 256 q, .param .u8 d) { ret; }",
           "p 0+1 8+8 16+1; ");
    expect(HEAD ".entry v(.param .u8 c, .param .v4 .f32 f, .param .b128 w) { ret; }", "v 0+1 16+16 32+16; ");
    expect(HEAD ".entry m(.param .b32 a[2][3]) { ret; }", "m 0+24; ");
    expect(HEAD
           ".func (.param .b32 r) f(.param .b32 x) { ret; } .entry k(.param .b32 x) { call (r), f, (x); }",
           "k 0+4; ");
}

Test(parameters, what_is_not_whole_is_left_out)
{
    expect(HEAD ".entry a(.param .u64 p, ) { ret; } .entry b(.param .u32 x) { ret; }", "b 0+4; ");
    expect(HEAD ".entry a(.param .b8 s[]) { ret; }", "");
    expect(HEAD ".entry a(.param .b8 s[40000]) { ret; }", "");
    expect(HEAD ".entry a(.param .b64 s[4000], .param .b64 t[1000]) { ret; }", "");
    expect(HEAD ".entry a(.param .b8 s[16777216][16777216][65536]) { ret; }", "");
    expect(HEAD ".entry a(.param .align 3 .b8 s[4]) { ret; }", "");
    expect(HEAD ".entry a(.param .unknown s) { ret; }", "");
    expect(HEAD ".entry a(.param .u64 p", "");
    expect(HEAD ".entry", "");
}

/* --- cubins ------------------------------------------------------------------------------------------------------- */

#define SECTION ".nv.info.k"

/* An ELF file with one section of attributes of the kernel k. */
static unsigned char *make_cubin(const void *info, size_t info_size, size_t *size)
{
    const size_t names = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Shdr), at = names + 16;
    *size = at + info_size;
    unsigned char *data = calloc(1, *size);
    Elf64_Ehdr *header = (void *)data;
    Elf64_Shdr *section = (void *)(header + 1);
    memcpy(header->e_ident, ELFMAG, SELFMAG);
    header->e_ident[EI_CLASS] = ELFCLASS64;
    header->e_ident[EI_DATA] = ELFDATA2LSB;
    header->e_machine = 190;
    header->e_shoff = sizeof *header;
    header->e_shentsize = sizeof *section;
    header->e_shnum = 3;
    header->e_shstrndx = 1;
    memcpy(data + names, SECTION, sizeof SECTION);
    memcpy(data + at, info, info_size);
    section[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = names, .sh_size = 16};
    section[2] = (Elf64_Shdr){.sh_type = 0x70000000, .sh_offset = at, .sh_size = info_size};
    return data;
}

static void expect_info(const void *info, size_t info_size, const char *layouts)
{
    struct seen seen = {.length = 0};
    size_t size;
    unsigned char *data = make_cubin(info, info_size, &size);
    cr_expect(rg_image_parameters(data, size, 90, note, &seen));
    cr_expect_str_eq(seen.text, layouts, "%s instead of %s", seen.text, layouts);
    free(data);
}

#define PARAMETER(ordinal, offset, size)                                                                     \
    4, 0x17, 12, 0, 0, 0, 0, 0, ordinal, 0, offset, 0, 0, 0xf0, 1 + (size << 2), 0
#define LARGE(ordinal, offset, size) 4, 0x45, 12, 0, 0, 0, 0, 0, ordinal, 0, offset, 0, size, 0, 0, 0
#define INFO(...)                    (const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__})

Test(parameters, sections_of_cubins)
{
    expect_info(INFO(PARAMETER(1, 8, 4), PARAMETER(0, 0, 8)), "k 0+8 8+4; ");
    expect_info(INFO(3, 0x19, 88, 0, LARGE(0, 0, 8), 2, 0x4a, 0, 0), "k 0+8; ");
    expect_info(INFO(3, 0x19, 0, 0), "k; ");
    expect_info("", 0, "k; ");
    expect_info(INFO(PARAMETER(1, 8, 4)), "");                    /* the first is missing */
    expect_info(INFO(PARAMETER(0, 0, 0)), "");                    /* no bytes */
    expect_info(INFO(PARAMETER(0, 0, 8), 4, 0x17, 12, 0, 1), ""); /* cut off */
    expect_info(INFO(4, 0x17, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0), ""); /* too short */
    expect_info(INFO(4, 0x17, 12, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 4, 0), ""); /* ordinal 65535 */
    expect_info(INFO(4, 0x45, 12, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0), "");
}

#ifdef HAVE_NVCC
static unsigned char *read_file(const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", IMAGES, name);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    unsigned char *data = malloc(1 << 20);
    *size = fread(data, 1, (1 << 20) - 1, file);
    data[(*size)++] = '\0';
    fclose(file);
    return data;
}

static const char *const by_nvcc[] = {"nothing; ", "kinds 0+8 8+1 16+24 48+32 80+2 84+4; ",
                                      "beyond_4k 0+8 8+5000 5008+4; ", "_Z7of_typeIdEvPT_S0_ 0+8 8+8; "};

static const char *const files[] = {"parameters.ptx", "parameters_75.cubin", "parameters_120.cubin",
                                    "parameters.fatbin", "parameters_lz4.fatbin"};

Test(parameters, of_nvcc)
{
    static const uint32_t capabilities[] = {75, 90, 120, 130,
                                            50}; /* by machine code, by PTX, by what there is */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (size_t c = 0; c < sizeof capabilities / sizeof *capabilities; c++) {
            struct seen seen = {.length = 0};
            size_t size;
            unsigned char *data = read_file(files[i], &size);
            cr_expect(rg_image_parameters(data, i ? size - 1 : size, capabilities[c], note, &seen));
            for (size_t k = 0; k < sizeof by_nvcc / sizeof *by_nvcc; k++)
                cr_expect(strstr(seen.text, by_nvcc[k]), "%s for %u: %s", files[i], capabilities[c],
                          seen.text);
            free(data);
        }
}

/* Whatever is broken, nothing outside of it is read; sanitizers see if not. */
Test(parameters, of_broken_files)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t size;
        unsigned char *data = read_file(files[i], &size);
        for (size_t cut = 0; cut < size; cut += 1 + cut / 9) {
            struct seen seen = {.length = 0};
            unsigned char *copy = malloc(cut + 1);
            memcpy(copy, data, cut);
            for (size_t at = cut; at > 64; at -= 1 + at / 3)
                copy[at - 1] ^= 0x41;
            (void)rg_image_parameters(copy, cut, 90, note, &seen);
            free(copy);
        }
        free(data);
    }
}
#endif
