/* Carriers of PTX: what is put in comes out, as one image; damaged files give nothing and break nothing. */
#include "common/cuda/ptx_carrier.h"
#include "common/cuda/image.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

static const char first[] = ".version 8.0\n.target sm_75\n.visible .entry a() { ret; }\n";
static const char second[] = ".version 8.0\n.target sm_75\n.visible .entry b() { ret; }\n";

static void expect_text(const void *elf, size_t size, const char *text)
{
    struct rg_ptx_carrier carrier;
    const char *got;
    size_t got_size;
    cr_assert(rg_ptx_carrier_open(&carrier, elf, size));
    cr_assert(rg_ptx_carrier_next(&carrier, &got, &got_size));
    cr_assert(got_size == strlen(text) && memcmp(got, text, got_size) == 0);
    cr_assert_not(rg_ptx_carrier_next(&carrier, &got, &got_size));
}

Test(carrier, is_an_image_of_the_architecture)
{
    for (unsigned architecture = 75; architecture <= 121; architecture++) {
        size_t size;
        struct rg_cuda_image image;
        Elf64_Ehdr header;
        unsigned char *elf = rg_ptx_carrier_make(first, strlen(first), architecture, architecture % 2, &size);
        cr_assert_eq(rg_cuda_image_identify(elf, &image), RG_CUDA_IMAGE_ELF);
        cr_assert_eq(image.size, size, "%llu of %zu", (unsigned long long)image.size, size);
        memcpy(&header, elf, sizeof header);
        cr_assert_eq(header.e_type, architecture % 2 ? ET_REL : ET_EXEC);
        cr_assert_eq(architecture < 100 ? header.e_flags & 0xff : header.e_flags >> 8 & 0xff, architecture);
        expect_text(elf, size, first);
        free(elf);
    }
}

/* Linkers refuse files of a release later than theirs, and the oldest that asks for carriers is that of 12.1. */
Test(carrier, is_of_no_later_release_than_the_linkers)
{
    for (unsigned architecture = 75; architecture < 100; architecture++) {
        size_t size;
        Elf64_Ehdr header;
        unsigned char *elf = rg_ptx_carrier_make(first, strlen(first), architecture, true, &size);
        memcpy(&header, elf, sizeof header);
        cr_assert_leq(header.e_version, 121);
        free(elf);
    }
}

/* As a linker leaves them: the values of two files one after another, aligned. */
Test(carrier, several_texts_of_one_section)
{
    size_t sizes[2];
    unsigned char *elf = rg_ptx_carrier_make(first, strlen(first), 120, true, &sizes[0]);
    unsigned char *other = rg_ptx_carrier_make(second, strlen(second), 120, true, &sizes[1]);
    struct rg_ptx_carrier a, b;
    cr_assert(rg_ptx_carrier_open(&a, elf, sizes[0]) && rg_ptx_carrier_open(&b, other, sizes[1]));
    unsigned char section[1024] = {0};
    const size_t length = (size_t)(a.end - a.at), at = (length + 7) / 8 * 8;
    memcpy(section, a.at, length);
    memcpy(section + at, b.at, (size_t)(b.end - b.at));
    struct rg_ptx_carrier both = {section, section + at + (b.end - b.at)};
    const char *text;
    size_t size;
    cr_assert(rg_ptx_carrier_next(&both, &text, &size));
    cr_assert(size == strlen(first) && memcmp(text, first, size) == 0);
    cr_assert(rg_ptx_carrier_next(&both, &text, &size));
    cr_assert(size == strlen(second) && memcmp(text, second, size) == 0);
    cr_assert_not(rg_ptx_carrier_next(&both, &text, &size));
    free(elf);
    free(other);
}

/* One definition a content, so that a linker takes the same file twice. */
Test(carrier, symbols_are_named_by_content)
{
    size_t a, b, c;
    char *one = rg_ptx_carrier_make(first, strlen(first), 120, true, &a);
    char *same = rg_ptx_carrier_make(first, strlen(first), 120, true, &b);
    char *other = rg_ptx_carrier_make(second, strlen(second), 120, true, &c);
    cr_assert(a == b && memcmp(one, same, a) == 0);
    const char *name = memmem(one, a, "__rg_ptx_", 9);
    cr_assert_not_null(name);
    cr_assert_null(memmem(other, c, name, strlen(name)));
    free(one);
    free(same);
    free(other);
}

Test(carrier, damaged_files)
{
    size_t size;
    unsigned char *elf = rg_ptx_carrier_make(first, strlen(first), 120, true, &size);
    struct rg_ptx_carrier carrier;
    const char *text;
    size_t text_size;
    for (size_t cut = 0; cut < size; cut++) { /* in memory of exactly that size, for the sanitizer */
        unsigned char *part = malloc(cut > 0 ? cut : 1);
        memcpy(part, elf, cut);
        if (rg_ptx_carrier_open(&carrier, part, cut))
            while (rg_ptx_carrier_next(&carrier, &text, &text_size))
                cr_assert((const unsigned char *)text + text_size <= part + cut);
        free(part);
    }
    for (size_t i = 0; i < size; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            elf[i] ^= (unsigned char)(1u << bit);
            if (rg_ptx_carrier_open(&carrier, elf, size))
                while (rg_ptx_carrier_next(&carrier, &text, &text_size))
                    cr_assert((const unsigned char *)text >= elf &&
                              (const unsigned char *)text + text_size <= elf + size);
            elf[i] ^= (unsigned char)(1u << bit);
        }
    }
    expect_text(elf, size, first);
    free(elf);
    cr_assert_not(rg_ptx_carrier_open(&carrier,
                                      "\x7f"
                                      "ELF",
                                      4));
}
