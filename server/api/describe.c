/*
 * describe.c - tells at once what is in a module or library, and loads images that a program is likely to
 * load, so that the client has the answers to its questions before it asks them.
 *
 * What is told is what the driver says, object by object: functions are listed by it, and variables, which no
 * driver lists, are looked up under the names that the image has (common/cuda/fatbin/variables.h). A function
 * or variable that cannot be found or does not fit is left out: then the client asks for it as it would have
 * done. Images whose variables need much memory, or are managed, are not loaded ahead: that would be seen.
 * Nor is any once that has taken long: a driver that has to compile them is not to keep the program from its
 * first allocation. Nor while the context may be at work (rg_module_may_load).
 */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/cuda/fatbin/variables.h"
#include "generated/server/execute.h"
#include "server/api/module.h"
#include "server/images/image.h"
#include "server/images/layouts.h"
#include "server/shares/worker/share.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_MAX 64u /* of an image that is loaded ahead; of one with more, none are told */
#define LOADED_MAX    16u /* the same of others: the program may use one, and each may have to be loaded */
#define VARIABLES_MAX 64u /* of an image that is loaded ahead */
#define MEMORY_MAX    (256u << 10) /* bytes of those */
#define PREFETCH_NS   2000000000u  /* of a session: then no more images are loaded ahead */
#define NOT_TRIED     UINT32_MAX
/*
 * A library takes memory in a context when the first of its kernels is asked for there: that is done ahead where so much is left that the
 * program does not miss it, should it never ask.
 */
#define TAKES_FROM (1ull << 30) /* bytes */

static void output_u32(struct rg_request *request, uint32_t value)
{
    rg_request_output(request, &value, sizeof value);
}

static bool output_name(struct rg_request *request, const char *name)
{
    const uint64_t size = strlen(name) + 1;
    if (size > RG_NAME_MAX || request->out_size > RG_FUNCTIONS_ANSWER_MAX)
        return false;
    output_u32(request, 1);
    rg_request_output(request, &size, sizeof size);
    rg_request_output(request, name, size);
    return true;
}

/* --- functions ------------------------------------------------------------------------------------------ */

static void describe_module(struct rg_request *request, CUmodule module, unsigned most, bool may_load)
{
    unsigned n = 0;
    if (!rg_driver_has(cuFuncGetParamInfo) ||
        rg_driver.cuModuleGetFunctionCount(&n, module) != CUDA_SUCCESS || n > most)
        n = 0;
    CUfunction found[FUNCTIONS_MAX];
    if (n && rg_driver.cuModuleEnumerateFunctions(found, n, module) != CUDA_SUCCESS)
        n = 0;
    for (unsigned i = 0; i < n; i++) {
        const char *name = NULL;
        if (rg_driver.cuFuncGetName(&name, found[i]) != CUDA_SUCCESS || !output_name(request, name))
            continue;
        output_u32(request, 0);
        request->result = rg_module_output_function(request, found[i], may_load);
    }
    output_u32(request, 0);
}

static bool may_take(const struct rg_worker *worker)
{
    const rg_memory_level left = rg_worker_memory_left(worker);
    return !left || rg_memory_level_bytes(left) >= TAKES_FROM;
}

static void describe_library(struct rg_request *request, CUlibrary library, unsigned most, bool may_load)
{
    const bool takes = may_load && may_take(request->worker);
    unsigned n = 0;
    CUdevice device = 0; /* of the context that is current here */
    (void)rg_driver.cuCtxGetDevice(&device);
    if (!rg_driver_has(cuKernelGetParamInfo) ||
        rg_driver.cuLibraryGetKernelCount(&n, library) != CUDA_SUCCESS || n > most)
        n = 0;
    CUkernel found[FUNCTIONS_MAX];
    if (n && rg_driver.cuLibraryEnumerateKernels(found, n, library) != CUDA_SUCCESS)
        n = 0;
    for (unsigned i = 0; i < n; i++) {
        const char *name = NULL;
        CUfunction function = NULL;
        if (rg_driver.cuKernelGetName(&name, found[i]) != CUDA_SUCCESS || !output_name(request, name))
            continue;
        const bool has = takes && rg_driver.cuKernelGetFunction(&function, found[i]) == CUDA_SUCCESS;
        output_u32(request, has);
        request->result = rg_module_output_kernel(request, found[i], device, has ? function : NULL);
    }
    output_u32(request, 0);
}

CUresult rg_execute_rgModuleDescribe(struct rg_request *request, CUmodule module)
{
    const bool may_load = rg_module_may_load(request);
    rg_request_go_out_of_order(request);
    describe_module(request, module, LOADED_MAX, may_load);
    output_u32(request, 0);
    return request->result;
}

CUresult rg_execute_rgLibraryDescribe(struct rg_request *request, CUlibrary library)
{
    const bool may_load = rg_module_may_load(request);
    rg_request_go_out_of_order(request);
    const uint64_t held = rg_share_held_in_all();
    describe_library(request, library, LOADED_MAX, may_load);
    request->memory_taken = rg_share_taken_since(held);
    output_u32(request, 0);
    return request->result;
}

