/*
 * instruction.c - compiles the rows of the instruction table once a process. A mistake in the table ends the
 * process at first use: it is a mistake of ours, and every test would meet it.
 */
#include "softgpu/compiler/ir/instruction.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(constant, name, ...)  [SG_GROUP_##constant] = (name),
#define WORDS(constant, name, ...) [SG_GROUP_##constant] = {__VA_ARGS__},
static const char *const group_names[SG_GROUP_COUNT] = {SG_GROUPS(NAME)};
const char *const sg_group_words[SG_GROUP_COUNT][28] = {SG_GROUPS(WORDS)};

static _Noreturn void table_error(const struct sg_form *form, const char *word)
{
    fprintf(stderr, "softgpu: instruction table: bad word '%s' in a row of '%s'\n", word, form->base);
    abort();
}

/* Takes the next word of a row off `*text`. */
static bool next_word(const char **text, char word[256])
{
    while (**text == ' ')
        ++*text;
    size_t size = strcspn(*text, " ");
    if (size == 0 || size >= 256)
        return false;
    memcpy(word, *text, size);
    word[size] = '\0';
    *text += size;
    return true;
}

static void compile_types(struct sg_form *form, char *word)
{
    uint32_t place = form->n_types++;
    if (place >= SG_INSN_TYPES)
        table_error(form, word);
    char *save = NULL;
    for (char *name = strtok_r(strchr(word, ':') + 1, ",", &save); name != NULL;
         name = strtok_r(NULL, ",", &save)) {
        enum sg_type type = sg_type_from_name((struct sg_slice){name, (uint32_t)strlen(name)});
        if (type == SG_TYPE_NONE)
            table_error(form, name);
        form->types[place] |= UINT64_C(1) << type;
    }
}

static void compile_modifiers(struct sg_form *form)
{
    const char *text = form->modifiers;
    char word[256];
    while (next_word(&text, word)) {
        if (word[0] == 'T') {
            compile_types(form, word);
            continue;
        }
        size_t size = strlen(word);
        bool mandatory = word[size - 1] == '!';
        if (mandatory)
            word[size - 1] = '\0';
        int group = 0;
        while (group < SG_GROUP_COUNT && strcmp(group_names[group], word) != 0)
            group++;
        if (group == SG_GROUP_COUNT)
            table_error(form, word);
        form->groups |= SG_GROUP_BIT(group);
        if (mandatory)
            form->mandatory |= SG_GROUP_BIT(group);
    }
}

static void compile_operand(struct sg_form *form, const char *word)
{
    struct sg_operand_form *operand = &form->operand[form->n_operands++];
    const char *p = word;
    if (form->n_operands > SG_INSN_OPERANDS)
        table_error(form, word);
    operand->type_place = -1;
    if (*p == '=') {
        operand->flags |= SG_OPF_DEST;
        p++;
    }
    char name[16];
    size_t size = strcspn(p, "|?");
    memcpy(name, p, size < 15 ? size : 15);
    name[size < 15 ? size : 15] = '\0';
    p += size;
    if (*p == '|') {
        operand->flags |= SG_OPF_PAIR;
        p += strcspn(p, "?");
    }
    if (*p == '?')
        operand->flags |= SG_OPF_OPTIONAL;
    if (name[0] >= '0' && name[0] <= '3') {
        operand->type_place = (int8_t)(name[0] - '0');
        if (strchr(name, 'w') != NULL)
            operand->flags |= SG_OPF_WIDER;
        if (strchr(name, 'v') != NULL)
            operand->flags |= SG_OPF_VECTOR;
    } else if (strcmp(name, "wide") == 0) {
        operand->type_place = 0;
        operand->doubled = true;
    } else if (strcmp(name, "p") == 0) {
        operand->type = SG_PRED;
    } else if (strcmp(name, "m") == 0) {
        operand->flags |= SG_OPF_ADDRESS;
    } else if (strcmp(name, "L") == 0) {
        operand->flags |= SG_OPF_LABEL;
    } else if (strcmp(name, "*") == 0 || name[0] == '\0') {
        operand->flags |= SG_OPF_ANY;
    } else {
        operand->type = sg_type_from_name((struct sg_slice){name, (uint32_t)strlen(name)});
        if (operand->type == SG_TYPE_NONE)
            table_error(form, word);
    }
}

static void compile_table(void)
{
    char word[256];
    for (uint32_t i = 0; i < sg_form_count; i++) {
        struct sg_form *form = &sg_form_table[i];
        compile_modifiers(form);
        for (const char *text = form->operands; next_word(&text, word);)
            compile_operand(form, word);
    }
}

const struct sg_form *sg_forms_find(struct sg_slice base, uint32_t *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, compile_table);
    for (uint32_t i = 0; i < sg_form_count; i++) {
        if (!sg_slice_is(base, sg_form_table[i].base))
            continue;
        *count = 1;
        while (i + *count < sg_form_count && sg_slice_is(base, sg_form_table[i + *count].base))
            ++*count;
        return &sg_form_table[i];
    }
    return NULL;
}
