/*
 * opcode.c - matches an instruction's word, modifiers and number of operands with a row of the table.
 */
#include "softgpu/compiler/check/checker.h"

#include <string.h>

/* All instructions of this version of PTX are known by name at least: another one is a mistake, and not of a later version. */
#define KNOWN_VERSION 90

/* Finds the modifier in one of the row's groups that are still free. */
static bool take_group(const struct sg_form *form, struct sg_slice word, sg_group_set *taken,
                       struct sg_opcode *out)
{
    for (int group = 0; group < SG_GROUP_COUNT; group++) {
        if ((form->groups & ~*taken & SG_GROUP_BIT(group)) == 0)
            continue;
        for (uint8_t i = 0; sg_group_words[group][i] != NULL; i++) {
            if (!sg_slice_is(word, sg_group_words[group][i]))
                continue;
            *taken |= SG_GROUP_BIT(group);
            out->mods[group] = (uint8_t)(i + 1);
            return true;
        }
    }
    return false;
}

/* Tries one row; on failure *bad is the modifier that the row does not take (NULL: one is missing). */
static bool match(const struct sg_form *form, const struct sg_ast_instruction *ast, struct sg_opcode *out,
                  const struct sg_slice **bad)
{
    sg_group_set taken = 0;
    uint32_t n_types = 0;
    *out = (struct sg_opcode){.form = form};
    *bad = NULL;
    for (uint32_t i = 0; i < ast->n_modifiers; i++) {
        struct sg_slice word = ast->modifiers[i];
        enum sg_type type = sg_type_from_name(word);
        if (type != SG_TYPE_NONE && n_types < form->n_types && (form->types[n_types] >> type & 1) != 0) {
            out->types[n_types++] = (uint8_t)type;
        } else if (type != SG_TYPE_NONE || !take_group(form, word, &taken, out)) {
            *bad = &ast->modifiers[i];
            return false;
        }
    }
    return n_types == form->n_types && (form->mandatory & ~taken) == 0;
}

static bool fits_operands(const struct sg_form *form, uint32_t count)
{
    uint32_t least = form->n_operands;
    while (least > 0 && (form->operand[least - 1].flags & SG_OPF_OPTIONAL) != 0)
        least--;
    return count >= least && count <= form->n_operands;
}

/* .shared::cta and .param::func are .shared and .param written in full. */
static void normalise(struct sg_opcode *opcode)
{
    uint8_t *space = &opcode->mods[SG_GROUP_SPACE];
    opcode->mods[SG_GROUP_CLUSTER_WINDOW] = *space == SG_MOD_CLUSTER;
    if (*space == 6 || *space == 7)
        *space = SG_MOD_SHARED;
    else if (*space == 8 || *space == 9)
        *space = SG_MOD_PARAM;
}

static _Noreturn void fail_match(struct sg_checker *checker, const struct sg_form *forms, uint32_t count,
                                 const struct sg_ast_instruction *ast)
{
    struct sg_opcode scratch;
    const struct sg_slice *bad = NULL, *farthest = NULL;
    bool matched = false;
    for (uint32_t i = 0; i < count; i++) {
        matched |= match(&forms[i], ast, &scratch, &bad);
        if (bad != NULL && (farthest == NULL || bad > farthest))
            farthest = bad;
    }
    if (matched)
        sg_check_fail(checker, "wrong number of operands");
    if (farthest != NULL)
        sg_check_unknown(checker, "modifier '.%.*s' does not fit instruction '%.*s'", (int)farthest->size,
                         farthest->data, (int)ast->base.size, ast->base.data);
    sg_check_fail(checker, "instruction '%.*s' lacks a type or modifier", (int)ast->base.size,
                  ast->base.data);
}

struct sg_opcode *sg_check_opcode(struct sg_checker *checker, const struct sg_ast_instruction *ast)
{
    /* the same few words come again and again: remember them by their text and number of operands */
    const struct sg_slice *last = ast->n_modifiers == 0 ? &ast->base : &ast->modifiers[ast->n_modifiers - 1];
    struct sg_slice text = {ast->base.data, (uint32_t)(last->data + last->size - ast->base.data)};
    char key[160];
    struct sg_slice cached = {key, text.size + 1};
    bool short_enough = text.size < sizeof(key) - 1;
    if (short_enough) {
        memcpy(key, text.data, text.size);
        key[text.size] = (char)('0' + (ast->n_operands < 32 ? ast->n_operands : 32));
        struct sg_opcode *known = sg_map_get(&checker->opcodes, cached);
        if (known != NULL)
            return known;
    }
    uint32_t count = 0;
    const struct sg_form *forms = sg_forms_find(ast->base, &count);
    if (forms == NULL && sg_base_is_unsupported(ast->base))
        sg_check_unknown(checker, "instruction '%.*s' is not supported by the software device",
                         (int)ast->base.size, ast->base.data);
    if (forms == NULL && checker->module->version > KNOWN_VERSION)
        sg_check_unknown(checker, "unknown instruction '%.*s'", (int)ast->base.size, ast->base.data);
    if (forms == NULL)
        sg_check_fail(checker, "unknown instruction '%.*s'", (int)ast->base.size, ast->base.data);
    struct sg_opcode *opcode = SG_NEW(checker->arena, struct sg_opcode);
    const struct sg_slice *bad;
    for (uint32_t i = 0; i < count; i++) {
        if (!fits_operands(&forms[i], ast->n_operands) || !match(&forms[i], ast, opcode, &bad))
            continue;
        normalise(opcode);
        if (short_enough) {
            cached.data = sg_arena_string(checker->arena, cached);
            sg_map_put(&checker->opcodes, checker->arena, cached, opcode);
        }
        return opcode;
    }
    fail_match(checker, forms, count, ast);
}