/* --- images that nobody has asked for ------------------------------------------------------------------- */

/* The variables of an image, each once. */
struct variables {
    unsigned n;
    uint64_t bytes;
    bool suits;
    char *names[VARIABLES_MAX];
};

static void note_variable(void *user, const struct rg_image_variable *variable)
{
    struct variables *variables = user;
    if (*variable->name == '$' || !variables->suits) /* what a compiler made for itself */
        return;
    for (unsigned i = 0; i < variables->n; i++)
        if (strncmp(variables->names[i], variable->name, variable->length) == 0 &&
            !variables->names[i][variable->length])
            return;
    variables->suits = variables->n < VARIABLES_MAX && !variable->managed && variable->bytes <= MEMORY_MAX &&
                       (variables->bytes += variable->bytes) <= MEMORY_MAX && variable->length < RG_NAME_MAX;
    char *name = variables->suits ? strndup(variable->name, variable->length) : NULL;
    if (name)
        variables->names[variables->n++] = name;
    else
        variables->suits = false;
}

static void describe_variables(struct rg_request *request, const struct variables *variables,
                               CUlibrary library, CUmodule module)
{
    for (unsigned i = 0; i < variables->n; i++) {
        CUdeviceptr address = 0;
        size_t bytes = 0;
        CUresult result = module
                              ? rg_driver.cuModuleGetGlobal_v2(&address, &bytes, module, variables->names[i])
                              : rg_driver.cuLibraryGetGlobal(&address, &bytes, library, variables->names[i]);
        if (result == CUDA_SUCCESS && output_name(request, variables->names[i]))
            request->result = rg_module_output_variable(request, address, bytes);
    }
    output_u32(request, 0);
}

/* The library's module in the current context, as which the program may load the image as well. */
static void prefetch_module(struct rg_request *request, CUlibrary library, const struct variables *variables)
{
    CUmodule module;
    const CUresult result = rg_driver.cuLibraryGetModule(&module, library);
    output_u32(request, (uint32_t)result);
    if (result != CUDA_SUCCESS)
        return;
    rg_layouts_module(request, module, library);
    describe_module(request, module, FUNCTIONS_MAX, true);
    describe_variables(request, variables, NULL, module);
}

static void prefetch_image(struct rg_request *request, const struct rg_image *image,
                           const struct rg_image_code *code, const struct variables *variables,
                           uint64_t handle)
{
    CUlibrary library;
    const CUresult result = rg_driver.cuLibraryLoadData(&library, code->data, NULL, NULL, 0, NULL, NULL, 0);
    output_u32(request, (uint32_t)result);
    if (result != CUDA_SUCCESS)
        return;
    rg_layouts_loaded(request, library, image, code, 0);
    rg_request_new(request, RG_KIND_LIBRARY, handle, library);
    describe_library(request, library, FUNCTIONS_MAX, true);
    describe_variables(request, variables, library, NULL);
    prefetch_module(request, library, variables);
}

/* Whether an image can be loaded ahead; its code. */
static bool suitable(struct rg_request *request, struct rg_image *image, struct variables *variables,
                     struct rg_image_code *code)
{
    if (!rg_driver_has(cuLibraryLoadData) || !image || image->parts ||
        rg_image_code(request, image, RG_IMAGE_MODULE, code) != CUDA_SUCCESS)
        return false;
    const bool read = rg_image_variables(code->data, code->size, note_variable, variables);
    return read && variables->suits;
}

CUresult rg_execute_rgImagePrefetch(struct rg_request *request, uint64_t library, unsigned long long id)
{
    struct variables variables = {.suits = true};
    struct rg_image *image = rg_image_take(request->worker, id);
    struct rg_image_prefetch *prefetch = request->worker->state[RG_MODULE_DESCRIBE];
    const bool time_left = prefetch->ns < PREFETCH_NS;
    struct rg_image_code code;
    const bool suits =
        time_left && rg_module_may_load(request) && suitable(request, image, &variables, &code);
    const uint64_t began = rg_now_ns(), held = rg_share_held_in_all();
    if (suits)
        prefetch_image(request, image, &code, &variables, library);
    else
        output_u32(request, NOT_TRIED);
    request->memory_taken = rg_share_taken_since(held);
    prefetch->ns += rg_now_ns() - began;
    for (unsigned i = 0; i < variables.n; i++)
        free(variables.names[i]);
    rg_image_free(request->worker, image);
    return request->result;
}

CUresult rg_execute_rgModuleTake(struct rg_request *request, uint64_t module, CUlibrary library)
{
    CUmodule made = NULL;
    const CUresult result = rg_driver.cuLibraryGetModule(&made, library);
    if (result == CUDA_SUCCESS) {
        rg_layouts_module(request, made, library);
        rg_request_new_of(request, RG_KIND_MODULE, module, made, library);
    }
    return result;
}

const struct rg_server_module rg_describe_module = {.size = sizeof(struct rg_image_prefetch)};
