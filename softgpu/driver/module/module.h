/*
 * module.h - code and variables in contexts.
 *
 * An image is a program parsed from one or several PTX modules. A module is an image placed in one context:
 * its variables have addresses there, its functions can be launched. A library is an image without a context,
 * with a kernel for each entry; where a context is needed, it makes a module of itself for that context, once
 * a life of the context.
 */
#ifndef SG_DRIVER_MODULE_MODULE_H
#define SG_DRIVER_MODULE_MODULE_H

#include "softgpu/compiler/compiler.h"
#include "softgpu/compiler/ir/types.h"
#include "softgpu/driver/driver.h"

struct rg_cuda_image;
struct sg_library;

/* PTX modules that make one program; the texts are owned, each followed by a NUL. */
struct sg_sources {
    struct sg_source *at;
    size_t n;
    uint64_t bytes; /* of all texts */
};
/** Adds the PTX that `data`, any kind of module image, holds. */
CUresult sg_sources_add_image(struct sg_sources *sources, const void *data, struct sg_text *log);
/** The same of an image that has been identified, by whatever bounds there are. */
CUresult sg_sources_add_found(struct sg_sources *sources, const struct rg_cuda_image *image,
                              struct sg_text *log);
/**
 * Adds the PTX in an object of host code, or in all objects of a library (host_code.c). CUDA_ERROR_NO_BINARY_FOR_GPU: there is none;
 * CUDA_ERROR_INVALID_IMAGE: a library or a fat binary that is damaged. The log says which.
 */
CUresult sg_sources_add_host_code(struct sg_sources *sources, const void *data, size_t size,
                                  struct sg_text *log);
/** Adds a copy of `size` bytes of text. */
CUresult sg_sources_add_text(struct sg_sources *sources, const char *text, size_t size);
/** Parses and links them. */
CUresult sg_sources_program(const struct sg_sources *sources, struct sg_text *log, struct sg_program **out);
/**
 * Makes one module image of them: the text itself if there is one, else a container that sg_sources_add_image
 * takes apart again. Free with free().
 */
CUresult sg_sources_bundle(const struct sg_sources *sources, void **image, size_t *size);
void sg_sources_fini(struct sg_sources *sources);

struct sg_image {
    _Atomic uint32_t references;
    _Atomic bool placed; /* its program's variables have addresses: it serves one module only */
    struct sg_program *program;
    struct sg_sources sources; /* to parse it again for another context */
    uint32_t n_kernels, n_variables;
    int target; /* the architecture of the PTX, like 75 */
};

/* What the application can set of a function; a kernel's is shared by its functions on one device. */
struct sg_settings {
    _Atomic int dynamic_shared_max;
    _Atomic int carveout;
    _Atomic int nonportable_cluster;
    _Atomic int cluster[3]; /* blocks in each direction; zeros: not set */
    _Atomic int cluster_policy;
    _Atomic int cache_config;
};

struct sg_kernel_object;

struct sg_function {
    struct sg_object object;
    struct sg_module *module; /* reference held */
    size_t index;
    const struct sg_kernel *kernel;
    struct sg_settings *settings; /* own_settings or the kernel's */
    struct sg_settings own_settings;
    _Atomic bool told;          /* why it cannot be launched */
    _Atomic bool used;          /* loading it may fail at the first use alone */
    _Atomic bool lazily_loaded; /* its first use has waited for the context's work (SOFTGPU_BEHAVE) */
};

/* Memory of managed variables: of a module, or of all modules of a library. */
struct sg_managed {
    _Atomic uint32_t references;
    uint64_t memory;
};

struct sg_module {
    struct sg_object object;
    struct sg_image *image;
    struct sg_kernel_object **kernels; /* of its library, by index; NULL: it is a module of its own */
    uint64_t variables;                /* base of the memory of all variables but managed ones, 0 if none */
    struct sg_managed *managed;        /* of those that are managed: a reference; NULL: there are none */
    uint64_t *addresses;               /* by variable */
    struct sg_texref *references;      /* to textures and surfaces, that were asked for */
    void (*end_references)(struct sg_module *module); /* set with the first of them */
    struct sg_function **functions;
    struct sg_module *next; /* in context->modules */
};

struct sg_kernel_object {
    struct sg_object object;
    struct sg_library *library; /* reference held */
    size_t index;
    const struct sg_kernel *kernel;
    struct sg_settings settings[SG_DEVICES_MAX];
};

/* Options of loading calls, taken apart. */
struct sg_load_options {
    char *error_log, *info_log;
    size_t error_size, info_size;
    void **error_size_out, **info_size_out; /* where the bytes written are reported */
    void **wall_time;
    uint64_t started;
};

/** Takes apart what a load was given; where the results go is kept in `jit`. */
CUresult sg_jit_options(struct sg_load_options *jit, unsigned n, const CUjit_option *options, void **values);
/** Reports the log through the options: the error log if `failed`, and the sizes in any case. */
void sg_jit_report(const struct sg_load_options *jit, const struct sg_text *log, bool failed);

/** Makes this line the log; the log stays as it was if there is no memory. */
void sg_log_say(struct sg_text *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Parses what an application passed as a module image; *out has one reference. */
CUresult sg_image_load(const void *data, struct sg_text *log, struct sg_image **out);
/** The same program once more. */
CUresult sg_image_again(const struct sg_image *image, struct sg_text *log, struct sg_image **out);
void sg_image_acquire(struct sg_image *image);
void sg_image_release(struct sg_image *image);
CUresult sg_compile_result(enum sg_compile_status status);

/**
 * Places the image in the context; the module is registered and has its handle's reference. `managed`: of its library, whose modules
 * have their managed variables in common, with what was written to them; filled in with a reference by the first one. NULL: it has none.
 */
CUresult sg_module_new(struct sg_context *context, struct sg_image *image, struct sg_kernel_object **kernels,
                       struct sg_managed **managed, struct sg_text *log, struct sg_module **out);
void sg_managed_release(struct sg_managed *managed);
/** Gives each variable of a module that is being made its address in an allocation of the context's device; `managed` as above. */
CUresult sg_module_place_variables(struct sg_module *module, struct sg_managed **managed);
/** Takes the module's and its functions' handles away and drops their references. False: it was no live
 * module. */
bool sg_module_destroy(struct sg_module *module);
void sg_modules_drop_context(struct sg_context *context);
/** The address and size of a variable; CUDA_ERROR_NOT_FOUND. */
CUresult sg_module_variable(const struct sg_module *module, const char *name, CUdeviceptr *address,
                            size_t *size);

/** The library's module in `context`, made if needed; a reference is taken. */
CUresult sg_library_module(struct sg_library *library, struct sg_context *context, struct sg_module **out);
/**
 * What `handle`, a CUfunction or a CUkernel passed as one, means in `context` (NULL: no context needed,
 * kernels are refused); a reference is taken.
 */
CUresult sg_function_get(const void *handle, struct sg_context *context, struct sg_function **out);
/** The image that the library was loaded from. Borrowed. */
const struct sg_image *sg_library_image(const struct sg_library *library);
void sg_settings_init(struct sg_settings *settings, const struct sg_kernel *kernel);

/** What kind of reference the variable of a name is, and its address. */
enum sg_reference sg_module_reference(const struct sg_module *module, const char *name, CUdeviceptr *address);

/* The kernel of a library that a handle names, for a call that needs no context, or return. */
#define SG_KERNEL_OR_RETURN(var, handle)                                                                     \
    RG_TRY(sg_enter());                                                                                      \
    SG_HANDLE_OR_RETURN(struct sg_kernel_object, var, SG_KIND_KERNEL, handle)

#endif
