/*
 * texref.c - texture and surface references, which came before objects: variables of modules that the
 * application binds.
 *
 * In a program such a variable is a number, that of an object (texture.c). Whatever changes of a reference
 * ends the object that was made for it and makes another; a description that is no texture (yet) leaves none,
 * and fetching by it is a fault. Work that was queued before meets what was bound then: ending an object
 * waits for it.
 *
 * Threads: any, with one lock; two threads that change one reference are the application's error.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/module/module.h"
#include "softgpu/driver/range/range.h"

struct sg_texref {
    struct sg_object object;
    struct sg_texref *next; /* of its module */
    char *name;             /* NULL: made by cuTexRefCreate, of no module */
    bool surface;
    uint64_t *variable; /* where kernels find the object's number; NULL: nowhere */
    unsigned long long bound;
    bool has_resource;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUarray_format format;
    int channels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void finish_reference(struct sg_object *object)
{
    struct sg_texref *reference = (struct sg_texref *)object;
    free(reference->name);
    free(reference);
}

static void unbind(struct sg_texref *reference)
{
    if (reference->bound != 0 && reference->surface)
        cuSurfObjectDestroy(reference->bound);
    else if (reference->bound != 0)
        cuTexObjectDestroy(reference->bound);
    reference->bound = 0;
    if (reference->variable != NULL)
        *reference->variable = 0;
}

/* Makes the object anew; what cannot be one is none. */
static void bind(struct sg_texref *reference)
{
    unsigned long long made = 0;
    unbind(reference);
    if (!reference->has_resource || reference->variable == NULL)
        return;
    CUresult result = reference->surface
                          ? cuSurfObjectCreate(&made, &reference->resource)
                          : cuTexObjectCreate(&made, &reference->resource, &reference->texture, NULL);
    if (result != CUDA_SUCCESS)
        return;
    reference->bound = made;
    *reference->variable = made;
}

/* `context`: of its module; NULL: it is of none. */
static CUresult create(struct sg_texref **out, struct sg_context *context, const char *name, bool surface)
{
    struct sg_texref *reference = calloc(1, sizeof *reference);
    if (reference == NULL || (name != NULL && (reference->name = strdup(name)) == NULL)) {
        free(reference);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reference->surface = surface;
    reference->format = CU_AD_FORMAT_FLOAT;
    reference->channels = 1;
    sg_handle_add(&reference->object, surface ? SG_KIND_SURFREF : SG_KIND_TEXREF, context, finish_reference);
    *out = reference;
    return CUDA_SUCCESS;
}

static void end_references(struct sg_module *module)
{
    while (module->references != NULL) {
        struct sg_texref *reference = module->references;
        module->references = reference->next;
        reference->variable = NULL; /* it has gone with the module */
        unbind(reference);
        if (sg_handle_remove(reference, reference->surface ? SG_KIND_SURFREF : SG_KIND_TEXREF))
            sg_release(&reference->object);
    }
}

static CUresult find(void *out, CUmodule handle, const char *name, bool surface)
{
    CUdeviceptr address = 0;
    CUresult result = CUDA_SUCCESS;
    SG_IMPLY_CONTEXT(SG_KIND_MODULE, handle);
    SG_CONTEXT_OR_RETURN(context);
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SG_HANDLE_OR_RETURN(struct sg_module, module, SG_KIND_MODULE, handle);
    if (sg_module_reference(module, name, &address) !=
        (surface ? SG_REFERENCE_SURFACE : SG_REFERENCE_TEXTURE))
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&lock);
    struct sg_texref *reference = module->references;
    while (reference != NULL && strcmp(reference->name, name) != 0)
        reference = reference->next;
    if (reference == NULL &&
        (result = create(&reference, module->object.context, name, surface)) == CUDA_SUCCESS) {
        reference->variable = (uint64_t *)(uintptr_t)address;
        reference->next = module->references;
        module->references = reference;
        module->end_references = end_references;
    }
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS)
        *(void **)out = reference;
    return result;
}

CUresult cuModuleGetTexRef(CUtexref *out, CUmodule module, const char *name)
{
    return find(out, module, name, false);
}

CUresult cuModuleGetSurfRef(CUsurfref *out, CUmodule module, const char *name)
{
    return find(out, module, name, true);
}

CUresult cuTexRefCreate(CUtexref *out)
{
    struct sg_texref *reference;
    RG_TRY(sg_enter());
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    RG_TRY(create(&reference, NULL, NULL, false));
    *out = (CUtexref)(void *)reference;
    return CUDA_SUCCESS;
}

CUresult cuTexRefDestroy(CUtexref handle)
{
    RG_TRY(sg_enter());
    SG_REF(struct sg_texref) reference = sg_handle_get(handle, SG_KIND_TEXREF);
    if (reference == NULL || reference->name != NULL || !sg_handle_remove(handle, SG_KIND_TEXREF))
        return CUDA_ERROR_INVALID_HANDLE;
    sg_release(&reference->object); /* the handle's */
    return CUDA_SUCCESS;
}

