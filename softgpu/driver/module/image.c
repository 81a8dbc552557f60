/*
 * image.c - programs: parsed from what source.c finds in a module image, shared by the modules made of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/cuda/kernel_messages.h"
#include "softgpu/driver/module/module.h"

void sg_image_acquire(struct sg_image *image)
{
    atomic_fetch_add_explicit(&image->references, 1, memory_order_relaxed);
}

void sg_image_release(struct sg_image *image)
{
    if (image == NULL || atomic_fetch_sub_explicit(&image->references, 1, memory_order_acq_rel) != 1)
        return;
    sg_program_destroy(image->program);
    sg_sources_fini(&image->sources);
    free(image);
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
    return (int)sg_state.capability;
}

/* Makes the program of the image's sources; gives up the image if that fails. */
static CUresult parse(struct sg_image *image, struct sg_text *log, struct sg_image **out)
{
    CUresult result = sg_sources_program(&image->sources, log, &image->program);
    if (result != CUDA_SUCCESS) {
        sg_image_release(image);
        return result;
    }
    image->target = target_of(image->sources.at[0].ptx);
    while (sg_program_kernel(image->program, image->n_kernels) != NULL)
        image->n_kernels++;
    while (sg_program_variable(image->program, image->n_variables) != NULL)
        image->n_variables++;
    *out = image;
    return CUDA_SUCCESS;
}

static struct sg_image *new_image(void)
{
    struct sg_image *image = calloc(1, sizeof *image);
    if (image != NULL)
        atomic_init(&image->references, 1);
    return image;
}

/* Programs seldom say why a module did not load, and here the reason is often this one: once a process. */
static void tell_machine_code(CUresult result, const struct sg_text *log)
{
    static atomic_bool told;
    if (result != CUDA_ERROR_NO_BINARY_FOR_GPU || atomic_exchange(&told, true))
        return;
    const char *why = log->data != NULL ? log->data : "machine code alone";
    rg_warn(RG_MODULE_MESSAGE " (%s)%s", why,
            strstr(why, "machine code") != NULL ? "; a real GPU would run its machine code" : "");
}

CUresult sg_image_load(const void *data, struct sg_text *log, struct sg_image **out)
{
    struct sg_image *image = new_image();
    if (image == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sg_sources_add_image(&image->sources, data, log);
    if (result != CUDA_SUCCESS) {
        tell_machine_code(result, log);
        sg_image_release(image);
        return result;
    }
    return parse(image, log, out);
}

CUresult sg_image_again(const struct sg_image *image, struct sg_text *log, struct sg_image **out)
{
    struct sg_image *again = new_image();
    if (again == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < image->sources.n; i++) {
        CUresult result =
            sg_sources_add_text(&again->sources, image->sources.at[i].ptx, image->sources.at[i].size);
        if (result != CUDA_SUCCESS) {
            sg_image_release(again);
            return result;
        }
    }
    return parse(again, log, out);
}
