/* image.c - module images made by hand: what they are, how long, and nothing read outside of them. */
#include "common/cuda/image.h"
#include "common/base/limits.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/** A buffer whose end is the end of readable memory, so that any read past it faults. */
struct guarded {
    unsigned char *map, *data;
    size_t size, map_size;
};

static struct guarded guarded_copy(const void *data, size_t size)
{
    struct guarded g = {.size = size, .map_size = ((size + 4095) & ~(size_t)4095) + 4096};
    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(g.map != MAP_FAILED);
    mprotect(g.map + g.map_size - 4096, 4096, PROT_NONE);
    g.data = g.map + g.map_size - 4096 - size;
    if (size)
        memcpy(g.data, data, size);
    return g;
}

static void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_size);
}

/** Checks both forms on a copy that ends at unreadable memory. */
static void check(const void *data, size_t size, enum rg_cuda_image_kind kind, uint64_t image_size)
{
    struct guarded g = guarded_copy(data, size);
    struct rg_cuda_image image;
    cr_expect_eq(rg_cuda_image_identify_bytes(g.data, size, &image), kind);
    cr_expect_eq(image.kind, kind);
    cr_expect_eq(image.size, image_size);
    cr_expect_eq(image.data, kind == RG_CUDA_IMAGE_UNKNOWN ? NULL : g.data);
    cr_expect_eq(image.wrapper_version, 0);
    if (kind != RG_CUDA_IMAGE_UNKNOWN) {
        cr_expect_eq(rg_cuda_image_identify(g.data, &image), kind);
        cr_expect_eq(image.size, image_size);
    }
    guarded_free(&g);
}

/* --- containers
 * ------------------------------------------------------------------------------------------------- */

static size_t make_container(unsigned char *to, uint64_t claimed, size_t follows)
{
    const uint32_t magic = RG_CUDA_CONTAINER_MAGIC;
    const uint16_t version = 1, header_size = 16;
    memcpy(to, &magic, 4);
    memcpy(to + 4, &version, 2);
    memcpy(to + 6, &header_size, 2);
    memcpy(to + 8, &claimed, 8);
    memset(to + 16, 0x5a, follows);
    return 16 + follows;
}

Test(image, container)
{
    unsigned char bytes[512];
    check(bytes, make_container(bytes, 0, 0), RG_CUDA_IMAGE_CONTAINER, 16); /* what -rdc leaves */
    check(bytes, make_container(bytes, 100, 100), RG_CUDA_IMAGE_CONTAINER, 116);

    struct rg_cuda_image image;
    size_t size = make_container(bytes, 100, 200);
    cr_expect_eq(rg_cuda_image_identify_bytes(bytes, size, &image), RG_CUDA_IMAGE_CONTAINER);
    cr_expect_eq(image.size, 116, "what follows the image is not counted");
}

Test(image, container_that_lies)
{
    static const uint64_t claims[] = {101,       1u << 20, UINT64_MAX, UINT64_MAX - 15, UINT64_MAX - 16,
                                      1ull << 63};
    unsigned char bytes[512];
    for (size_t i = 0; i < sizeof(claims) / sizeof(*claims); i++)
        check(bytes, make_container(bytes, claims[i], 100), RG_CUDA_IMAGE_UNKNOWN, 0);
    size_t size = make_container(bytes, 100, 100);
    for (size_t cut = 1; cut < size; cut++)
        check(bytes, cut, RG_CUDA_IMAGE_UNKNOWN, 0);
    bytes[4] = 2;
    check(bytes, size, RG_CUDA_IMAGE_UNKNOWN, 0);
    bytes[4] = 1;
    bytes[6] = 24;
    check(bytes, size, RG_CUDA_IMAGE_UNKNOWN, 0);

    struct rg_cuda_image image;
    make_container(bytes, RG_IMAGE_MAX, 0);
    cr_expect_eq(rg_cuda_image_identify(bytes, &image), RG_CUDA_IMAGE_UNKNOWN, "longer than an image may be");
}

