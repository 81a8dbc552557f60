/*
 * interop_types.h - cuda.h, and the graphics types that some exported functions name.
 *
 * Graphics interoperation is refused (a remote GPU shares no images with the client's display), so its headers are not
 * needed; only the exported prototypes must be declared, with arguments of the right sizes. The names are those of
 * cudaGL.h, cudaEGL.h and cudaVDPAU.h and of the headers that those include.
 */
#ifndef RG_PROTO_API_INTEROP_TYPES_H
#define RG_PROTO_API_INTEROP_TYPES_H

#include <cuda.h>
#include <cudaProfiler.h>

typedef unsigned int GLuint;
typedef unsigned int GLenum;
typedef unsigned int CUGLDeviceList;

typedef int EGLint;
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;
typedef struct CUeglFrame_st {
    void *planes[3];
    unsigned int numbers[9];
} CUeglFrame;

typedef unsigned int VdpDevice;
typedef unsigned int VdpVideoSurface;
typedef unsigned int VdpOutputSurface;
typedef int VdpGetProcAddress(VdpDevice device, unsigned int function, void **address);

#endif
