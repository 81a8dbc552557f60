/*
 * initial_values.c - writes initial values to placed variables: numbers of the variable's type, addresses of
 * variables and functions. Rows of arrays of arrays start where the element count of the text puts them: PTX
 * from compilers is flat.
 */
#include "softgpu/compiler/initial_values.h"
#include "softgpu/compiler/parse/ast.h"

#include <string.h>

struct writer {
    struct sg_diagnostics *diagnostics;
    const struct sg_ptx_module *module;
    struct sg_var *var;
    uint64_t at; /* bytes written */
};

static uint64_t number_bits(const struct sg_ast_initial *initial, enum sg_type type)
{
    double wide;
    float narrow;
    uint32_t narrow_bits = (uint32_t)initial->value;
    uint64_t bits = initial->value;
    if (initial->kind == SG_INITIAL_FLOAT32 && sg_types[type].bits == 64) {
        memcpy(&narrow, &narrow_bits, sizeof(narrow));
        wide = (double)narrow;
        memcpy(&bits, &wide, sizeof(bits));
    } else if (initial->kind == SG_INITIAL_FLOAT64 && sg_types[type].bits == 32) {
        memcpy(&wide, &initial->value, sizeof(wide));
        narrow = (float)wide;
        memcpy(&narrow_bits, &narrow, sizeof(narrow_bits));
        bits = narrow_bits;
    } else if (initial->kind == SG_INITIAL_INTEGER && sg_type_is_float(type) && type == SG_F64) {
        wide = (double)(int64_t)initial->value;
        memcpy(&bits, &wide, sizeof(bits));
    } else if (initial->kind == SG_INITIAL_INTEGER && type == SG_F32) {
        narrow = (float)(int64_t)initial->value;
        memcpy(&narrow_bits, &narrow, sizeof(narrow_bits));
        bits = narrow_bits;
    }
    return bits;
}

static uint64_t symbol_address(struct writer *writer, const struct sg_ast_initial *initial)
{
    const struct sg_symbol *symbol = initial->resolved;
    uint64_t address = 0;
    if (symbol->kind == SG_SYMBOL_FUNCTION) {
        const struct sg_ptx_function *function = symbol->function;
        if (function->alias_of != NULL)
            function = function->alias_of;
        address = (uint64_t)(uintptr_t)&writer->module->handles[function->handle];
    } else if (symbol->var->space == SG_SPACE_GLOBAL || symbol->var->space == SG_SPACE_CONST) {
        if (symbol->var->address == NULL)
            sg_fail(writer->diagnostics, SG_COMPILE_UNRESOLVED, 0, "undefined variable '%s'",
                    symbol->var->name);
        address = (uint64_t)(uintptr_t)symbol->var->address;
    } else {
        sg_fail(writer->diagnostics, SG_COMPILE_INVALID_PTX, initial->line,
                "the address of '%s' is not known before a kernel runs", symbol->var->name);
    }
    address += initial->value;
    if (initial->mask != 0) /* the bits that the mask covers, moved down */
        address = (address & initial->mask) >> __builtin_ctzll(initial->mask);
    return address;
}

static void write_value(struct writer *writer, const struct sg_ast_initial *initial)
{
    uint32_t bytes = sg_type_bytes(writer->var->type);
    uint64_t bits = initial->kind == SG_INITIAL_SYMBOL ? symbol_address(writer, initial)
                                                       : number_bits(initial, writer->var->type);
    unsigned char value[16] = {0};
    if (bytes > writer->var->size || writer->at > writer->var->size - bytes)
        sg_fail(writer->diagnostics, SG_COMPILE_INVALID_PTX, initial->line,
                "too many initial values for '%s'", writer->var->name);
    memcpy(value, &bits, sizeof(bits));
    memcpy(writer->var->address + writer->at, value, bytes);
    writer->at += bytes;
}

static void write_initial(struct writer *writer, const struct sg_ast_initial *initial)
{
    if (initial->kind != SG_INITIAL_LIST) {
        write_value(writer, initial);
        return;
    }
    for (uint32_t i = 0; i < initial->n_items; i++)
        write_initial(writer, &initial->items[i]);
}

void sg_initial_write(struct sg_diagnostics *diagnostics, const struct sg_ptx_module *module,
                      struct sg_var *var)
{
    struct writer writer = {diagnostics, module, var, 0};
    if (var->address == NULL)
        sg_fail(diagnostics, SG_COMPILE_UNRESOLVED, 0, "variable '%s' has no place", var->name);
    memset(var->address, 0, var->size);
    if (var->initial != NULL)
        write_initial(&writer, var->initial);
}