/* --- wrappers
 * --------------------------------------------------------------------------------------------------- */

struct wrapper {
    uint32_t magic, version;
    const void *container;
    const void *last;
};

Test(image, wrapper)
{
    unsigned char bytes[64];
    const void *prelinked[] = {bytes, NULL};
    struct rg_cuda_image image;
    make_container(bytes, 48, 48);

    struct wrapper wrapper = {RG_CUDA_WRAPPER_MAGIC, 1, bytes, "file name"};
    cr_expect_eq(rg_cuda_image_identify(&wrapper, &image), RG_CUDA_IMAGE_CONTAINER);
    cr_expect_eq(image.data, (const void *)bytes);
    cr_expect_eq(image.size, 64);
    cr_expect_eq(image.wrapper_version, 1);
    cr_expect_null(image.prelinked);
    cr_expect_eq(rg_cuda_image_identify_bytes(&wrapper, sizeof(wrapper), &image), RG_CUDA_IMAGE_UNKNOWN,
                 "pointers from elsewhere are not followed");

    wrapper.version = 2;
    wrapper.last = prelinked;
    cr_expect_eq(rg_cuda_image_identify(&wrapper, &image), RG_CUDA_IMAGE_CONTAINER);
    cr_expect_eq(image.wrapper_version, 2);
    cr_expect_eq(image.prelinked, (const void *const *)prelinked);

    wrapper.version = 3;
    cr_expect_eq(rg_cuda_image_identify(&wrapper, &image), RG_CUDA_IMAGE_UNKNOWN);
    wrapper.version = 1;
    wrapper.container = NULL;
    cr_expect_eq(rg_cuda_image_identify(&wrapper, &image), RG_CUDA_IMAGE_UNKNOWN);
    cr_expect_eq(rg_cuda_image_identify(NULL, &image), RG_CUDA_IMAGE_UNKNOWN);
}

/* --- text
 * ---------------------------------------------------------------------------------------------------------
 */

/* Where a size is told, it bounds all but what a wrapper in this process points to. */
Test(image, sized)
{
    unsigned char container[64];
    const size_t size = make_container(container, 48, 48);
    struct {
        uint32_t magic, version;
        const void *container, *prelinked;
    } wrapper = {RG_CUDA_WRAPPER_MAGIC, 1, container, NULL};
    struct rg_cuda_image image;
    struct guarded g = guarded_copy(container, size);
    cr_expect_eq(rg_cuda_image_identify_sized(g.data, size, &image), RG_CUDA_IMAGE_CONTAINER);
    cr_expect_eq(image.size, size);
    guarded_free(&g);
    for (size_t n = 0; n < size; n++) {
        g = guarded_copy(container, n);
        cr_expect_eq(rg_cuda_image_identify_sized(g.data, n, &image), RG_CUDA_IMAGE_UNKNOWN);
        cr_expect_eq(rg_cuda_image_leads_outside(g.data, n), n >= 4);
        guarded_free(&g);
    }
    for (size_t n = 0; n <= sizeof wrapper; n++) {
        g = guarded_copy(&wrapper, n);
        cr_expect_eq(rg_cuda_image_identify_sized(g.data, n, &image),
                     n == sizeof wrapper ? RG_CUDA_IMAGE_CONTAINER : RG_CUDA_IMAGE_UNKNOWN);
        cr_expect_eq(rg_cuda_image_leads_outside(g.data, n), n >= 4);
        cr_expect_eq(rg_cuda_image_holds_address(g.data, n), n == sizeof wrapper);
        guarded_free(&g);
    }
}

