/* elf_sections.c - see elf_sections.h. */
#include "common/cuda/fatbin/elf_sections.h"

#include <string.h>

bool rg_look_at(struct rg_look *look, uint64_t bytes)
{
    look->stopped |= bytes > look->left;
    look->left -= look->stopped ? 0 : bytes;
    return !look->stopped;
}

bool rg_elf_open(struct rg_elf *elf, const void *data, uint64_t size)
{
    *elf = (struct rg_elf){.data = data, .size = size};
    if (size < sizeof elf->header)
        return false;
    memcpy(&elf->header, data, sizeof elf->header);
    return true;
}

bool rg_elf_section(const struct rg_elf *elf, uint64_t index, Elf64_Shdr *section)
{
    if (!elf->header.e_shoff || index >= elf->header.e_shnum || elf->header.e_shoff > elf->size ||
        (index + 1) * sizeof *section > elf->size - elf->header.e_shoff)
        return false;
    memcpy(section, elf->data + elf->header.e_shoff + index * sizeof *section, sizeof *section);
    return section->sh_type == SHT_NOBITS ||
           (section->sh_offset <= elf->size && section->sh_size <= elf->size - section->sh_offset);
}

const char *rg_elf_name(const struct rg_elf *elf, uint64_t index, uint64_t offset, struct rg_look *look)
{
    Elf64_Shdr names;
    if (!rg_elf_section(elf, index, &names) || names.sh_type != SHT_STRTAB || offset >= names.sh_size)
        return NULL;
    const char *name = (const char *)elf->data + names.sh_offset + offset;
    const uint64_t rest = names.sh_size - offset, most = rest < look->left ? rest : look->left;
    const char *end = memchr(name, '\0', most);
    return rg_look_at(look, end ? (uint64_t)(end - name) : rest) && end ? name : NULL;
}
