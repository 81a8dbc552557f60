/* vmm.h - what others ask of physical memory. */
#ifndef SG_DRIVER_MEMORY_VMM_H
#define SG_DRIVER_MEMORY_VMM_H

#include <stdbool.h>

/** Whether another process has, or may have, a part in any physical memory (cuMemExportToShareableHandle and its opposite). */
bool sg_allocations_common(void);

#endif
