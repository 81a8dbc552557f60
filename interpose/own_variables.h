/* own_variables.h - libraries that have variables by the names of the driver's functions. */
#ifndef RG_INTERPOSE_OWN_VARIABLES_H
#define RG_INTERPOSE_OWN_VARIABLES_H

#include <stdbool.h>

/**
 * Whether the library at that path, or one beside it that it needs, has such variables. Bound to a driver that is loaded before all
 * libraries, they would be its functions, and the first write to one would end the program. False where the file cannot be read. Any
 * thread.
 */
bool rg_has_own_variables(const char *file);

#endif
