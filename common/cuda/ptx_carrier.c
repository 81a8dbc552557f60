/*
 * ptx_carrier.c - see ptx_carrier.h.
 *
 * The sections: names, names of symbols, symbols, an empty .debug_frame, for architectures from 10.0 on two notes and
 * compatibility marks (linkers since CUDA 13.0 ignore files without any of these), and the variable's value: a mark,
 * the text's size, the text. Reading believes no offset. Any thread.
 */
#include "common/cuda/ptx_carrier.h"

#include "common/base/align.h"
#include "common/base/hash_table.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif

/* What CUDA adds to ELF. */
#define SHT_CUDA_COMPATIBILITY 0x70000086u
#define SHT_CUDA_GLOBAL_INIT   0x70000008u
#define SHF_CUDA_TOOL_NOTE     0x02000000u
#define SHF_CUDA_VERSION_NOTE  0x01000040u
#define STT_CUDA_OBJECT        13
#define STO_CUDA_GLOBAL        0x20

#define VALUE_SECTION   ".nv.global.init"
#define VALUE_ALIGNMENT 8u

static const unsigned char mark[8] = {0x7f, 'r', 'g', '-', 'p', 't', 'x', 1};

struct value {
    unsigned char mark[8];
    uint64_t size;
};

/* What a linker lists in what it makes: tool, release, build and options, as offsets in the text. */
struct tool_note {
    uint32_t name_size, size, type;
    char name[12];
    uint32_t version, unused, tool_at, release_at, build_at, options_at;
    char text[44];
};
static const struct tool_note tool_note = {
    .name_size = sizeof "NVIDIA Corp",
    .size = sizeof(struct tool_note) - 24,
    .type = 2000,
    .name = "NVIDIA Corp",
    .version = 0x81,
    .tool_at = 1,
    .release_at = 9,
    .text = "\0softgpu\0the software device of remote-gpu",
};

struct version_note {
    uint32_t name_size, size, type;
    char name[12];
    uint16_t version, architecture;
    uint32_t words[2];
};
static const struct version_note version_note = {
    .name_size = sizeof "NVIDIA Corp",
    .size = 12,
    .type = 1000,
    .name = "NVIDIA Corp",
    .version = 1,
    .architecture = 75,
    .words = {1, 1},
};
_Static_assert(sizeof tool_note == 24 + 24 + 44 && sizeof version_note == 36, "as in files");

static const unsigned char compatibility[16] = {2, 2, 1, 0, 2, 5, 5, 0, 2, 3, 0, 0, 2, 6, 1, 0};

/* --- making --- */

enum { NONE, NAMES, SYMBOL_NAMES, SYMBOLS, FRAMES, VALUE, TOOL, VERSION, COMPATIBILITY, SECTIONS };

struct section {
    const char *name;
    uint32_t type, link, info;
    uint64_t flags, alignment, entry_size;
    const void *data;
    size_t size;
};

/* Places the header, the sections' contents and their table; writes them if `to` is not NULL. Returns the size. */
static size_t place(unsigned char *to, Elf64_Ehdr *header, const struct section *sections, unsigned n)
{
    Elf64_Shdr table[SECTIONS] = {0};
    size_t at = sizeof *header;
    uint32_t name = 0;
    for (unsigned i = 1; i < n; i++) {
        const struct section *s = &sections[i];
        at = rg_align_up(at, s->alignment);
        name = i == 1 ? 1 : name + (uint32_t)strlen(sections[i - 1].name) + 1;
        table[i] = (Elf64_Shdr){.sh_name = name,
                                .sh_type = s->type,
                                .sh_flags = s->flags,
                                .sh_offset = at,
                                .sh_size = s->size,
                                .sh_link = s->link,
                                .sh_info = s->info,
                                .sh_addralign = s->alignment,
                                .sh_entsize = s->entry_size};
        if (to != NULL && s->size != 0)
            memcpy(to + at, s->data, s->size);
        at += s->size;
    }
    at = rg_align_up(at, 8);
    header->e_shoff = at;
    header->e_shnum = (Elf64_Half)n;
    if (to != NULL) {
        memcpy(to, header, sizeof *header);
        memcpy(to + at, table, n * sizeof table[0]);
    }
    return at + n * sizeof table[0];
}

/* The release whose layout it is, as linkers read it: they refuse files of later releases than their own. */
#define LAYOUT_RELEASE 120 /* CUDA 12.0 */

static Elf64_Ehdr header_of(unsigned architecture, bool relocatable)
{
    const bool newer = architecture >= 100; /* has another form of header */
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT,
                    newer ? 0x41 : 0x33, newer ? 8 : 7},
        .e_type = relocatable ? ET_REL : ET_EXEC,
        .e_machine = EM_CUDA,
        .e_version = newer ? 1 : LAYOUT_RELEASE,
        .e_flags = newer ? 0x06000001u | architecture << 8 : 0x004b0500u | architecture,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shstrndx = NAMES,
    };
    return header;
}

