/*
 * image.c - what applications pass as a module: PTX text, a fat binary or its wrapper, parsed into a program.
 *
 * A machine-code image (cubin) without PTX cannot run here: CUDA_ERROR_NO_BINARY_FOR_GPU, and the log says
 * why.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda/image.h"
#include "softgpu/driver/module.h"
#include "softgpu/image/image.h"

#define SG_CAPABILITY (SG_CAPABILITY_MAJOR * 10 + SG_CAPABILITY_MINOR)

CUresult sg_compile_result(enum sg_compile_status status)
{
    switch (status) {
    case SG_COMPILE_OK:
        return CUDA_SUCCESS;
    case SG_COMPILE_INVALID_PTX:
        return CUDA_ERROR_INVALID_PTX;
    case SG_COMPILE_UNSUPPORTED_PTX:
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case SG_COMPILE_NO_BINARY:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case SG_COMPILE_UNRESOLVED:
        return CUDA_ERROR_NOT_FOUND;
    case SG_COMPILE_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_ERROR_UNKNOWN;
}

void sg_image_acquire(struct sg_image *image)
{
    atomic_fetch_add_explicit(&image->references, 1, memory_order_relaxed);
}

void sg_image_release(struct sg_image *image)
{
    if (image == NULL || atomic_fetch_sub_explicit(&image->references, 1, memory_order_acq_rel) != 1)
        return;
    sg_program_destroy(image->program);
    free(image->text);
    free(image);
}

static void say(struct sg_text *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct sg_text *log, const char *format, ...)
{
    va_list arguments;
    char *line = NULL;
    va_start(arguments, format);
    int n = vasprintf(&line, format, arguments);
    va_end(arguments);
    if (n < 0)
        return;
    sg_text_fini(log);
    log->data = line;
    log->size = (size_t)n;
}

static CUresult fatbin_result(enum sg_fatbin_status status, struct sg_text *log)
{
    switch (status) {
    case SG_FATBIN_OK:
        return CUDA_SUCCESS;
    case SG_FATBIN_NO_PTX:
        say(log,
            "the fat binary has no PTX for compute capability %d.%d or lower, and machine code cannot run "
            "here",
            SG_CAPABILITY_MAJOR, SG_CAPABILITY_MINOR);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case SG_FATBIN_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        say(log, "fat binary: %s", sg_fatbin_status_string(status));
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

/*
 * The PTX of a program of relocatable device code: what the device linker took in is listed beside its result. One
 * object stands by itself; several would have to be linked.
 */
static CUresult select_linked(const void *const *objects, struct sg_text *log, struct sg_fatbin_entry *out)
{
    unsigned found = 0;
    for (; *objects != NULL; objects++) {
        struct rg_cuda_image object;
        struct sg_fatbin_entry entry;
        if (rg_cuda_image_identify(*objects, &object) != RG_CUDA_IMAGE_CONTAINER ||
            sg_fatbin_select(object.data, object.size, SG_CAPABILITY, &entry) != SG_FATBIN_OK)
            continue;
        if (found++ == 0)
            *out = entry;
    }
    if (found == 1)
        return CUDA_SUCCESS;
    if (found == 0)
        return fatbin_result(SG_FATBIN_NO_PTX, log);
    say(log, "%u objects of relocatable device code (-rdc): linking PTX is not supported", found);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* The PTX text of the image, NUL-terminated, in memory of its own. */
static CUresult extract(const void *data, struct sg_text *log, char **text, size_t *size)
{
    struct rg_cuda_image image;
    struct sg_fatbin_entry entry;
    switch (rg_cuda_image_identify(data, &image)) {
    case RG_CUDA_IMAGE_PTX:
        *size = (size_t)image.size - 1;
        *text = strdup(image.data);
        return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    case RG_CUDA_IMAGE_ELF:
        say(log, "the image is machine code of a real device: only PTX can run here");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case RG_CUDA_IMAGE_CONTAINER: {
        enum sg_fatbin_status status = sg_fatbin_select(image.data, image.size, SG_CAPABILITY, &entry);
        if (status == SG_FATBIN_NO_PTX && image.prelinked != NULL)
            SG_RETURN_IF(select_linked(image.prelinked, log, &entry));
        else
            SG_RETURN_IF(fatbin_result(status, log));
        return fatbin_result(sg_fatbin_extract(&entry, text, size), log);
    }
    default:
        say(log, "neither PTX nor a fat binary");
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

/* The architecture that the text was compiled for: 75 of ".target sm_75, …". */
static int target_of(const char *text)
{
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        int target;
        line += strspn(line, " \t\r\n");
        if (sscanf(line, ".target sm_%d", &target) == 1)
            return target;
    }
    return SG_CAPABILITY;
}

CUresult sg_image_load(const void *data, struct sg_text *log, struct sg_image **out)
{
    struct sg_image *image = calloc(1, sizeof *image);
    if (image == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&image->references, 1);
    CUresult result = extract(data, log, &image->text, &image->text_size);
    if (result == CUDA_SUCCESS)
        result = sg_compile_result(
            sg_program_create(image->text, image->text_size, SG_CAPABILITY, log, &image->program));
    if (result != CUDA_SUCCESS) {
        sg_image_release(image);
        return result;
    }
    image->target = target_of(image->text);
    while (sg_program_kernel(image->program, image->n_kernels) != NULL)
        image->n_kernels++;
    while (sg_program_variable(image->program, image->n_variables) != NULL)
        image->n_variables++;
    *out = image;
    return CUDA_SUCCESS;
}
