/* fatbin.c - fat binaries made by hand and by nvcc: entries, decompression, choice of PTX, damage. */
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/extract.h"

#include "common/cuda/image.h"

#include <criterion/criterion.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* --- containers by hand
 * -------------------------------------------------------------------------------------------- */

struct builder {
    unsigned char bytes[65536];
    size_t size;
};

static void put(unsigned char *at, uint64_t value, size_t size)
{
    memcpy(at, &value, size);
}

static void begin(struct builder *b)
{
    memset(b, 0, sizeof(*b));
    put(b->bytes, RG_CUDA_CONTAINER_MAGIC, 4);
    put(b->bytes + 4, 1, 2);
    put(b->bytes + 6, 16, 2);
    b->size = 16;
}

/** Adds an entry with a name and options; returns where it begins. */
static unsigned char *add(struct builder *b, uint32_t kind, uint32_t architecture, uint64_t flags,
                          const void *payload, size_t payload_size, size_t size)
{
    unsigned char *entry = b->bytes + b->size;
    size_t padded = (payload_size + 7) & ~(size_t)7;
    bool compressed = flags & (RG_FATBIN_FLAG_LZ4 | RG_FATBIN_FLAG_ZSTD);
    put(entry, kind, 2);
    put(entry + 0x02, 0x0101, 2);
    put(entry + 0x04, 0x68, 4);
    put(entry + 0x08, padded, 8);
    put(entry + 0x10, compressed ? payload_size : 0, 4);
    put(entry + 0x14, 0x40, 4);
    put(entry + 0x18, 4, 2);
    put(entry + 0x1a, 8, 2);
    put(entry + 0x1c, architecture, 4);
    put(entry + 0x20, 0x60, 4);
    put(entry + 0x24, 5, 4);
    put(entry + 0x28, flags | 0x11, 8);
    put(entry + 0x38, compressed ? size : 0, 8);
    put(entry + 0x40, 0x48, 4);
    put(entry + 0x44, 9, 4);
    memcpy(entry + 0x48, "--options", 9);
    memcpy(entry + 0x60, "name!", 5);
    memcpy(entry + 0x68, payload, payload_size);
    b->size += 0x68 + padded;
    put(b->bytes + 8, b->size - 16, 8);
    return entry;
}

static uint32_t chosen(const struct builder *b, uint32_t capability)
{
    struct rg_fatbin_entry entry;
    enum rg_fatbin_status status = rg_fatbin_select(b->bytes, b->size, capability, &entry);
    cr_assert(status == RG_FATBIN_OK || status == RG_FATBIN_NO_PTX);
    return status == RG_FATBIN_OK ? entry.architecture : 0;
}

Test(fatbin, entries)
{
    static struct builder b;
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    begin(&b);
    cr_assert_eq(rg_fatbin_open(&fatbin, b.bytes, b.size), RG_FATBIN_OK);
    cr_expect_eq(rg_fatbin_next(&fatbin, &entry), RG_FATBIN_END, "an empty container is valid");

    add(&b, RG_FATBIN_PTX, 75, RG_FATBIN_FLAG_DEBUG, "\n\n.version", 10, 0);
    add(&b, RG_FATBIN_ELF, 90, 0, "12345678", 8, 0);
    cr_assert_eq(rg_fatbin_open(&fatbin, b.bytes, b.size), RG_FATBIN_OK);
    cr_assert_eq(rg_fatbin_next(&fatbin, &entry), RG_FATBIN_OK);
    cr_expect_eq(entry.kind, RG_FATBIN_PTX);
    cr_expect_eq(entry.architecture, 75);
    cr_expect(entry.ptx_major == 8 && entry.ptx_minor == 4);
    cr_expect_eq(entry.flags, 0x13);
    cr_expect(entry.name_size == 5 && memcmp(entry.name, "name!", 5) == 0);
    cr_expect(entry.options_size == 9 && memcmp(entry.options, "--options", 9) == 0);
    char *text = NULL;
    size_t size = 0;
    cr_assert_eq(rg_fatbin_extract(&entry, &text, &size), RG_FATBIN_OK);
    cr_expect_str_eq(text, "\n\n.version");
    cr_expect_eq(size, 10, "the padding of PTX is not counted");
    free(text);
    cr_assert_eq(rg_fatbin_next(&fatbin, &entry), RG_FATBIN_OK);
    cr_expect_eq(entry.kind, RG_FATBIN_ELF);
    cr_assert_eq(rg_fatbin_extract(&entry, &text, &size), RG_FATBIN_OK);
    cr_expect(size == 8 && memcmp(text, "12345678", 8) == 0);
    free(text);
    cr_expect_eq(rg_fatbin_next(&fatbin, &entry), RG_FATBIN_END);
    cr_expect_eq(rg_fatbin_next(&fatbin, &entry), RG_FATBIN_END);
}

