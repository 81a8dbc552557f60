/*
 * checked.h - a module of PTX text as parser and checker make it, without generated code: for tests of what is found out about it.
 */
#ifndef TESTS_SOFTGPU_COMPILER_CHECKED_H
#define TESTS_SOFTGPU_COMPILER_CHECKED_H

#include "softgpu/compiler/ir/ir.h"

struct checked {
    struct sg_arena arena, scratch;
    struct sg_diagnostics diagnostics;
    struct sg_text log;
    struct sg_ptx_module *module;
};

/** A header is put before the text. Fails the test where the text does not pass. End it with checked_end. */
void checked_begin(struct checked *checked, const char *text);
void checked_end(struct checked *checked);
/** By name; fails the test if there is none. */
struct sg_ptx_function *checked_function(const struct checked *checked, const char *name);
/** The register that the `n`th instruction, from 0, writes. */
uint32_t checked_result(const struct sg_ptx_function *function, uint32_t n);

#endif