/* --- what is bound --- */

#define ENTER(handle, kind)                                                                                  \
    SG_IMPLY_CONTEXT(kind, handle);                                                                          \
    SG_CONTEXT_OR_RETURN(context);                                                                           \
    SG_HANDLE_OR_RETURN(struct sg_texref, r, kind, handle);

/* A change of a reference: checks, then sets, then binds. */
#define SETTER(name, condition, statement, ...)                                                              \
    CUresult name(CUtexref handle, __VA_ARGS__)                                                              \
    {                                                                                                        \
        ENTER(handle, SG_KIND_TEXREF)                                                                        \
        if (!(condition))                                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
        statement;                                                                                           \
        bind(r);                                                                                             \
        return CUDA_SUCCESS;                                                                                 \
    }

static CUresult set_resource(struct sg_texref *r, const CUDA_RESOURCE_DESC *resource)
{
    r->resource = *resource;
    r->has_resource = true;
    bind(r);
    return CUDA_SUCCESS;
}

/* Binds an array or a mipmapped one, whose format the reference takes over. */
static CUresult set_array(struct sg_texref *r, const CUDA_RESOURCE_DESC *resource,
                          const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    r->format = descriptor->Format;
    r->channels = (int)descriptor->NumChannels;
    return set_resource(r, resource);
}

CUresult cuTexRefSetArray(CUtexref handle, CUarray array, unsigned flags)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    ENTER(handle, SG_KIND_TEXREF)
    if (flags != CU_TRSA_OVERRIDE_FORMAT)
        return CUDA_ERROR_INVALID_VALUE;
    SG_ARRAY_OR_RETURN(checked, array);
    resource.res.array.hArray = array;
    return set_array(r, &resource, &checked->descriptor);
}

CUresult cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray mipmap, unsigned flags)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    ENTER(handle, SG_KIND_TEXREF)
    if (flags != CU_TRSA_OVERRIDE_FORMAT)
        return CUDA_ERROR_INVALID_VALUE;
    SG_MIPMAP_OR_RETURN(checked, mipmap);
    resource.res.mipmap.hMipmappedArray = mipmap;
    return set_array(r, &resource, &checked->descriptor);
}

CUresult cuTexRefSetAddress_v2(size_t *offset, CUtexref handle, CUdeviceptr address, size_t size)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    struct sg_range range;
    ENTER(handle, SG_KIND_TEXREF)
    const size_t beyond = address % SG_TEXTURE_ALIGNMENT_1D;
    if (!sg_range_find(address, &range) || size == 0 || size > range.size - (address - range.base) ||
        (beyond != 0 && offset == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (offset != NULL)
        *offset = beyond;
    resource.res.linear.devPtr = address - beyond;
    resource.res.linear.sizeInBytes = size + beyond;
    resource.res.linear.format = r->format;
    resource.res.linear.numChannels = (unsigned)r->channels;
    return set_resource(r, &resource);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *d, CUdeviceptr address,
                                 size_t pitch)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    struct sg_range range;
    ENTER(handle, SG_KIND_TEXREF)
    if (d == NULL || !sg_range_find(address, &range) || address % SG_TEXTURE_PITCH_ALIGNMENT != 0 ||
        pitch % SG_TEXTURE_PITCH_ALIGNMENT != 0)
        return CUDA_ERROR_INVALID_VALUE;
    resource.res.pitch2D.devPtr = address;
    resource.res.pitch2D.pitchInBytes = pitch;
    resource.res.pitch2D.width = d->Width;
    resource.res.pitch2D.height = d->Height;
    resource.res.pitch2D.format = r->format = d->Format;
    resource.res.pitch2D.numChannels = d->NumChannels;
    r->channels = (int)d->NumChannels;
    return set_resource(r, &resource);
}

CUresult cuSurfRefSetArray(CUsurfref handle, CUarray array, unsigned flags)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    ENTER(handle, SG_KIND_SURFREF)
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    SG_ARRAY_OR_RETURN(checked, array);
    if (!(checked->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST))
        return CUDA_ERROR_INVALID_VALUE;
    resource.res.array.hArray = array;
    return set_resource(r, &resource);
}

/* --- how it is read --- */

CUresult cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels)
{
    uint32_t size;
    enum sg_texel texel;
    ENTER(handle, SG_KIND_TEXREF)
    RG_TRY(sg_array_format(format, (unsigned)channels, &size, &texel));
    r->format = format;
    r->channels = channels;
    if (r->has_resource && r->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
        r->resource.res.linear.format = format;
        r->resource.res.linear.numChannels = (unsigned)channels;
        bind(r);
    }
    return CUDA_SUCCESS;
}

