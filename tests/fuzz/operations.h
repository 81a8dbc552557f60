/* operations.h - the operations of the wire as data: operations.py makes the table from the specification. */
#ifndef RG_TESTS_FUZZ_OPERATIONS_H
#define RG_TESTS_FUZZ_OPERATIONS_H

#include <stddef.h>
#include <stdint.h>

/**
 * A parameter as it travels. type: '4', '8' a number of so many bytes; 'h' a handle of kind `size`, 'n' a new one;
 * 's' a string; 'i' `size` bytes, 'o' u32 whether they are there, and the bytes; 'a' u64 count and that many elements
 * of `size` bytes: as many as parameter `counted` says, or, if that is -1, `count`.
 */
struct fuzz_field {
    char type;
    size_t size;
    int counted;
    size_t count;
};

struct fuzz_operation {
    const char *name;
    unsigned op;
    unsigned n_fields;
    const struct fuzz_field *fields;
};

extern const struct fuzz_operation fuzz_operations[];
extern const unsigned fuzz_n_operations;

#endif