void *rg_ptx_carrier_make(const char *text, size_t size, unsigned architecture, bool relocatable,
                          size_t *carrier_size)
{
    /* one name a content: a file that is linked in twice is one definition */
    char symbol_names[32] = "";
    const int length = snprintf(symbol_names + 1, sizeof symbol_names - 1, "__rg_ptx_%016llx",
                                (unsigned long long)rg_hash_bytes(RG_HASH_EMPTY, text, size));
    const size_t value_size = sizeof(struct value) + size;
    unsigned char *value = malloc(value_size);
    if (value == NULL)
        return NULL;
    struct value head = {.size = size};
    memcpy(head.mark, mark, sizeof mark);
    memcpy(value, &head, sizeof head);
    memcpy(value + sizeof head, text, size);

    const Elf64_Sym symbols[] = {
        {0},
        {.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = VALUE},
        {.st_name = 1,
         .st_info = ELF64_ST_INFO(STB_WEAK, STT_CUDA_OBJECT),
         .st_other = STO_CUDA_GLOBAL,
         .st_shndx = VALUE,
         .st_size = value_size},
    };
    struct section sections[SECTIONS] = {
        [NAMES] = {".shstrtab", SHT_STRTAB, .alignment = 1},
        [SYMBOL_NAMES] = {".strtab", SHT_STRTAB, .alignment = 1, .data = symbol_names,
                          .size = 1 + (size_t)length + 1},
        [SYMBOLS] = {".symtab", SHT_SYMTAB, .link = SYMBOL_NAMES, .info = 2, .alignment = 8,
                     .entry_size = sizeof symbols[0], .data = symbols, .size = sizeof symbols},
        [FRAMES] = {".debug_frame", SHT_PROGBITS, .alignment = 1},
        [VALUE] = {VALUE_SECTION, SHT_CUDA_GLOBAL_INIT, .flags = SHF_WRITE | SHF_ALLOC,
                   .alignment = VALUE_ALIGNMENT, .data = value, .size = value_size},
        [TOOL] = {".note.nv.tkinfo", SHT_NOTE, .flags = SHF_CUDA_TOOL_NOTE, .alignment = 4,
                  .data = &tool_note, .size = sizeof tool_note},
        [VERSION] = {".note.nv.cuver", SHT_NOTE, .link = TOOL, .flags = SHF_CUDA_VERSION_NOTE, .alignment = 4,
                     .data = &version_note, .size = sizeof version_note},
        [COMPATIBILITY] = {".nv.compat", SHT_CUDA_COMPATIBILITY, .alignment = 4, .data = compatibility,
                           .size = sizeof compatibility},
    };
    const unsigned n = architecture >= 100 ? SECTIONS : TOOL;
    char names[128] = "";
    size_t names_size = 1;
    for (unsigned i = 1; i < n; i++) {
        memcpy(names + names_size, sections[i].name, strlen(sections[i].name) + 1);
        names_size += strlen(sections[i].name) + 1;
    }
    sections[NAMES].data = names;
    sections[NAMES].size = names_size;

    Elf64_Ehdr header = header_of(architecture, relocatable);
    *carrier_size = place(NULL, &header, sections, n);
    unsigned char *carrier = calloc(1, *carrier_size);
    if (carrier != NULL)
        place(carrier, &header, sections, n);
    free(value);
    return carrier;
}

/* --- reading --- */

static bool within(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

static bool read_section(const unsigned char *elf, uint64_t size, const Elf64_Ehdr *header, uint64_t index,
                         Elf64_Shdr *out)
{
    if (header->e_shentsize != sizeof *out || !within(header->e_shoff, (index + 1) * sizeof *out, size))
        return false;
    memcpy(out, elf + header->e_shoff + index * sizeof *out, sizeof *out);
    return out->sh_type == SHT_NOBITS || within(out->sh_offset, out->sh_size, size);
}

bool rg_ptx_carrier_open(struct rg_ptx_carrier *carrier, const void *elf, uint64_t size)
{
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    const unsigned char *bytes = elf;
    if (size < sizeof header)
        return false;
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_CUDA ||
        !read_section(bytes, size, &header, header.e_shstrndx, &names) || names.sh_type != SHT_STRTAB)
        return false;
    for (uint64_t i = 1; i < header.e_shnum && read_section(bytes, size, &header, i, &section); i++) {
        if (section.sh_type == SHT_NOBITS || !within(section.sh_name, sizeof VALUE_SECTION, names.sh_size) ||
            memcmp(bytes + names.sh_offset + section.sh_name, VALUE_SECTION, sizeof VALUE_SECTION) != 0)
            continue;
        carrier->at = bytes + section.sh_offset;
        carrier->end = carrier->at + section.sh_size;
        return true;
    }
    return false;
}

bool rg_ptx_carrier_next(struct rg_ptx_carrier *carrier, const char **text, size_t *size)
{
    while ((size_t)(carrier->end - carrier->at) >= sizeof(struct value)) {
        struct value value;
        memcpy(&value, carrier->at, sizeof value);
        if (memcmp(value.mark, mark, sizeof mark) == 0 &&
            value.size <= (uint64_t)(carrier->end - carrier->at) - sizeof value) {
            *text = (const char *)carrier->at + sizeof value;
            *size = (size_t)value.size;
            carrier->at += sizeof value + value.size;
            return true;
        }
        carrier->at++;
    }
    return false;
}
