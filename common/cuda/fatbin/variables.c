/*
 * variables.c - see variables.h.
 *
 * PTX is not parsed: outside of braces, its declarations of variables are statements with .global or .const among the words
 * before the name, and that is all that is looked for. What is not understood makes no variable, or one without a size.
 * Every offset in an ELF file is checked; that its sections lie in the file, rg_cuda_image_identify_bytes has seen to. Parts of
 * it may lie on top of each other, and entries of a fat binary unpack to much more than they are: so there is an end to what
 * is looked at.
 */
#include "common/cuda/fatbin/variables.h"

#include "common/cuda/fatbin/elf_sections.h"
#include "common/cuda/fatbin/extract.h"
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/ptx_words.h"
#include "common/cuda/image.h"

#include <stdlib.h>
#include <string.h>

/* What CUDA adds to ELF. */
#define STT_CUDA_OBJECT  13
#define STO_CUDA_MANAGED 0x04

struct sink {
    void (*each)(void *user, const struct rg_image_variable *variable);
    void *user;
    struct rg_look look;
};

/* --- PTX ---------------------------------------------------------------------------------------------------------- */

static uint64_t times(uint64_t bytes, uint64_t count)
{
    uint64_t product;
    return bytes == RG_VARIABLE_UNSIZED || __builtin_mul_overflow(bytes, count, &product)
               ? RG_VARIABLE_UNSIZED
               : product;
}

/* A statement, as far as it has been read. */
struct statement {
    bool variable, elsewhere, managed, opaque;
    unsigned lanes;
    uint64_t element, bytes;
    struct rg_ptx_word name;
};

static const struct statement fresh = {.lanes = 1};

static void take_directive(struct statement *s, const struct rg_ptx_word *word)
{
    if (rg_ptx_is(word, ".version") || rg_ptx_is(word, ".target") || rg_ptx_is(word, ".address_size") ||
        rg_ptx_is(word, ".file"))
        *s = fresh; /* these do not end with a semicolon */
    else if (rg_ptx_is(word, ".global") || rg_ptx_is(word, ".const"))
        s->variable = true;
    else if (rg_ptx_is(word, ".extern"))
        s->elsewhere = true;
    else if (rg_ptx_is(word, ".texref") || rg_ptx_is(word, ".samplerref") || rg_ptx_is(word, ".surfref"))
        s->opaque = true;
    else if (rg_ptx_is(word, ".v2") || rg_ptx_is(word, ".v4") || rg_ptx_is(word, ".v8"))
        s->lanes = (unsigned)(word->at[2] - '0');
    else if (rg_ptx_width(word))
        s->element = rg_ptx_width(word);
}

static void end_variable(const struct statement *s, struct sink *sink)
{
    if (!s->variable || s->elsewhere || s->opaque || !s->name.length)
        return;
    const struct rg_image_variable variable = {
        .name = s->name.at, .length = s->name.length, .bytes = s->bytes, .managed = s->managed};
    sink->each(sink->user, &variable);
}

/* Behind "=": to before the comma or semicolon behind the value. */
static void skip_value(struct rg_ptx_text *text)
{
    struct rg_ptx_word word;
    struct rg_ptx_text before = *text;
    while (rg_ptx_next(text, &word) && !rg_ptx_is(&word, ",") && !rg_ptx_is(&word, ";")) {
        if (rg_ptx_is(&word, "{"))
            rg_ptx_skip_brackets(text, '{', '}', NULL);
        else if (rg_ptx_is(&word, "("))
            rg_ptx_skip_brackets(text, '(', ')', NULL);
        before = *text;
    }
    *text = before;
}

static void look_at_ptx(const char *ptx, size_t size, struct sink *sink)
{
    if (!rg_look_at(&sink->look, size))
        return;
    struct rg_ptx_text text = {ptx, ptx + size};
    struct statement s = fresh;
    struct rg_ptx_word word;
    while (rg_ptx_next(&text, &word)) {
        switch (*word.at) {
        case '.':
            take_directive(&s, &word);
            break;
        case '(':
            s.managed |= rg_ptx_skip_brackets(&text, '(', ')', ".managed");
            break;
        case '[':
            s.bytes = times(s.bytes, rg_ptx_dimension(&text));
            break;
        case '{':
            rg_ptx_skip_brackets(&text, '{', '}', NULL);
            s = fresh;
            break;
        case '=':
            skip_value(&text);
            break;
        case ',':
            end_variable(&s, sink);
            s.name.length = 0;
            break;
        case ';':
            end_variable(&s, sink);
            s = fresh;
            break;
        default:
            if (!rg_ptx_is_digit(*word.at)) {
                s.name = word;
                s.bytes = s.element ? s.element * s.lanes : RG_VARIABLE_UNSIZED;
            }
        }
    }
}

