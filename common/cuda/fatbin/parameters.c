/*
 * parameters.c - see parameters.h.
 *
 * The section .nv.info.KERNEL is a sequence of attributes: u8 format, u8 attribute, u16 value, and in format 4 as many bytes
 * as the value says. Two forms of attributes describe a parameter: KPARAM_INFO (0x17: u32 index, u16 ordinal, u16 offset,
 * u32 of which the upper 14 bits are the size), and KPARAM_INFO_V2 (0x45: the size in u16 behind the offset), which ptxas
 * writes for kernels with more than 4 KiB of parameters. A kernel without parameters has the section without either. Seen in
 * what ptxas 13.0 writes for sm_75 to sm_121; older ones differ in other attributes only (nvdisasm names them).
 */
#include "common/cuda/fatbin/parameters.h"

#include "common/cuda/fatbin/elf_sections.h"
#include "common/cuda/fatbin/extract.h"
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/ptx_words.h"
#include "common/cuda/image.h"
#include "common/cuda/ptx_carrier.h"

#include <stdlib.h>
#include <string.h>

#define INFO_PREFIX     ".nv.info."
#define SHT_CUDA_INFO   0x70000000u
#define FORMAT_SIZED    4
#define KPARAM_INFO     0x17
#define KPARAM_INFO_V2  0x45
#define KPARAM_SIZE     12u /* bytes of either */
#define NAME_PREFIX_LEN (sizeof INFO_PREFIX - 1)

struct sink {
    void (*each)(void *user, const struct rg_kernel_layout *layout);
    void *user;
    struct rg_look look;
    struct rg_kernel_parameter parameters[RG_KERNEL_PARAMETERS_MAX];
};

static void tell(struct sink *sink, const char *name, size_t length, uint32_t n)
{
    if (length && length < RG_NAME_MAX)
        sink->each(sink->user, &(struct rg_kernel_layout){name, length, n, sink->parameters});
}

/* --- cubins ------------------------------------------------------------------------------------------------------- */

