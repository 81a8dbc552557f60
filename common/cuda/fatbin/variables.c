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

#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

/* What CUDA adds to ELF. */
#define STT_CUDA_OBJECT  13
#define STO_CUDA_MANAGED 0x04

struct sink {
    void (*each)(void *user, const struct rg_image_variable *variable);
    void *user;
    uint64_t left; /* bytes that may still be looked at */
    bool stopped;  /* they did not suffice */
};

/* Before `bytes` are looked at; false: that is too much. */
static bool may_look(struct sink *sink, uint64_t bytes)
{
    sink->stopped |= bytes > sink->left;
    sink->left -= sink->stopped ? 0 : bytes;
    return !sink->stopped;
}

/* --- PTX ---------------------------------------------------------------------------------------------------------- */

struct text {
    const char *at, *end;
};

struct word {
    const char *at;
    size_t length;
};

static bool is(const struct word *word, const char *text)
{
    return word->length == strlen(text) && memcmp(word->at, text, word->length) == 0;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.';
}

static void skip_line(struct text *text)
{
    while (text->at < text->end && *text->at != '\n')
        text->at++;
}

static void skip_comment(struct text *text)
{
    text->at += 2;
    while (text->end - text->at >= 2 && !(text->at[0] == '*' && text->at[1] == '/'))
        text->at++;
    text->at = text->end - text->at >= 2 ? text->at + 2 : text->end;
}

static void skip_string(struct text *text)
{
    for (text->at++; text->at < text->end && *text->at != '"'; text->at++)
        if (*text->at == '\\' && text->end - text->at > 1)
            text->at++;
    if (text->at < text->end)
        text->at++;
}

/* The next word (a name, number or directive) or single character; false at the end. */
static bool next(struct text *text, struct word *word)
{
    while (text->at < text->end) {
        const char c = *text->at, d = text->end - text->at > 1 ? text->at[1] : '\0';
        if (c == '/' && d == '/')
            skip_line(text);
        else if (c == '/' && d == '*')
            skip_comment(text);
        else if (c == '"')
            skip_string(text);
        else if (c == ' ' || (c >= '\t' && c <= '\r'))
            text->at++;
        else
            break;
    }
    if (text->at == text->end)
        return false;
    word->at = text->at++;
    if (in_word(*word->at))
        while (text->at < text->end && in_word(*text->at))
            text->at++;
    word->length = (size_t)(text->at - word->at);
    return true;
}

/* Behind an opening bracket: to behind the one that closes it. Says whether `wanted` was in between. */
static bool skip_brackets(struct text *text, char open, char close, const char *wanted)
{
    struct word word;
    bool found = false;
    for (unsigned depth = 1; depth && next(text, &word);) {
        depth += word.length == 1 && *word.at == open;
        depth -= word.length == 1 && *word.at == close;
        found |= wanted && is(&word, wanted);
    }
    return found;
}