Test(fatbin, choice)
{
    static struct builder b;
    begin(&b);
    cr_expect_eq(chosen(&b, 120), 0);
    add(&b, RG_FATBIN_ELF, 80, 0, "elf", 3, 0);
    cr_expect_eq(chosen(&b, 120), 0, "a cubin is not PTX");
    add(&b, RG_FATBIN_PTX, 90, 0, "p", 1, 0);
    add(&b, RG_FATBIN_PTX, 75, 0, "p", 1, 0);
    add(&b, RG_FATBIN_PTX, 100, RG_FATBIN_FLAG_ARCH, "p", 1, 0);
    add(&b, RG_FATBIN_PTX, 102, RG_FATBIN_FLAG_FAMILY, "p", 1, 0);
    cr_expect_eq(chosen(&b, 70), 0, "all PTX is for later devices");
    cr_expect_eq(chosen(&b, 75), 75);
    cr_expect_eq(chosen(&b, 89), 75);
    cr_expect_eq(chosen(&b, 90), 90);
    cr_expect_eq(chosen(&b, 100), 100, "100a is for exactly 100");
    cr_expect_eq(chosen(&b, 101), 90);
    cr_expect_eq(chosen(&b, 102), 102);
    cr_expect_eq(chosen(&b, 103), 102, "102f is for its family, from 102 on");
    cr_expect_eq(chosen(&b, 110), 90);
    cr_expect_eq(chosen(&b, 120), 90, "… and for no other");

    struct rg_fatbin_entry entry;
    const unsigned char *first = add(&b, RG_FATBIN_PTX, 100, 0, "portable", 8, 0);
    add(&b, RG_FATBIN_PTX, 100, 0, "again", 5, 0);
    cr_assert_eq(rg_fatbin_select(b.bytes, b.size, 100, &entry), RG_FATBIN_OK);
    cr_expect_eq(entry.payload, first + 0x68, "of one architecture the portable, then the first");
}

/* --- compression
 * ------------------------------------------------------------------------------------------------------ */

static char *sample_text(size_t size)
{
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = "add.s32 %r1, %r2;\n"[(i + i / 900) % 18];
    return text;
}

static enum rg_fatbin_status extract_only(const struct builder *b, char **text, size_t *size)
{
    struct rg_fatbin_entry entry;
    enum rg_fatbin_status status = rg_fatbin_select(b->bytes, b->size, 90, &entry);
    return status == RG_FATBIN_OK ? rg_fatbin_extract(&entry, text, size) : status;
}

Test(fatbin, compressed)
{
    static struct builder b;
    static char packed[32768];
    const size_t size = 20000;
    char *text = sample_text(size), *out;
    size_t out_size;
    for (int zstd = 0; zstd < 2; zstd++) {
        uint64_t flag = zstd ? RG_FATBIN_FLAG_ZSTD : RG_FATBIN_FLAG_LZ4;
        size_t packed_size = zstd ? ZSTD_compress(packed, sizeof(packed), text, size, 3)
                                  : (size_t)LZ4_compress_default(text, packed, (int)size, sizeof(packed));
        begin(&b);
        unsigned char *entry = add(&b, RG_FATBIN_PTX, 75, flag, packed, packed_size, size);
        out = NULL;
        cr_assert_eq(extract_only(&b, &out, &out_size), RG_FATBIN_OK);
        cr_expect(out_size == size && memcmp(out, text, size) == 0);
        free(out);

        /* sizes that lie */
        put(entry + 0x38, size - 1, 8);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_INVALID);
        put(entry + 0x38, size + 1, 8);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_INVALID);
        put(entry + 0x38, RG_FATBIN_TEXT_MAX + 1, 8);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_LIMIT);
        put(entry + 0x38, UINT64_MAX, 8);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_LIMIT);
        put(entry + 0x38, 0, 8);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_INVALID);
        put(entry + 0x38, size, 8);
        put(entry + 0x10, packed_size - 1, 4);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_INVALID);
        put(entry + 0x10, packed_size + 8, 4);
        cr_expect_eq(extract_only(&b, &out, &out_size), RG_FATBIN_INVALID, "more than the payload");
    }
    free(text);
}

