/* start.h - the sessions begin: by the first call that needs a server. */
#ifndef RG_CLIENT_CONNECT_START_H
#define RG_CLIENT_CONNECT_START_H

#include <cuda.h>

/**
 * Connects if that has not happened yet. CUDA_SUCCESS, or the error that this and every later attempt returns
 * (CUDA_ERROR_NO_DEVICE: no server, or it refused; told once on stderr with the reason). Any thread.
 */
CUresult rg_connect_start(void);

#endif