SETTER(cuTexRefSetAddressMode, dim >= 0 && dim < 3 && (unsigned)mode <= CU_TR_ADDRESS_MODE_BORDER,
       r->texture.addressMode[dim] = mode, int dim, CUaddress_mode mode)
SETTER(cuTexRefSetFilterMode, (unsigned)mode <= CU_TR_FILTER_MODE_LINEAR, r->texture.filterMode = mode,
       CUfilter_mode mode)
SETTER(cuTexRefSetMipmapFilterMode, (unsigned)mode <= CU_TR_FILTER_MODE_LINEAR,
       r->texture.mipmapFilterMode = mode, CUfilter_mode mode)
SETTER(cuTexRefSetMipmapLevelBias, true, r->texture.mipmapLevelBias = bias, float bias)
SETTER(cuTexRefSetMipmapLevelClamp, true,
       (r->texture.minMipmapLevelClamp = least, r->texture.maxMipmapLevelClamp = most), float least,
       float most)
SETTER(cuTexRefSetMaxAnisotropy, true, r->texture.maxAnisotropy = most, unsigned most)
SETTER(cuTexRefSetBorderColor, color != NULL, memcpy(r->texture.borderColor, color, 4 * sizeof *color),
       float *color)
SETTER(cuTexRefSetFlags,
       !(flags & ~(unsigned)(CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                             CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION)),
       r->texture.flags = flags, unsigned flags)

/* A reference is its module's, whatever kernel of it is launched: kernels that name it read by it without this. */
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref handle)
{
    int threads;
    RG_TRY(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    ENTER(handle, SG_KIND_TEXREF)
    return unit == CU_PARAM_TR_DEFAULT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- questions --- */

/* What a reference has: where a condition does not hold, there is nothing to tell. */
#define GETTER(name, handles, type, kind, condition, value)                                                  \
    CUresult name(type *out, handles handle)                                                                 \
    {                                                                                                        \
        ENTER(handle, kind)                                                                                  \
        if (out == NULL || !(condition))                                                                     \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
        *out = value;                                                                                        \
        return CUDA_SUCCESS;                                                                                 \
    }
#define HAS(what) (r->has_resource && r->resource.resType == CU_RESOURCE_TYPE_##what)

GETTER(cuTexRefGetArray, CUtexref, CUarray, SG_KIND_TEXREF, HAS(ARRAY), r->resource.res.array.hArray)
GETTER(cuTexRefGetMipmappedArray, CUtexref, CUmipmappedArray, SG_KIND_TEXREF, HAS(MIPMAPPED_ARRAY),
       r->resource.res.mipmap.hMipmappedArray)
GETTER(cuTexRefGetAddress_v2, CUtexref, CUdeviceptr, SG_KIND_TEXREF, HAS(LINEAR) || HAS(PITCH2D),
       HAS(LINEAR) ? r->resource.res.linear.devPtr : r->resource.res.pitch2D.devPtr)
GETTER(cuTexRefGetFilterMode, CUtexref, CUfilter_mode, SG_KIND_TEXREF, true, r->texture.filterMode)
GETTER(cuTexRefGetMipmapFilterMode, CUtexref, CUfilter_mode, SG_KIND_TEXREF, true,
       r->texture.mipmapFilterMode)
GETTER(cuTexRefGetMipmapLevelBias, CUtexref, float, SG_KIND_TEXREF, true, r->texture.mipmapLevelBias)
GETTER(cuTexRefGetMaxAnisotropy, CUtexref, int, SG_KIND_TEXREF, true, (int)r->texture.maxAnisotropy)
GETTER(cuTexRefGetFlags, CUtexref, unsigned, SG_KIND_TEXREF, true, r->texture.flags)
GETTER(cuSurfRefGetArray, CUsurfref, CUarray, SG_KIND_SURFREF, HAS(ARRAY), r->resource.res.array.hArray)

CUresult cuTexRefGetAddressMode(CUaddress_mode *out, CUtexref handle, int dim)
{
    ENTER(handle, SG_KIND_TEXREF)
    if (out == NULL || dim < 0 || dim >= 3)
        return CUDA_ERROR_INVALID_VALUE;
    *out = r->texture.addressMode[dim];
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref handle)
{
    ENTER(handle, SG_KIND_TEXREF)
    if (format == NULL || channels == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *format = r->format;
    *channels = r->channels;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetMipmapLevelClamp(float *least, float *most, CUtexref handle)
{
    ENTER(handle, SG_KIND_TEXREF)
    if (least == NULL || most == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *least = r->texture.minMipmapLevelClamp;
    *most = r->texture.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetBorderColor(float *color, CUtexref handle)
{
    ENTER(handle, SG_KIND_TEXREF)
    if (color == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(color, r->texture.borderColor, sizeof r->texture.borderColor);
    return CUDA_SUCCESS;
}
