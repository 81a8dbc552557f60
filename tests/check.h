/* check.h - what must be so, in tests that are plain programs. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/** Ends the program where something is not so, and says on stderr what. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);            \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
