/* checked.c - see checked.h. */
#include "tests/softgpu/compiler/checked.h"

#include "softgpu/compiler/check/check.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.7\n.target sm_90\n.address_size 64\n"

void checked_begin(struct checked *checked, const char *text)
{
    memset(checked, 0, sizeof *checked);
    checked->arena.diagnostics = checked->scratch.diagnostics = &checked->diagnostics;
    checked->diagnostics.log = &checked->log;
    if (setjmp(checked->diagnostics.escape)) {
        cr_assert_fail("%s", checked->log.data);
        return;
    }
    const size_t size = strlen(text);
    char *whole = sg_arena_alloc(&checked->arena, sizeof HEAD + size); /* slices point into it */
    memcpy(whole, HEAD, sizeof HEAD - 1);
    memcpy(whole + sizeof HEAD - 1, text, size + 1);
    struct sg_ast *ast = sg_parse(&checked->arena, whole, strlen(whole));
    checked->module = sg_check(&checked->arena, &checked->scratch, &ast, 1, 90);
}

void checked_end(struct checked *checked)
{
    sg_arena_fini(&checked->arena);
    sg_arena_fini(&checked->scratch);
    sg_text_fini(&checked->log);
}

struct sg_ptx_function *checked_function(const struct checked *checked, const char *name)
{
    for (uint32_t i = 0; i < checked->module->n_functions; i++)
        if (strcmp(checked->module->functions[i]->name, name) == 0)
            return checked->module->functions[i];
    cr_assert_fail("there is no function %s", name);
    return NULL;
}

uint32_t checked_result(const struct sg_ptx_function *function, uint32_t n)
{
    cr_assert_lt(n, function->n_insns);
    cr_assert_eq(function->insns[n].operands[0].kind, SG_OPERAND_REG);
    return function->insns[n].operands[0].reg;
}
