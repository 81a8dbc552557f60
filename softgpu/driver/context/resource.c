/*
 * resource.c - multiprocessors of a device as resources: which there are, dividing them, and descriptions of what a green context
 * is to get.
 *
 * How they can be divided is what cuda.h says of GPUs of the device's compute capability: a group has at least so many and a
 * multiple of so many, as they lie together in clusters of them; with IGNORE_SM_COSCHEDULING two are enough. A device that has fewer
 * than a group must have is one group. Groups are not divided again, but what remains, and what a green context has, is.
 *
 * A resource has the numbers of its multiprocessors in the part of the structure that is the driver's. It is the program's memory:
 * nothing is taken from it that has not been checked. Descriptions are never freed, as nothing in the API ends one. Any thread.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/driver/context/green.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/kernel_abi.h"

#define OURS  0x534d7273u
#define WORDS 19u /* multiprocessors that a resource can name, in 32s */

struct contents {
    uint32_t ours, device;
    uint32_t split; /* which call it came from; 0: none, it is all of something */
    uint32_t whole; /* it may be divided */
    uint32_t set[WORDS];
};
static_assert(sizeof(struct contents) == sizeof((CUdevResource){0}._internal_padding), "all of it");

struct description {
    struct sg_object object;
    const struct sg_device *device;
    uint32_t n;
    uint32_t set[WORDS];
};

/* How groups may be made. */
struct rules {
    unsigned least, multiple;
};

static struct rules rules_of(const struct sg_device *device, unsigned flags)
{
    struct rules rules = {2, 2};
    if (!(flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING)) {
        if (sg_state.capability >= 90)
            rules = (struct rules){8, 8};
        else if (sg_state.capability >= 80)
            rules = (struct rules){4, 2};
        if (flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)
            rules = (struct rules){SG_CLUSTER_MAX, SG_CLUSTER_MAX};
    }
    const unsigned all = (unsigned)device->multiprocessors;
    if (all < rules.least)
        rules = (struct rules){all, all % 2 == 0 ? 2 : 1};
    return rules;
}

static uint32_t count(const uint32_t set[WORDS])
{
    uint32_t n = 0;
    for (unsigned i = 0; i < WORDS; i++)
        n += (uint32_t)__builtin_popcount(set[i]);
    return n;
}

static void make(CUdevResource *resource, const struct contents *contents, struct rules rules)
{
    memset(resource, 0, sizeof *resource);
    memcpy(resource->_internal_padding, contents, sizeof *contents);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = count(contents->set);
    resource->sm.minSmPartitionSize = rules.least;
    resource->sm.smCoscheduledAlignment = rules.multiple;
}

/* What a program gives for a resource; *device: whose it is. */
static CUresult read_resource(const CUdevResource *resource, struct contents *contents,
                              const struct sg_device **device)
{
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(contents, resource->_internal_padding, sizeof *contents);
    *device = contents->ours == OURS && contents->device < SG_DEVICES_MAX
                  ? sg_device((CUdevice)contents->device)
                  : NULL;
    if (*device == NULL || resource->sm.smCount == 0 || count(contents->set) != resource->sm.smCount)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    for (unsigned i = (unsigned)(*device)->multiprocessors; i < WORDS * 32; i++)
        if (contents->set[i / 32] >> i % 32 & 1)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    return CUDA_SUCCESS;
}

/* Moves the first `n` of one set to another, which is empty. */
static void move(uint32_t from[WORDS], uint32_t to[WORDS], unsigned n)
{
    for (unsigned i = 0; n > 0; i++) {
        const uint32_t bit = UINT32_C(1) << i % 32;
        if (!(from[i / 32] & bit))
            continue;
        from[i / 32] &= ~bit;
        to[i / 32] |= bit;
        n--;
    }
}

/* --- asking ------------------------------------------------------------------------------------------- */