/* --- damage
 * ---------------------------------------------------------------------------------------------------------------
 */

Test(fatbin, offsets_that_lie)
{
    static struct builder b;
    struct rg_fatbin_entry entry;
    static const struct {
        size_t at, size;
        uint64_t value;
    } lies[] = {
        {0x04, 4, 0},        {0x04, 4, 63}, {0x04, 4, UINT32_MAX},        {0x08, 8, UINT64_MAX},
        {0x08, 8, 1u << 20}, {0x08, 8, 17}, {0x08, 8, UINT64_MAX - 0x60},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        begin(&b);
        put(add(&b, RG_FATBIN_PTX, 75, 0, "0123456789abcdef", 16, 0) + lies[i].at, lies[i].value,
            lies[i].size);
        cr_expect_eq(rg_fatbin_select(b.bytes, b.size, 90, &entry), RG_FATBIN_INVALID, "lie %zu", i);
    }
    /* names and options outside of the header are not there */
    begin(&b);
    unsigned char *bad = add(&b, RG_FATBIN_PTX, 75, 0, "0123456789abcdef", 16, 0);
    put(bad + 0x24, 9, 4);
    put(bad + 0x14, 0x68 - 7, 4);
    cr_assert_eq(rg_fatbin_select(b.bytes, b.size, 90, &entry), RG_FATBIN_OK);
    cr_expect(entry.name == NULL && entry.name_size == 0);
    cr_expect(entry.options == NULL && entry.options_size == 0);
    struct rg_fatbin fatbin;
    cr_expect_eq(rg_fatbin_open(&fatbin, "not a container, is it", 20), RG_FATBIN_INVALID);
}

static uint64_t random_state = 88172645463325252u;

static uint32_t random_number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/** Damages copies of an image; whatever is found must lie inside and either extract or be refused. */
static void damage(const unsigned char *image, size_t size, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        size_t part = round % 3 ? size : random_number() % size;
        unsigned char *copy = malloc(part + 1); /* exact, so that the address sanitizer sees reads beyond */
        memcpy(copy, image, part);
        for (uint32_t n = random_number() % 6; n && part; n--)
            copy[random_number() % (round % 2 && part > 128 ? 128 : part)] ^=
                (unsigned char)(1u << random_number() % 8);
        unsigned char *exact = malloc(part ? part : 1);
        memcpy(exact, copy, part);
        free(copy);

        struct rg_fatbin fatbin;
        struct rg_fatbin_entry entry;
        if (rg_fatbin_open(&fatbin, exact, part) == RG_FATBIN_OK) {
            while (rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK) {
                cr_assert(entry.payload >= exact && entry.payload + entry.stored_size <= exact + part);
                char *text;
                size_t text_size;
                if (entry.size < 1u << 24 && rg_fatbin_extract(&entry, &text, &text_size) == RG_FATBIN_OK)
                    free(text);
            }
        }
        free(exact);
    }
}

Test(fatbin, damaged)
{
    static struct builder b;
    static char packed[32768];
    char *text = sample_text(5000);
    begin(&b);
    add(&b, RG_FATBIN_PTX, 75, RG_FATBIN_FLAG_LZ4, packed,
        (size_t)LZ4_compress_default(text, packed, 5000, sizeof(packed)), 5000);
    add(&b, RG_FATBIN_ELF, 80, 0, text, 999, 0);
    add(&b, RG_FATBIN_PTX, 90, RG_FATBIN_FLAG_ZSTD, packed,
        ZSTD_compress(packed, sizeof(packed), text, 5000, 3), 5000);
    free(text);
    damage(b.bytes, b.size, 20000);
}

/* --- what nvcc makes
 * -------------------------------------------------------------------------------------------------- */

#ifdef HAVE_NVCC

static unsigned char *read_file(const char *name, size_t *size)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", IMAGES, name);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    unsigned char *data = malloc(1 << 20);
    *size = fread(data, 1, (1 << 20) - 1, file);
    data[*size] = '\0';
    fclose(file);
    return data;
}

