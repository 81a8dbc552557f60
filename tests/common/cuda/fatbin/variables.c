/* variables.c - the variables that images define: declarations in PTX, symbols of cubins and fat binaries by nvcc. */
#include "common/cuda/fatbin/variables.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    char text[1024];
    size_t length;
};

static void note(void *user, const struct rg_image_variable *variable)
{
    struct seen *seen = user;
    char size[32] = "?";
    if (variable->bytes != RG_VARIABLE_UNSIZED)
        snprintf(size, sizeof size, "%llu", (unsigned long long)variable->bytes);
    const int length =
        snprintf(seen->text + seen->length, sizeof seen->text - seen->length, "%.*s %s%s; ",
                 (int)variable->length, variable->name, size, variable->managed ? " managed" : "");
    cr_assert(length > 0 && (size_t)length < sizeof seen->text - seen->length);
    seen->length += (size_t)length;
}

static void expect(const char *ptx, const char *variables)
{
    struct seen seen = {.length = 0};
    cr_expect(rg_image_variables(ptx, strlen(ptx) + 1, note, &seen));
    cr_expect_str_eq(seen.text, variables, "of %s: %s", ptx, seen.text);
}

#define HEAD ".version 7.0\n.target sm_75, debug\n.address_size 64\n"

Test(variables, declarations)
{
    expect(HEAD ".global .align 4 .b8 table[64];", "table 64; ");
    expect(HEAD ".visible .const .align 4 .u32 mode;", "mode 4; ");
    expect(HEAD ".weak .global .attribute(.managed) .align 8 .f64 m[2][3];", "m 48 managed; ");
    expect(HEAD ".global .v4 .f32 four, five[2]; .global .b128 wide;", "four 16; five 32; wide 16; ");
    expect(HEAD ".global .u64 refs[2] = {generic(a), f}, b = 3; .const .f16x2 h;", "refs 16; b 8; h 4; ");
    expect(HEAD ".common .global .f32 c;", "c 4; ");
}

Test(variables, what_is_none)
{
    expect(HEAD ".extern .global .u32 elsewhere;", "");
    expect(HEAD ".global .texref t; .global .samplerref s; .global .surfref u;", "");
    expect(HEAD ".shared .u32 s; .extern .shared .b8 dynamic[];", "");
    expect(HEAD
           ".visible .entry k(.param .u64 p) .maxntid 32 { .reg .b32 %r<2>; { .local .u32 l; } ld.global.u32 "
           "%r1, [p]; ret; } .global .u8 after;",
           "after 1; ");
    expect(HEAD ".func (.param .b32 r) f(.param .b32 x); .file 1 \"a;.global .u32 s;\" .global .s8 x;",
           "x 1; ");
    expect(HEAD "// .global .u32 a;\n/* .global .u32 b; */ .global .u32 c;", "c 4; ");
    expect(HEAD ".section .debug_str { .b8 1, 2 } .global .u32 d;", "d 4; ");
}

Test(variables, sizes_that_are_not_known)
{
    expect(HEAD ".global .b8 a[];", "a ?; ");
    expect(HEAD ".global .b8 a[0x10]; .global .b8 b[4*4]; .global .b8 c[WARP_SZ];", "a ?; b ?; c ?; ");
    expect(HEAD ".global .b8 a[99999999999999999999]; .global .u64 b[9223372036854775807][4];", "a ?; b ?; ");
}

/* Whatever it is, it ends within its bytes; sanitizers see if not. */
Test(variables, ends_anywhere)
{
    static const char text[] =
        HEAD ".global .attribute(.managed) .b8 a[4][5] = {1, (2), \"x\\\"\"}; /* c */ .const .u8 b;";
    for (size_t size = 0; size < sizeof text; size++) {
        struct seen seen = {.length = 0};
        char *copy = malloc(size + 1);
        memcpy(copy, text, size);
        copy[size] = '\0';
        (void)rg_image_variables(copy, size, note, &seen);
        (void)rg_image_variables(copy, size + 1, note, &seen);
        free(copy);
    }
}

