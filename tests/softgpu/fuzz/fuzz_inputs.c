/*
 * fuzz_inputs.c - damaged PTX and damaged fat binaries: everything is refused or taken, nothing is read that
 * is not there. Most is found by running this under the address and undefined-behaviour sanitizers.
 *
 * usage: fuzz_inputs RUNS [SEED] [FILE.ptx|FILE.fatbin|FILE.cubin…]
 *
 * Texts are random kernels, pieces of PTX that have every kind of declaration, and files of PTX, each of
 * which is taken for a tenth of the runs; they are damaged by changing, moving, repeating and cutting bytes,
 * words and lines. What is taken is not run, but its code is generated now and then.
 */
#include "random_ptx.h"

#include "common/cuda/fatbin/extract.h"
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/variables.h"
#include "softgpu/compiler/compiler.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MAX_INPUT (512u << 10)

static uint64_t state;

static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below == 0 ? 0 : (uint32_t)((state >> 20) % below);
}

/* What the grammar has beside instructions. */
static const char declarations[] =
    ".version 9.0\n"
    ".target sm_90, texmode_independent\n"
    ".address_size 64\n"
    ".file 1 \"a.cu\", 1, 2\n"
    ".section .debug_str { .b8 1, 2, 3\n"
    "$L__info: .b32 $L__info+4 }\n"
    ".global .align 8 .u64 table[4] = {generic(first), first+4, 0xff(first), f};\n"
    ".global .align 4 .u32 first = 077U;\n"
    ".visible .const .align 4 .f32 numbers[3] = {0f3F800000, 1.5e3, -0d3FF0000000000000};\n"
    ".weak .global .attribute(.managed) .b8 managed[16];\n"
    ".common .global .v4 .f32 four;\n"
    ".extern .shared .align 16 .b8 dynamic[];\n"
    ".func (.param .align 8 .b8 result[16]) g(.param .b64 x, .reg .f32 y) .noreturn;\n"
    ".visible .func f(.reg .u32 x) { .reg .pred p; setp.eq.u32 p, x, (1 << 3) | 2; @!p ret; trap; }\n"
    ".alias h, f;\n"
    ".weak .entry k(.param .u64 .ptr .global .align 8 x, .param .b8 y[8]) .maxntid 32, 2 .minnctapersm 1 "
    ".reqntid 8\n"
    "{\n"
    ".reg .b32 %r<8>; .reg .b64 %rd<4>, q; .reg .f32 %f<4>; .reg .pred %pr; .pragma \"nounroll\";\n"
    ".loc 1 3 4\n"
    "{ .reg .u32 %r1; .local .v2 .u32 l[WARP_SZ]; ld.param.v2.u32 {%r1, _}, [y]; INNER: bra.uni INNER; }\n"
    "ts: .branchtargets L0, L1;\n"
    "brx.idx %r0, ts;\n"
    "L0: p: .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;\n"
    "mov.u32 %r2, %tid.x; mov.b64 {%r3, %r4}, %rd0; shfl.sync.idx.b32 %r0|%pr, %r1, 0, 31, -1;\n"
    "L1:\n"
    "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f0, %f1}];\n"
    "red.global.add.f32 [%rd1+-4], 0f00000000;\n"
    "vadd4.s32.s32.s32.sat %r0, %r1, %r2, %r3;\n"
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
    "{%f0,%f1,%f2,%f3};\n"
    "ret;\n"
    "}\n"
    "/* end */ // end";

static const char *const words[] = {
    "{",          "}",
    "(",          ")",
    "[",          "]",
    ";",          ",",
    "<4>",        "<99999999>",
    ".v2",        ".v8",
    ".f32",       ".b128",
    ".pred",      "%r0",
    "%rd1",       "%tid",
    "%tid.x",     "_",
    "0x",         "1e999",
    "0f0",        "-",
    "!",          "@",
    "|",          "\"",
    "/*",         "//",
    ".align 3",   "=",
    ".param",     ".shared",
    ".reg",       "0xffffffffffffffff",
    "ld",         "st.v4",
    "call",       "brx.idx",
    ".entry",     ".func",
    ".extern",    ".weak",
    "4294967296", "%",
    "::",         ".shared::cta",
    "[k+8]",      ".global",
    "generic(",   "bar.sync",
    "\n.loc 1 ",  "\n.file 9 \"",
    "cvt.rn",     "mma.sync.aligned",
    "{{{{{{{{",   "((((((((",
};

static size_t insert(char *text, size_t size, size_t at, const char *what, size_t length)
{
    if (size + length > SIZE_MAX_INPUT)
        return size;
    memmove(text + at + length, text + at, size - at);
    memmove(text + at, what, length);
    return size + length;
}

static size_t line_at(const char *text, size_t size, size_t at, size_t *length)
{
    while (at > 0 && text[at - 1] != '\n')
        at--;
    const char *end = memchr(text + at, '\n', size - at);
    *length = end == NULL ? size - at : (size_t)(end - text) + 1 - at;
    return at;
}

