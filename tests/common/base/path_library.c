/* path_library.c - a shared library with its own copy of common/base/path.c, for path.c (the test) to put
 * somewhere. */
#include "common/base/path.h"

enum rg_status rg_test_path_library(const char *part, char *out, size_t size);

__attribute__((visibility("default"))) enum rg_status rg_test_path_library(const char *part, char *out,
                                                                           size_t size)
{
    return rg_path_library(part, out, size);
}