Test(variables, no_image)
{
    struct seen seen = {.length = 0};
    cr_expect_not(rg_image_variables("\1\2", 3, note, &seen));
    cr_expect_not(rg_image_variables("", 1, note, &seen));
    cr_expect_eq(seen.length, 0);
}

static void count(void *user, const struct rg_image_variable *variable)
{
    (void)variable;
    ++*(unsigned long *)user;
}

/* An ELF file whose sections are all the same table of symbols, with one name of `length` for all of them. */
static unsigned char *make_heap(unsigned sections, unsigned symbols, size_t length, size_t *size)
{
    static const char variables[] = ".nv.global";
    const size_t names = sizeof(Elf64_Ehdr) + sections * sizeof(Elf64_Shdr);
    const size_t table = names + ((sizeof variables + length + 1 + 7) & ~(size_t)7);
    *size = table + symbols * sizeof(Elf64_Sym);
    unsigned char *data = calloc(1, *size);
    Elf64_Ehdr *header = (void *)data;
    Elf64_Shdr *section = (void *)(header + 1);
    Elf64_Sym *symbol = (void *)(data + table);
    memcpy(header->e_ident, ELFMAG, SELFMAG);
    header->e_ident[EI_CLASS] = ELFCLASS64;
    header->e_ident[EI_DATA] = ELFDATA2LSB;
    header->e_machine = 190;
    header->e_shoff = sizeof *header;
    header->e_shentsize = sizeof *section;
    header->e_shnum = (Elf64_Half)sections;
    header->e_shstrndx = 1;
    memcpy(data + names, variables, sizeof variables);
    memset(data + names + sizeof variables, 'x', length);
    section[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = names, .sh_size = table - names};
    for (unsigned i = 2; i < sections; i++)
        section[i] = (Elf64_Shdr){
            .sh_type = SHT_SYMTAB, .sh_offset = table, .sh_size = symbols * sizeof *symbol, .sh_link = 1};
    for (unsigned i = 0; i < symbols; i++)
        symbol[i] =
            (Elf64_Sym){.st_name = sizeof variables, .st_info = STT_OBJECT, .st_shndx = 2, .st_size = 4};
    return data;
}

/* What lies on top of each other takes no more time than a file that is as large as the limit. */
Test(variables, sections_in_a_heap)
{
    static const struct {
        unsigned sections, symbols;
        size_t length;
        bool few;
    } heaps[] = {{10, 10, 5, true}, {3000, 3000, 5, false}, {3, 3000, 100000, false}};
    for (size_t i = 0; i < sizeof heaps / sizeof *heaps; i++) {
        unsigned long n = 0;
        size_t size;
        unsigned char *data = make_heap(heaps[i].sections, heaps[i].symbols, heaps[i].length, &size);
        cr_expect_eq(rg_image_variables(data, size, count, &n), heaps[i].few, "heap %zu", i);
        cr_expect(n > 0 && n <= RG_VARIABLE_WORK_MAX / sizeof(Elf64_Sym), "%lu", n);
        free(data);
    }
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

static bool says(const struct seen *seen, const char *what)
{
    return strstr(seen->text, what) != NULL;
}

Test(variables, of_nvcc)
{
    static const char *const names[] = {"kernel.ptx", "kernel.cubin", "none.fatbin", "speed.fatbin",
                                        "size.fatbin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct seen seen = {.length = 0};
        size_t size;
        unsigned char *data = read_file(names[i], &size);
        cr_expect(rg_image_variables(data, i ? size - 1 : size, note, &seen), "%s", names[i]);
        cr_expect(says(&seen, "offset 4; ") && says(&seen, "scale 12; ") && says(&seen, "both 8 managed; ") &&
                      says(&seen, "own 77; "),
                  "%s: %s", names[i], seen.text);
        cr_expect_not(says(&seen, "not_a_variable"), "%s: %s", names[i], seen.text);
        free(data);
    }
}
#endif
