/*
 * guards.c - tests at the start of a kernel in block form like `if (i >= n) return;`.
 */
#include "softgpu/compiler/regions/regions.h"

#define GUARDED_MAX 300u /* instructions of a kernel that is made twice */

static bool ends(const struct sg_ptx_function *function, uint32_t insn)
{
    if (insn >= function->n_insns)
        return true;
    const struct sg_insn *to = &function->insns[insn];
    return to->guard == 0 && (to->form->op == SG_OP_RET || to->form->op == SG_OP_EXIT);
}

bool sg_guards_wanted(const struct sg_ptx_function *kernel)
{
    if (kernel->n_insns > GUARDED_MAX)
        return false;
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (kernel->insns[i].form->op == SG_OP_BRA &&
            kernel->labels[kernel->insns[i].operands[0].value].insn <= i)
            return false; /* a loop of the thread's own: LLVM will not take threads side by side anyway */
    return true;
}

void sg_guards_find(const struct sg_ptx_function *kernel, const uint32_t *rematerialised,
                    struct sg_guards *guards)
{
    bool labelled = false, straight = true;
    guards->count = 0;
    for (uint32_t i = 0; i < kernel->n_insns && straight && !labelled && guards->count < SG_GUARDS_MAX; i++) {
        const struct sg_insn *insn = &kernel->insns[i];
        enum sg_op op = insn->form->op;
        for (uint32_t n = 0; n < kernel->n_labels; n++)
            labelled |= kernel->labels[n].insn == i && i > 0;
        bool jump = op == SG_OP_BRA, leave = op == SG_OP_RET || op == SG_OP_EXIT;
        if (labelled || (!jump && !leave && op != SG_OP_BRX && op != SG_OP_TRAP))
            continue;
        straight = insn->guard != 0 && rematerialised[insn->guard - 1] != 0 &&
                   (leave || (jump && ends(kernel, kernel->labels[insn->operands[0].value].insn)));
        if (straight)
            guards->insns[guards->count++] = i;
    }
}