static uint64_t times(uint64_t bytes, uint64_t count)
{
    uint64_t product;
    return bytes == RG_VARIABLE_UNSIZED || __builtin_mul_overflow(bytes, count, &product)
               ? RG_VARIABLE_UNSIZED
               : product;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "64]" behind the bracket. */
static uint64_t dimension(struct text *text)
{
    struct word word, close;
    uint64_t count = 0;
    if (!next(text, &word) || is(&word, "]") || !next(text, &close))
        return RG_VARIABLE_UNSIZED;
    if (!is(&close, "]")) { /* an expression */
        skip_brackets(text, '[', ']', NULL);
        return RG_VARIABLE_UNSIZED;
    }
    if (word.length > 1 && *word.at == '0') /* not decimal */
        return RG_VARIABLE_UNSIZED;
    for (size_t i = 0; i < word.length; i++) {
        if (!is_digit(word.at[i]) || __builtin_mul_overflow(count, 10u, &count) ||
            __builtin_add_overflow(count, (unsigned)(word.at[i] - '0'), &count))
            return RG_VARIABLE_UNSIZED;
    }
    return count;
}

/* Bytes of an element, of ".f32" and the like; 0: it is no type. */
static uint64_t width(const struct word *type)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {{".b8", 1},  {".u8", 1},   {".s8", 1},  {".b16", 2}, {".u16", 2},   {".s16", 2},
                 {".f16", 2}, {".bf16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4},   {".f32", 4},
                 {".b64", 8}, {".u64", 8},  {".s64", 8}, {".f64", 8}, {".f16x2", 4}, {".b128", 16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(type, types[i].name))
            return types[i].bytes;
    return 0;
}

/* A statement, as far as it has been read. */
struct statement {
    bool variable, elsewhere, managed, opaque;
    unsigned lanes;
    uint64_t element, bytes;
    struct word name;
};

static const struct statement fresh = {.lanes = 1};

static void take_directive(struct statement *s, const struct word *word)
{
    if (is(word, ".version") || is(word, ".target") || is(word, ".address_size") || is(word, ".file"))
        *s = fresh; /* these do not end with a semicolon */
    else if (is(word, ".global") || is(word, ".const"))
        s->variable = true;
    else if (is(word, ".extern"))
        s->elsewhere = true;
    else if (is(word, ".texref") || is(word, ".samplerref") || is(word, ".surfref"))
        s->opaque = true;
    else if (is(word, ".v2") || is(word, ".v4") || is(word, ".v8"))
        s->lanes = (unsigned)(word->at[2] - '0');
    else if (width(word))
        s->element = width(word);
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
static void skip_value(struct text *text)
{
    struct word word;
    struct text before = *text;
    while (next(text, &word) && !is(&word, ",") && !is(&word, ";")) {
        if (is(&word, "{"))
            skip_brackets(text, '{', '}', NULL);
        else if (is(&word, "("))
            skip_brackets(text, '(', ')', NULL);
        before = *text;
    }
    *text = before;
}

static void look_at_ptx(const char *ptx, size_t size, struct sink *sink)
{
    if (!may_look(sink, size))
        return;
    struct text text = {ptx, ptx + size};
    struct statement s = fresh;
    struct word word;
    while (next(&text, &word)) {
        switch (*word.at) {
        case '.':
            take_directive(&s, &word);
            break;
        case '(':
            s.managed |= skip_brackets(&text, '(', ')', ".managed");
            break;
        case '[':
            s.bytes = times(s.bytes, dimension(&text));
            break;
        case '{':
            skip_brackets(&text, '{', '}', NULL);
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
            if (!is_digit(*word.at)) {
                s.name = word;
                s.bytes = s.element ? s.element * s.lanes : RG_VARIABLE_UNSIZED;
            }
        }
    }
}

/* --- ELF ---------------------------------------------------------------------------------------------------------- */

struct elf {
    const unsigned char *data;
    uint64_t size;
    Elf64_Ehdr header;
};

static bool section_at(const struct elf *elf, uint64_t index, Elf64_Shdr *section)
{
    if (!elf->header.e_shoff || index >= elf->header.e_shnum || elf->header.e_shoff > elf->size ||
        (index + 1) * sizeof *section > elf->size - elf->header.e_shoff)
        return false;
    memcpy(section, elf->data + elf->header.e_shoff + index * sizeof *section, sizeof *section);
    return section->sh_type == SHT_NOBITS ||
           (section->sh_offset <= elf->size && section->sh_size <= elf->size - section->sh_offset);
}

/* A name of the table of names `index`; NULL: there is none that ends in it, or it is too much to look at. */
static const char *name_at(const struct elf *elf, uint64_t index, uint64_t offset, struct sink *sink)
{
    Elf64_Shdr names;
    if (!section_at(elf, index, &names) || names.sh_type != SHT_STRTAB || offset >= names.sh_size)
        return NULL;
    const char *name = (const char *)elf->data + names.sh_offset + offset;
    const uint64_t rest = names.sh_size - offset, most = rest < sink->left ? rest : sink->left;
    const char *end = memchr(name, '\0', most);
    return may_look(sink, end ? (uint64_t)(end - name) : rest) && end ? name : NULL;
}

/* Whether a section is memory that variables of the program are in. */
static bool is_variables(const struct elf *elf, uint64_t index, struct sink *sink)
{
    Elf64_Shdr section;
    const char *name =
        section_at(elf, index, &section) ? name_at(elf, elf->header.e_shstrndx, section.sh_name, sink) : NULL;
    return name && (strcmp(name, ".nv.global") == 0 || strcmp(name, ".nv.global.init") == 0 ||
                    strcmp(name, ".nv.constant3") == 0);
}

static void look_at_symbols(const struct elf *elf, const Elf64_Shdr *symbols, struct sink *sink)
{
    for (uint64_t at = 0; symbols->sh_size - at >= sizeof(Elf64_Sym) && may_look(sink, sizeof(Elf64_Sym));
         at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, elf->data + symbols->sh_offset + at, sizeof symbol);
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if ((type != STT_OBJECT && type != STT_CUDA_OBJECT) || !is_variables(elf, symbol.st_shndx, sink))
            continue;
        const char *name = name_at(elf, symbols->sh_link, symbol.st_name, sink);
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
    struct elf elf = {.data = data, .size = size};
    Elf64_Shdr section;
    memcpy(&elf.header, data, sizeof elf.header);
    for (uint64_t i = 1; i < elf.header.e_shnum; i++)
        if (section_at(&elf, i, &section) && section.sh_type == SHT_SYMTAB)
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
    if (entry->size > RG_VARIABLE_ENTRY_MAX || !may_look(sink, entry->size) ||
        rg_fatbin_extract(entry, &data, &size) != RG_FATBIN_OK)
        return false;
    const bool good = look_at(data, entry->kind == RG_FATBIN_PTX ? size + 1 : size, sink);
    free(data);
    return good;
}

bool rg_image_variables(const void *image, size_t size,
                        void (*each)(void *user, const struct rg_image_variable *variable), void *user)
{
    struct sink sink = {.each = each, .user = user, .left = RG_VARIABLE_WORK_MAX};
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    if (rg_fatbin_open(&fatbin, image, size) != RG_FATBIN_OK)
        return look_at(image, size, &sink) && !sink.stopped;
    enum rg_fatbin_status status = RG_FATBIN_OK;
    bool good = true;
    while (!sink.stopped && (status = rg_fatbin_next(&fatbin, &entry)) == RG_FATBIN_OK)
        good &= look_at_entry(&entry, &sink);
    return good && !sink.stopped && status == RG_FATBIN_END;
}