/* Bytes of unknown origin that begin as a wrapper does are no image, even if they could be text, too. */
Test(image, wrapper_of_unknown_origin)
{
    unsigned char bytes[64] = {0};
    const uint32_t magic = RG_CUDA_WRAPPER_MAGIC;
    struct rg_cuda_image image;
    memcpy(bytes, &magic, sizeof magic);
    for (unsigned char version = 0; version < 255; version++) {
        bytes[4] = version;
        cr_expect_eq(rg_cuda_image_identify_bytes(bytes, sizeof bytes, &image), RG_CUDA_IMAGE_UNKNOWN);
    }
    bytes[4] = 1;
    for (size_t at = 0; at + 24 <= sizeof bytes; at++) {
        unsigned char moved[64] = {0};
        memcpy(moved + at, bytes, 24);
        cr_expect_not(rg_cuda_image_holds_address(moved, sizeof moved)); /* as object files have it */
        moved[at + 15] = 1;
        cr_expect(rg_cuda_image_holds_address(moved, sizeof moved));
    }
    const unsigned char old[8] = {0x01, 0x5a, 0xe5, 0x1e};
    cr_expect(rg_cuda_image_leads_outside(old, sizeof old));
    cr_expect_not(rg_cuda_image_leads_outside("some text", 9));
    cr_expect_not(rg_cuda_image_leads_outside("", 0));
}

Test(image, text)
{
    static const char ptx[] = "\n\n//\n// a comment\n.version 9.0\n.target sm_75\r\n\t.address_size 64\n";
    check(ptx, sizeof(ptx), RG_CUDA_IMAGE_PTX, sizeof(ptx));
    check(ptx, sizeof(ptx) - 1, RG_CUDA_IMAGE_UNKNOWN, 0); /* no NUL */
    check("x", 2, RG_CUDA_IMAGE_PTX, 2);
    check("\xc3\xa4", 3, RG_CUDA_IMAGE_PTX, 3); /* a comment may be in any language */
    check("\n \t", 4, RG_CUDA_IMAGE_UNKNOWN, 0);
    check("", 1, RG_CUDA_IMAGE_UNKNOWN, 0);
    check("", 0, RG_CUDA_IMAGE_UNKNOWN, 0);
    check(".version \x01", 11, RG_CUDA_IMAGE_UNKNOWN, 0);
    check(".version\0 more", 15, RG_CUDA_IMAGE_PTX, 9);
    struct rg_cuda_image image;
    cr_expect_eq(rg_cuda_image_identify_bytes(NULL, 10, &image), RG_CUDA_IMAGE_UNKNOWN);
}

/* --- ELF
 * -------------------------------------------------------------------------------------------------------------
 */

enum { SECTIONS_AT = 256, SEGMENTS_AT = 512, ELF_SIZE = 640 };

/** Three sections and a segment; the section headers are followed by section 1 and the segment headers. */
static void make_elf(unsigned char *to)
{
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41},
                         .e_type = ET_EXEC,
                         .e_machine = 190,
                         .e_shoff = SECTIONS_AT,
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = 3,
                         .e_phoff = SEGMENTS_AT,
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_phnum = 1};
    Elf64_Shdr sections[3] = {{0},
                              {.sh_type = SHT_PROGBITS, .sh_offset = 448, .sh_size = 60},
                              {.sh_type = SHT_NOBITS, .sh_offset = 448, .sh_size = 1 << 20}};
    Elf64_Phdr segment = {.p_type = PT_LOAD, .p_offset = 64, .p_filesz = 576};
    memset(to, 0, ELF_SIZE);
    memcpy(to, &header, sizeof(header));
    memcpy(to + SECTIONS_AT, sections, sizeof(sections));
    memcpy(to + SEGMENTS_AT, &segment, sizeof(segment));
}