static size_t damage(char *text, size_t size)
{
    for (uint32_t i = 1 + next(4); i > 0 && size > 0; i--) {
        size_t at = next((uint32_t)size), length, from;
        switch (next(8)) {
        case 0:
            text[at] = (char)next(256);
            break;
        case 1:
            text[at] ^= (char)(1 << next(8));
            break;
        case 2: {
            const char *word = words[next(sizeof(words) / sizeof(words[0]))];
            size = insert(text, size, at, word, strlen(word));
            break;
        }
        case 3:
            length = next(20) % (size - at);
            memmove(text + at, text + at + length, size - at - length);
            size -= length;
            break;
        case 4: { /* a line that is there once more */
            char line[512];
            from = line_at(text, size, at, &length);
            length = length < sizeof(line) ? length : sizeof(line);
            memcpy(line, text + from, length);
            from = line_at(text, size, next((uint32_t)size), &(size_t){0});
            size = insert(text, size, from, line, length);
            break;
        }
        case 5:
            from = line_at(text, size, at, &length);
            memmove(text + from, text + from + length, size - from - length);
            size -= length;
            break;
        case 6:
            if (next(8) == 0)
                size = at;
            break;
        default: /* a word of another place */
            from = next((uint32_t)size);
            length = next(12);
            if (from + length <= size && at + length <= size)
                memmove(text + at, text + from, length);
            break;
        }
    }
    return size;
}

static uint64_t taken, refused, variables;

static void count_variable(void *user, const struct rg_image_variable *variable)
{
    (void)user;
    variables += variable->length != 0 && variable->name[variable->length - 1] != '\0';
}

/* An exact copy, so that sanitizers see what is read beyond its end. */
static void compile(const char *text, size_t size)
{
    static unsigned char memory[4096];
    char *copy = malloc(size + 1);
    struct sg_text log = {0};
    struct sg_program *program = NULL;
    void *code;
    memcpy(copy, text, size);
    copy[size] = '\0';
    (void)rg_image_variables(copy, size + 1, count_variable, NULL);
    if (sg_program_create(copy, size, 120, &log, &program) == SG_COMPILE_OK) {
        taken++;
        const struct sg_variable *variable;
        bool fits = true;
        for (size_t i = 0; (variable = sg_program_variable(program, i)) != NULL; i++) {
            fits &= variable->size <= sizeof(memory);
            sg_program_place(program, i, memory);
        }
        if (fits && sg_program_initialise(program, true, &log) == SG_COMPILE_OK && taken % 16 == 0)
            for (size_t i = 0; sg_program_kernel(program, i) != NULL; i++)
                sg_program_code(program, i, &log, &code);
        sg_program_destroy(program);
    } else {
        refused++;
        if (log.data == NULL || log.data[0] == '\0') {
            printf("refused without a word:\n%.*s\n", (int)size, text);
            exit(1);
        }
    }
    sg_text_fini(&log);
    free(copy);
}

static void extract_all(const unsigned char *data, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    char *text;
    size_t length;
    if (rg_fatbin_open(&fatbin, copy, size) == RG_FATBIN_OK)
        for (int i = 0; i < 64 && rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK; i++)
            if (entry.size < (16u << 20) && rg_fatbin_extract(&entry, &text, &length) == RG_FATBIN_OK) {
                taken++;
                free(text);
            }
    refused += rg_fatbin_select(copy, size, 120, &entry) != RG_FATBIN_OK;
    (void)rg_image_variables(copy, size, count_variable, NULL);
    free(copy);
}

static bool is_ptx(const char *path)
{
    size_t size = strlen(path);
    return size > 4 && strcmp(path + size - 4, ".ptx") == 0;
}

static size_t read_file(const char *path, char *text)
{
    FILE *file = fopen(path, "rb");
    size_t size = file == NULL ? 0 : fread(text, 1, SIZE_MAX_INPUT, file);
    if (file != NULL)
        fclose(file);
    return size;
}

int main(int count, char **arguments)
{
    static char text[SIZE_MAX_INPUT + 1], original[SIZE_MAX_INPUT];
    uint64_t runs = count > 1 ? strtoull(arguments[1], NULL, 0) : 2000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
    setenv("SOFTGPU_CACHE", "off", 1);
    state = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t run = 0; run < runs; run++) {
        static char *kernel;
        if (run % 64 == 0) {
            free(kernel);
            kernel = random_ptx(seed + run, 32);
        }
        const char *from = run % 2 ? kernel : declarations;
        size_t size = strlen(from);
        memcpy(text, from, size);
        uint64_t before = refused;
        if (run < 2 && (compile(text, size), refused != before)) {
            printf("what is not damaged is refused:\n%s\n", text);
            return 1;
        }
        compile(text, damage(text, size));
        if (run + 1 == runs)
            free(kernel);
    }
    for (int i = 3; i < count; i++) {
        size_t size = is_ptx(arguments[i]) ? read_file(arguments[i], original) : 0;
        for (uint64_t run = 0; size > 0 && run < runs / 10; run++) {
            memcpy(text, original, size);
            compile(text, damage(text, size));
        }
    }
    printf("PTX: %llu taken, %llu refused\n", (unsigned long long)taken, (unsigned long long)refused);
    if (taken == 0 || refused == 0)
        return 1;
    taken = refused = 0;
    for (int i = 3; i < count; i++) {
        if (is_ptx(arguments[i]))
            continue;
        size_t size = read_file(arguments[i], original);
        if (size == 0 || size == SIZE_MAX_INPUT) {
            printf("cannot read %s\n", arguments[i]);
            return 1;
        }
        for (uint64_t run = 0; run < runs; run++) {
            memcpy(text, original, size);
            size_t length = damage(text, size);
            if (next(4) == 0) /* the header, which everything hangs on */
                text[next(128)] = (char)next(256);
            extract_all((const unsigned char *)text, length);
        }
    }
    printf("fat binaries: %llu entries taken, %llu without PTX\n", (unsigned long long)taken,
           (unsigned long long)refused);
    printf("variables: %llu\n", (unsigned long long)variables);
    return variables == 0;
}