Test(fatbin, from_nvcc)
{
    static const char *const modes[] = {"none", "speed", "size", "default"};
    for (size_t m = 0; m < 4; m++) {
        char name[32];
        size_t size, text_size;
        snprintf(name, sizeof(name), "%s.fatbin", modes[m]);
        unsigned char *data = read_file(name, &size);
        struct rg_cuda_image image;
        cr_assert_eq(rg_cuda_image_identify(data, &image), RG_CUDA_IMAGE_CONTAINER);
        cr_expect_eq(image.size, size);

        struct rg_fatbin fatbin;
        struct rg_fatbin_entry entry;
        unsigned n_ptx = 0, n_elf = 0, n_compressed = 0;
        cr_assert_eq(rg_fatbin_open(&fatbin, data, size), RG_FATBIN_OK);
        enum rg_fatbin_status status;
        while ((status = rg_fatbin_next(&fatbin, &entry)) == RG_FATBIN_OK) {
            char *contents, target[32];
            cr_assert_eq(rg_fatbin_extract(&entry, &contents, &text_size), RG_FATBIN_OK);
            n_compressed += (entry.flags & (RG_FATBIN_FLAG_LZ4 | RG_FATBIN_FLAG_ZSTD)) != 0;
            if (entry.kind == RG_FATBIN_ELF) {
                n_elf++;
                cr_expect_eq(rg_cuda_image_identify_bytes(contents, text_size, &image), RG_CUDA_IMAGE_ELF);
            } else {
                n_ptx++;
                snprintf(target, sizeof(target), ".target sm_%u%s", entry.architecture,
                         entry.flags & RG_FATBIN_FLAG_ARCH     ? "a"
                         : entry.flags & RG_FATBIN_FLAG_FAMILY ? "f"
                                                               : "\n");
                cr_expect_not_null(strstr(contents, target), "%s: %s", name, target);
                cr_expect_not_null(strstr(contents, "add_offset"));
                cr_expect_eq(rg_cuda_image_identify(contents, &image), RG_CUDA_IMAGE_PTX);
                cr_expect_eq(image.size, text_size + 1);
            }
            free(contents);
        }
        cr_expect_eq(status, RG_FATBIN_END);
        cr_expect(n_ptx == 4 && n_elf == 1, "%s: %u PTX, %u ELF", name, n_ptx, n_elf);
        cr_expect(m == 0 ? n_compressed == 0 : n_compressed >= 4, "%s: %u compressed", name, n_compressed);

        cr_assert_eq(rg_fatbin_select(data, size, 120, &entry), RG_FATBIN_OK);
        cr_expect_eq(entry.architecture, 120);
        cr_assert_eq(rg_fatbin_select(data, size, 90, &entry), RG_FATBIN_OK);
        cr_expect(entry.architecture == 90 && (entry.flags & RG_FATBIN_FLAG_ARCH));
        cr_assert_eq(rg_fatbin_select(data, size, 89, &entry), RG_FATBIN_OK);
        cr_expect_eq(entry.architecture, 75);
        cr_expect_eq(rg_fatbin_select(data, size, 70, &entry), RG_FATBIN_NO_PTX);
        damage(data, size, 2000);
        free(data);
    }
}

Test(fatbin, other_images_from_nvcc)
{
    struct rg_cuda_image image;
    size_t size;
    unsigned char *data = read_file("kernel.cubin", &size);
    cr_expect_eq(rg_cuda_image_identify(data, &image), RG_CUDA_IMAGE_ELF);
    cr_expect_eq(image.size, size);
    cr_expect_eq(rg_cuda_image_identify_bytes(data, size, &image), RG_CUDA_IMAGE_ELF);
    cr_expect_eq(rg_cuda_image_identify_bytes(data, size - 1, &image), RG_CUDA_IMAGE_UNKNOWN);
    free(data);
    data = read_file("kernel.ptx", &size);
    cr_expect_eq(rg_cuda_image_identify(data, &image), RG_CUDA_IMAGE_PTX);
    cr_expect_eq(image.size, size + 1);
    cr_expect_eq(rg_cuda_image_identify_bytes(data, size, &image), RG_CUDA_IMAGE_UNKNOWN, "without its NUL");
    free(data);
}

#endif