Test(image, elf)
{
    unsigned char bytes[ELF_SIZE + 8] = {0};
    make_elf(bytes);
    check(bytes, ELF_SIZE, RG_CUDA_IMAGE_ELF, ELF_SIZE); /* the segment reaches furthest */
    for (size_t cut = 1; cut < ELF_SIZE; cut++)
        check(bytes, cut, RG_CUDA_IMAGE_UNKNOWN, 0);

    Elf64_Ehdr *header = (void *)bytes;
    header->e_phoff = header->e_phnum = 0;
    check(bytes, 508, RG_CUDA_IMAGE_ELF, 508); /* now section 1 does */
    header->e_shnum = 0;
    ((Elf64_Shdr *)(void *)(bytes + SECTIONS_AT))->sh_size =
        3; /* the count where it does not fit the header */
    check(bytes, 508, RG_CUDA_IMAGE_ELF, 508);
    header->e_shoff = 0;
    check(bytes, 64, RG_CUDA_IMAGE_ELF, 64);
}

Test(image, elf_that_lies)
{
    unsigned char bytes[ELF_SIZE];
    Elf64_Ehdr *header = (void *)bytes;
    Elf64_Shdr *sections = (void *)(bytes + SECTIONS_AT);
    Elf64_Phdr *segment = (void *)(bytes + SEGMENTS_AT);
#define LIE(what)                                                                                            \
    do {                                                                                                     \
        make_elf(bytes);                                                                                     \
        what;                                                                                                \
        check(bytes, ELF_SIZE, RG_CUDA_IMAGE_UNKNOWN, 0);                                                    \
    } while (0)
    LIE(header->e_machine = EM_X86_64);
    LIE(header->e_ident[EI_CLASS] = ELFCLASS32);
    LIE(header->e_ident[EI_DATA] = ELFDATA2MSB);
    LIE(header->e_shentsize = 32);
    LIE(header->e_phentsize = 32);
    LIE(header->e_shoff = UINT64_MAX - 10);
    LIE(header->e_shoff = ELF_SIZE - 64);
    LIE(header->e_shnum = 0xffff);
    LIE((header->e_shnum = 0, sections[0].sh_size = UINT64_MAX / 64));
    LIE((header->e_shnum = 0, sections[0].sh_size = UINT64_MAX / 64 + 2));
    LIE(header->e_phoff = UINT64_MAX - 55);
    LIE((header->e_phnum = PN_XNUM, sections[0].sh_info = UINT32_MAX));
    LIE(sections[1].sh_offset = UINT64_MAX);
    LIE(sections[1].sh_size = UINT64_MAX - 100);
    LIE(segment->p_filesz = UINT64_MAX - 63);
    LIE(segment->p_offset = ELF_SIZE);
}

/* --- noise
 * ------------------------------------------------------------------------------------------------------------
 */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint32_t random_number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

Test(image, damaged_images_stay_inside)
{
    unsigned char bytes[ELF_SIZE];
    for (int round = 0; round < 20000; round++) {
        size_t size = ELF_SIZE;
        if (round % 3 == 0)
            make_elf(bytes);
        else if (round % 3 == 1)
            size = make_container(bytes, 400, 400);
        else
            for (size_t i = 0; i < size; i++)
                bytes[i] = (unsigned char)random_number();
        if (round % 6 == 2)
            memcpy(bytes, ELFMAG, SELFMAG);
        for (uint32_t n = random_number() % 8; n; n--)
            bytes[random_number() % (round % 2 ? 64 : size)] =
                (unsigned char)(random_number() % 3 ? random_number() : 0xff);
        if (round % 4 == 0)
            size = random_number() % size;

        struct guarded g = guarded_copy(bytes, size);
        struct rg_cuda_image image;
        if (rg_cuda_image_identify_bytes(g.data, size, &image) != RG_CUDA_IMAGE_UNKNOWN) {
            cr_assert(image.size > 0 && image.size <= size);
            cr_assert_not(rg_cuda_image_leads_outside(g.data, size));
        }
        (void)rg_cuda_image_leads_outside(g.data, size);
        (void)rg_cuda_image_holds_address(g.data, size);
        guarded_free(&g);
    }
}