CUresult sg_resource_describe(const struct sg_device *device, const struct sg_multiprocessors *some,
                              CUdevResourceType type, CUdevResource *resource)
{
    if (resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if ((unsigned)device->multiprocessors > WORDS * 32)
        return sg_unsupported("dividing a device of more than 608 multiprocessors");
    struct contents contents = {.ours = OURS, .device = (uint32_t)device->ordinal, .whole = true};
    const uint32_t n = some != NULL ? some->n : (uint32_t)device->multiprocessors;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = some != NULL ? some->at[i] : i;
        contents.set[number / 32] |= UINT32_C(1) << number % 32;
    }
    make(resource, &contents, rules_of(device, 0));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SG_DEVICE_OR_RETURN(named, device);
    return sg_resource_describe(named, NULL, type, resource);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type)
{
    if (handle == NULL) /* the manual does not say that it stands for the current one here */
        return CUDA_ERROR_INVALID_CONTEXT;
    SG_CONTEXT_ARGUMENT_OR_RETURN(context, handle);
    return sg_resource_describe(context->device, context->provisioned, type, resource);
}

/* --- dividing ----------------------------------------------------------------------------------------- */

static bool flags_valid(unsigned flags)
{
    const unsigned known =
        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    return !(flags & ~known) && flags != known &&
           (!(flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE) || sg_state.capability >= 90);
}

/* How large each group is to be: at least `wanted`. */
static unsigned group_size(struct rules rules, unsigned wanted)
{
    const unsigned whole = (wanted + rules.multiple - 1) / rules.multiple * rules.multiple;
    return whole > rules.least ? whole : rules.least;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int flags, unsigned int minimum)
{
    static _Atomic uint32_t splits;
    struct contents rest;
    const struct sg_device *device;
    RG_TRY(sg_enter());
    if (groups == NULL || input == NULL || (result != NULL && *groups == 0) || !flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(read_resource(input, &rest, &device));
    if (minimum > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    const struct rules rules = rules_of(device, flags);
    const unsigned size = group_size(rules, minimum), most = input->sm.smCount / size;
    if (!rest.whole || most == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result == NULL || *groups > most)
        *groups = most;
    rest.split = atomic_fetch_add(&splits, 1) + 1;
    for (unsigned i = 0; i < *groups; i++) {
        struct contents group = {.ours = OURS, .device = rest.device, .split = rest.split};
        move(rest.set, group.set, size);
        if (result != NULL)
            make(&result[i], &group, rules);
    }
    if (remaining != NULL && count(rest.set) > 0)
        make(remaining, &rest, rules);
    else if (remaining != NULL)
        memset(remaining, 0, sizeof *remaining); /* CU_DEV_RESOURCE_TYPE_INVALID */
    return CUDA_SUCCESS;
}

/* --- descriptions ------------------------------------------------------------------------------------- */

static void finish_description(struct sg_object *object)
{
    free(object);
}

/* Adds a resource to what is described so far: others of the same call, and nothing twice. */
static CUresult add(struct description *description, const CUdevResource *resource, uint32_t *split,
                    bool first)
{
    struct contents contents;
    const struct sg_device *device;
    RG_TRY(read_resource(resource, &contents, &device));
    if (!first && (device != description->device || contents.split == 0 || contents.split != *split))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *split = contents.split;
    description->device = device;
    for (unsigned i = 0; i < WORDS; i++) {
        if (description->set[i] & contents.set[i])
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        description->set[i] |= contents.set[i];
    }
    description->n += resource->sm.smCount;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned int n)
{
    RG_TRY(sg_enter());
    if (out == NULL || resources == NULL || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct description *description = calloc(1, sizeof *description);
    CUresult result = description == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    uint32_t split = 0;
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = add(description, &resources[i], &split, i == 0);
    if (result != CUDA_SUCCESS) {
        free(description);
        return result;
    }
    sg_handle_add(&description->object, SG_KIND_RESOURCES, NULL, finish_description);
    *out = (CUdevResourceDesc)(void *)description;
    return CUDA_SUCCESS;
}

CUresult sg_resources_provision(CUdevResourceDesc handle, const struct sg_device **device,
                                struct sg_multiprocessors **provided)
{
    SG_REF(struct description) description = handle == NULL ? NULL : sg_handle_get(handle, SG_KIND_RESOURCES);
    if (description == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = description->device;
    *provided = malloc(sizeof **provided + description->n * sizeof(*provided)->at[0]);
    if (*provided == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*provided)->n = 0;
    for (uint32_t i = 0; i < WORDS * 32; i++)
        if (description->set[i / 32] >> i % 32 & 1)
            (*provided)->at[(*provided)->n++] = i;
    return CUDA_SUCCESS;
}
