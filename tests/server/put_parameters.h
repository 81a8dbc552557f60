/* put_parameters.h - parameters of a record as the client's generated code writes them, from C's. */
#ifndef TEST_SERVER_PUT_PARAMETERS_H
#define TEST_SERVER_PUT_PARAMETERS_H

#include "proto/codec.h"

#include <stdarg.h>

/** `format`, a letter each: '4', '8' a number of so many bytes, 's' a text, 'b' (pointer, size) count and bytes, 'r' bytes alone. */
static inline void put_parameters(struct rg_writer *w, const char *format, va_list arguments)
{
    for (; *format; format++) {
        if (*format == '4') {
            rg_put_u32(w, va_arg(arguments, uint32_t));
        } else if (*format == '8') {
            rg_put_u64(w, va_arg(arguments, uint64_t));
        } else if (*format == 's') {
            rg_put_string(w, va_arg(arguments, const char *));
        } else {
            const void *bytes = va_arg(arguments, const void *);
            const size_t size = va_arg(arguments, size_t);
            if (*format == 'b')
                rg_put_u64(w, size);
            if (size)
                rg_put(w, bytes, size);
        }
    }
}

#endif
