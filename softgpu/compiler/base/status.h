/*
 * status.h - how a compilation ends, and the text that tells why.
 */
#ifndef SG_COMPILER_BASE_STATUS_H
#define SG_COMPILER_BASE_STATUS_H

#include <stddef.h>

/** Text for CU_JIT_ERROR_LOG_BUFFER / CU_JIT_INFO_LOG_BUFFER; grows as needed, always NUL-terminated. */
struct sg_text {
    char *data;
    size_t size;
};
/** It can be used again, empty. NULL is fine. */
void sg_text_fini(struct sg_text *text);

enum sg_compile_status {
    SG_COMPILE_OK = 0,
    SG_COMPILE_INVALID_PTX, /* CUDA_ERROR_INVALID_PTX: syntax, type error */
    SG_COMPILE_UNKNOWN,     /* CUDA_ERROR_NOT_SUPPORTED: the kernel has an instruction that is not known */
    SG_COMPILE_UNSUPPORTED_PTX, /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION: .version newer than known */
    SG_COMPILE_NO_BINARY,       /* CUDA_ERROR_NO_BINARY_FOR_GPU: .target above the device's capability */
    SG_COMPILE_UNRESOLVED, /* CUDA_ERROR_NO_BINARY_FOR_GPU: extern symbol without definition; log names it */
    SG_COMPILE_NO_MEMORY,
    SG_COMPILE_ENDING, /* CUDA_ERROR_DEINITIALIZED: the process exits */
};

#endif
