/*
 * interop_types.h - cuda.h, and the graphics types that some exported functions name.
 *
 * Graphics interoperation is refused (a remote GPU shares no images with the client's display), so its headers are not
 * needed; only the exported prototypes must be declared.
 */
#ifndef RG_PROTO_INTEROP_TYPES_H
#define RG_PROTO_INTEROP_TYPES_H

#include <cuda.h>
#include <cudaProfiler.h>

#endif
