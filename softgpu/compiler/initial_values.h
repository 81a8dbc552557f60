/*
 * initial_values.h - the initial values of variables.
 */
#ifndef SG_COMPILER_INITIAL_VALUES_H
#define SG_COMPILER_INITIAL_VALUES_H

#include "softgpu/compiler/ir/ir.h"

/** Writes a placed variable's initial value: zeros, and over them what its initialiser says. */
void sg_initial_write(struct sg_diagnostics *diagnostics, const struct sg_ptx_module *module,
                      struct sg_var *var);

#endif
