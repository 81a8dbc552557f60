/*
 * location.h - where memory is to be that a client asks for.
 *
 * Physical memory and pools of this machine's own memory are refused: the client cannot reach what it would get, and the session would
 * not be charged for it.
 */
#ifndef RG_SERVER_API_LOCATION_H
#define RG_SERVER_API_LOCATION_H

#include <cuda.h>

#include <stdbool.h>

/* Whether this is not a device; a location of no type is the driver's to judge. */
static inline bool rg_location_is_host(const CUmemLocation *location)
{
    return location->type != CU_MEM_LOCATION_TYPE_DEVICE && location->type != CU_MEM_LOCATION_TYPE_INVALID;
}

#endif