static uint32_t u16_at(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t u32_at(const unsigned char *bytes)
{
    return u16_at(bytes) | u16_at(bytes + 2) << 16;
}

/* What is known of a kernel's parameters while its section is read; they come in any order. */
struct collected {
    uint32_t n; /* above the last ordinal */
    uint32_t count;
    bool broken;
    uint64_t seen[RG_KERNEL_PARAMETERS_MAX / 64];
};

static void take_parameter(struct sink *sink, struct collected *collected, unsigned attribute,
                           const unsigned char *bytes)
{
    const uint32_t ordinal = u16_at(bytes + 4), offset = u16_at(bytes + 6);
    const uint32_t size = attribute == KPARAM_INFO ? u32_at(bytes + 8) >> 18 : u16_at(bytes + 8);
    if (ordinal >= RG_KERNEL_PARAMETERS_MAX || !size || offset + size > RG_PARAMS_MAX) {
        collected->broken = true;
        return;
    }
    const uint64_t bit = (uint64_t)1 << ordinal % 64;
    collected->count += !(collected->seen[ordinal / 64] & bit);
    collected->seen[ordinal / 64] |= bit;
    if (ordinal >= collected->n)
        collected->n = ordinal + 1;
    sink->parameters[ordinal] = (struct rg_kernel_parameter){offset, size};
}

static void read_info(struct sink *sink, const char *kernel, const unsigned char *at, uint64_t left)
{
    struct collected collected = {0};
    while (left >= 4) {
        const unsigned format = at[0], attribute = at[1], value = u16_at(at + 2);
        const uint64_t size = 4 + (format == FORMAT_SIZED ? value : 0u);
        if (size > left)
            return; /* not whole */
        if (format == FORMAT_SIZED && (attribute == KPARAM_INFO || attribute == KPARAM_INFO_V2)) {
            if (value < KPARAM_SIZE)
                return;
            take_parameter(sink, &collected, attribute, at + 4);
        }
        at += size;
        left -= size;
    }
    if (!left && !collected.broken && collected.count == collected.n)
        tell(sink, kernel, strlen(kernel), collected.n);
}

static void look_at_elf(const void *data, uint64_t size, struct sink *sink)
{
    struct rg_elf elf;
    Elf64_Shdr section;
    if (!rg_elf_open(&elf, data, size))
        return;
    for (uint64_t i = 1; i < elf.header.e_shnum && rg_look_at(&sink->look, sizeof section); i++) {
        if (!rg_elf_section(&elf, i, &section) || section.sh_type != SHT_CUDA_INFO)
            continue;
        const char *name = rg_elf_name(&elf, elf.header.e_shstrndx, section.sh_name, &sink->look);
        if (name && strncmp(name, INFO_PREFIX, NAME_PREFIX_LEN) == 0 &&
            rg_look_at(&sink->look, section.sh_size))
            read_info(sink, name + NAME_PREFIX_LEN, elf.data + section.sh_offset, section.sh_size);
    }
}

/* --- PTX ---------------------------------------------------------------------------------------------------------- */

/* A parameter of a kernel, as far as it has been read. */
struct declaration {
    bool pointer; /* what follows of alignment is of what it points to */
    bool bad;
    unsigned lanes;
    uint64_t align, element, bytes;
    struct rg_ptx_word name;
};

static const struct declaration fresh = {.lanes = 1};

static uint64_t number_of(const struct rg_ptx_word *word)
{
    uint64_t number = 0;
    for (size_t i = 0; i < word->length; i++) {
        if (!rg_ptx_is_digit(word->at[i]) || number > RG_PARAMS_MAX)
            return RG_PTX_UNSIZED;
        number = number * 10 + (unsigned)(word->at[i] - '0');
    }
    return number;
}

static void take_word(struct declaration *d, const struct rg_ptx_word *word, struct rg_ptx_text *text)
{
    struct rg_ptx_word number;
    if (rg_ptx_is(word, ".align")) {
        const uint64_t align = rg_ptx_next(text, &number) ? number_of(&number) : RG_PTX_UNSIZED;
        d->bad |= align == RG_PTX_UNSIZED || !align || (align & (align - 1));
        if (!d->pointer)
            d->align = align;
    } else if (rg_ptx_is(word, ".ptr")) {
        d->pointer = true;
    } else if (rg_ptx_is(word, ".v2") || rg_ptx_is(word, ".v4") || rg_ptx_is(word, ".v8")) {
        d->lanes = (unsigned)(word->at[2] - '0');
    } else if (rg_ptx_is(word, ".texref") || rg_ptx_is(word, ".samplerref") || rg_ptx_is(word, ".surfref")) {
        d->element = 8; /* a handle */
    } else if (rg_ptx_width(word)) {
        d->element = rg_ptx_width(word);
    } else if (*word->at == '[') {
        const uint64_t dimension = rg_ptx_dimension(text);
        d->bad |= dimension > RG_PARAMS_MAX || __builtin_mul_overflow(d->bytes, dimension, &d->bytes) ||
                  d->bytes > RG_PARAMS_MAX;
    } else if (*word->at != '.') {
        d->name = *word;
        d->bytes = d->element * d->lanes;
    }
}

/* Puts a parameter behind the others; false: there is no such one. */
static bool place(struct sink *sink, const struct declaration *d, uint32_t *n, uint64_t *end)
{
    const uint64_t natural = d->element * d->lanes, align = d->align > natural ? d->align : natural;
    if (d->bad || !d->name.length || !d->bytes || *n >= RG_KERNEL_PARAMETERS_MAX)
        return false;
    const uint64_t offset = (*end + align - 1) & ~(align - 1);
    if (offset + d->bytes > RG_PARAMS_MAX)
        return false;
    sink->parameters[(*n)++] = (struct rg_kernel_parameter){(uint32_t)offset, (uint32_t)d->bytes};
    *end = offset + d->bytes;
    return true;
}

/* Behind "(": to behind ")". False: that is not a list of parameters. */
static bool read_parameters(struct sink *sink, struct rg_ptx_text *text, uint32_t *n)
{
    struct rg_ptx_word word;
    struct declaration d = fresh;
    uint64_t end = 0;
    bool empty = true;
    while (rg_ptx_next(text, &word)) {
        const bool last = rg_ptx_is(&word, ")");
        if (last && empty)
            return true;
        if (!last && !rg_ptx_is(&word, ",")) {
            take_word(&d, &word, text);
            empty = false;
            continue;
        }
        if (!place(sink, &d, n, &end))
            return false;
        if (last)
            return true;
        d = fresh;
    }
    return false;
}

/* Behind ".entry". */
static void read_kernel(struct sink *sink, struct rg_ptx_text *text)
{
    struct rg_ptx_word name, word;
    uint32_t n = 0;
    if (!rg_ptx_next(text, &name))
        return;
    const struct rg_ptx_text behind = *text;
    if (rg_ptx_next(text, &word) && rg_ptx_is(&word, "(")) {
        if (!read_parameters(sink, text, &n))
            return;
    } else {
        *text = behind; /* it has none */
    }
    tell(sink, name.at, name.length, n);
}

static void look_at_ptx(const char *ptx, size_t size, struct sink *sink)
{
    if (!rg_look_at(&sink->look, size))
        return;
    struct rg_ptx_text text = {ptx, ptx + size};
    struct rg_ptx_word word;
    while (rg_ptx_next(&text, &word)) {
        if (rg_ptx_is(&word, ".entry"))
            read_kernel(sink, &text);
        else if (rg_ptx_is(&word, "{"))
            rg_ptx_skip_brackets(&text, '{', '}', NULL);
    }
}

/* What the software device's compilers have in the place of machine code. */
static void look_at_carried(const void *data, uint64_t size, struct sink *sink)
{
    struct rg_ptx_carrier carrier;
    const char *text;
    size_t text_size;
    if (rg_ptx_carrier_open(&carrier, data, size))
        while (rg_ptx_carrier_next(&carrier, &text, &text_size))
            look_at_ptx(text, text_size, sink);
}

/* --- images ------------------------------------------------------------------------------------------------------- */

/* An ELF file or PTX; what it is was found by its bytes. */
static bool look_at(const void *data, size_t size, struct sink *sink)
{
    struct rg_cuda_image image;
    switch (rg_cuda_image_identify_bytes(data, size, &image)) {
    case RG_CUDA_IMAGE_ELF:
        look_at_elf(image.data, image.size, sink);
        look_at_carried(image.data, image.size, sink);
        return true;
    case RG_CUDA_IMAGE_PTX:
        look_at_ptx(image.data, image.size - 1, sink);
        return true;
    default:
        return false;
    }
}

/* What a driver takes first: 0 nothing, then PTX by architecture, then machine code by architecture. */
static uint32_t rank_of(const struct rg_fatbin_entry *entry, uint32_t capability)
{
    const uint32_t architecture = entry->architecture & 0xffffu;
    if (entry->kind == RG_FATBIN_PTX)
        return rg_fatbin_fits(entry, capability) ? 1 + architecture : 0;
    if (entry->kind != RG_FATBIN_ELF || architecture / 10 != capability / 10 || architecture > capability)
        return 0;
    return entry->flags & RG_FATBIN_FLAG_ARCH && architecture != capability ? 0 : 0x10000u + 1 + architecture;
}

static bool look_at_entry(const struct rg_fatbin_entry *entry, struct sink *sink)
{
    char *data;
    size_t size;
    if (entry->kind != RG_FATBIN_PTX && entry->kind != RG_FATBIN_ELF)
        return false;
    if (!rg_look_at(&sink->look, entry->size) || rg_fatbin_extract(entry, &data, &size) != RG_FATBIN_OK)
        return false;
    const bool good = look_at(data, entry->kind == RG_FATBIN_PTX ? size + 1 : size, sink);
    free(data);
    return good;
}

/* Calls for entries of the best rank; without a sink it only finds that. */
static bool walk(const void *image, size_t size, uint32_t capability, uint32_t *best, struct sink *sink)
{
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    enum rg_fatbin_status status = rg_fatbin_open(&fatbin, image, size);
    bool good = true;
    while (status == RG_FATBIN_OK && (status = rg_fatbin_next(&fatbin, &entry)) == RG_FATBIN_OK) {
        const uint32_t rank = rank_of(&entry, capability);
        if (!sink && rank > *best)
            *best = rank;
        if (sink && rank == *best)
            good &= look_at_entry(&entry, sink);
    }
    return good && status == RG_FATBIN_END;
}

static bool read_image(const void *image, size_t size, uint32_t capability, struct sink *sink)
{
    struct rg_fatbin fatbin;
    uint32_t best = 0;
    if (rg_fatbin_open(&fatbin, image, size) != RG_FATBIN_OK)
        return look_at(image, size, sink);
    return walk(image, size, capability, &best, NULL) && walk(image, size, capability, &best, sink);
}

bool rg_image_parameters(const void *image, size_t size, uint32_t capability,
                         void (*each)(void *user, const struct rg_kernel_layout *layout), void *user)
{
    struct sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return false;
    sink->each = each;
    sink->user = user;
    sink->look.left = RG_PARAMETERS_WORK_MAX;
    const bool good = read_image(image, size, capability, sink) && !sink->look.stopped;
    free(sink);
    return good;
}
