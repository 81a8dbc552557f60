/*
 * check.h - from modules as written to a checked one.
 */
#ifndef SG_COMPILER_CHECK_CHECK_H
#define SG_COMPILER_CHECK_CHECK_H

#include "softgpu/compiler/ir/ir.h"
#include "softgpu/compiler/parse/ast.h"

/**
 * Resolves and checks `count` modules as one: what is .visible or .weak in one satisfies .extern in the
 * others, names without linkage are the module's own. What is not needed afterwards is put into `scratch`,
 * which is empty again at the end. Fails through the arenas' diagnostics; `scratch` is then the caller's to
 * clear.
 */
struct sg_ptx_module *sg_check(struct sg_arena *arena, struct sg_arena *scratch, struct sg_ast *const *asts,
                               size_t count, uint32_t capability);

#endif
