/*
 * version.h - the driver version that this device passes itself off as. Any thread.
 *
 * SOFTGPU_DRIVER_VERSION=12.0 … 13.0 makes it an older driver, to try what a server does with one: it has no function that
 * came later, neither by cuGetProcAddress nor by dlsym, no later device attribute or JIT option, and takes no PTX of a later
 * version. What has the same name as before behaves as in the newest.
 */
#ifndef SG_DRIVER_BEHAVIOUR_VERSION_H
#define SG_DRIVER_BEHAVIOUR_VERSION_H

#include <stdbool.h>

#include "generated/proto/driver_versions.h"

/** The driver's version that SOFTGPU_DRIVER_VERSION names, else the newest; the same for as long as the process lives. */
const struct rg_driver_version *sg_version(void);
/** Whether it is the newest, of which all that is known is taken. */
bool sg_version_is_newest(void);

#endif