/* --- ELF ---------------------------------------------------------------------------------------------------------- */

/* Whether a section is memory that variables of the program are in. */
static bool is_variables(const struct rg_elf *elf, uint64_t index, struct sink *sink)
{
    Elf64_Shdr section;
    const char *name = rg_elf_section(elf, index, &section)
                           ? rg_elf_name(elf, elf->header.e_shstrndx, section.sh_name, &sink->look)
                           : NULL;
    return name && (strcmp(name, ".nv.global") == 0 || strcmp(name, ".nv.global.init") == 0 ||
                    strcmp(name, ".nv.constant3") == 0);
}

static void look_at_symbols(const struct rg_elf *elf, const Elf64_Shdr *symbols, struct sink *sink)
{
    for (uint64_t at = 0;
         symbols->sh_size - at >= sizeof(Elf64_Sym) && rg_look_at(&sink->look, sizeof(Elf64_Sym));
         at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, elf->data + symbols->sh_offset + at, sizeof symbol);
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if ((type != STT_OBJECT && type != STT_CUDA_OBJECT) || !is_variables(elf, symbol.st_shndx, sink))
            continue;
        const char *name = rg_elf_name(elf, symbols->sh_link, symbol.st_name, &sink->look);
        if (!name || !*name)
            continue;
        const struct rg_image_variable variable = {.name = name,
                                                   .length = strlen(name),
                                                   .bytes = symbol.st_size,
                                                   .managed = symbol.st_other & STO_CUDA_MANAGED};
        sink->each(sink->user, &variable);
    }
}

static void look_at_elf(const void *data, uint64_t size, struct sink *sink)
{
    struct rg_elf elf;
    Elf64_Shdr section;
    if (!rg_elf_open(&elf, data, size))
        return;
    for (uint64_t i = 1; i < elf.header.e_shnum; i++)
        if (rg_elf_section(&elf, i, &section) && section.sh_type == SHT_SYMTAB)
            look_at_symbols(&elf, &section, sink);
}

/* --- images ------------------------------------------------------------------------------------------------------- */

/* An ELF file or PTX; what it is was found by its bytes. */
static bool look_at(const void *data, size_t size, struct sink *sink)
{
    struct rg_cuda_image image;
    switch (rg_cuda_image_identify_bytes(data, size, &image)) {
    case RG_CUDA_IMAGE_ELF:
        look_at_elf(image.data, image.size, sink);
        return true;
    case RG_CUDA_IMAGE_PTX:
        look_at_ptx(image.data, image.size - 1, sink);
        return true;
    default:
        return false;
    }
}

static bool look_at_entry(const struct rg_fatbin_entry *entry, struct sink *sink)
{
    char *data;
    size_t size;
    if (entry->kind != RG_FATBIN_PTX && entry->kind != RG_FATBIN_ELF)
        return true;
    if (entry->size > RG_VARIABLE_ENTRY_MAX || !rg_look_at(&sink->look, entry->size) ||
        rg_fatbin_extract(entry, &data, &size) != RG_FATBIN_OK)
        return false;
    const bool good = look_at(data, entry->kind == RG_FATBIN_PTX ? size + 1 : size, sink);
    free(data);
    return good;
}

bool rg_image_variables(const void *image, size_t size,
                        void (*each)(void *user, const struct rg_image_variable *variable), void *user)
{
    struct sink sink = {.each = each, .user = user, .look.left = RG_VARIABLE_WORK_MAX};
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    if (rg_fatbin_open(&fatbin, image, size) != RG_FATBIN_OK)
        return look_at(image, size, &sink) && !sink.look.stopped;
    enum rg_fatbin_status status = RG_FATBIN_OK;
    bool good = true;
    while (!sink.look.stopped && (status = rg_fatbin_next(&fatbin, &entry)) == RG_FATBIN_OK)
        good &= look_at_entry(&entry, &sink);
    return good && !sink.look.stopped && status == RG_FATBIN_END;
}
