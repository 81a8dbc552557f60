/*
 * source.c - what applications pass as a module, down to PTX: text, a fat binary or its wrapper.
 *
 * A machine-code image (cubin) without PTX cannot run here: CUDA_ERROR_NO_BINARY_FOR_GPU, and the log says
 * why. A program of relocatable device code (nvcc -rdc=true) comes as a wrapper that lists the objects the
 * device linker took in: their PTX is linked here. What cuLinkComplete gives out for several inputs is a
 * container of its own kind that holds them all.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/cuda/fatbin/extract.h"
#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/fatbin/ptx_words.h"
#include "common/cuda/image.h"
#include "common/cuda/ptx_carrier.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/behaviour/version.h"
#include "softgpu/driver/module/cubin.h"
#include "softgpu/driver/module/module.h"

#define BUNDLE_KIND 0x5347 /* the first entry of a bundle: no kind of NVIDIA's */

void sg_log_say(struct sg_text *log, const char *format, ...)
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

CUresult sg_compile_result(enum sg_compile_status status)
{
    switch (status) {
    case SG_COMPILE_OK:
        return CUDA_SUCCESS;
    case SG_COMPILE_INVALID_PTX:
        return CUDA_ERROR_INVALID_PTX;
    case SG_COMPILE_UNKNOWN:
        return CUDA_ERROR_NOT_SUPPORTED;
    case SG_COMPILE_UNSUPPORTED_PTX:
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case SG_COMPILE_NO_BINARY:
    case SG_COMPILE_UNRESOLVED: /* what GPUs' drivers say where they cannot link what they have compiled */
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case SG_COMPILE_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case SG_COMPILE_ENDING:
        return CUDA_ERROR_DEINITIALIZED;
    }
    return CUDA_ERROR_UNKNOWN;
}

static CUresult fatbin_result(enum rg_fatbin_status status, struct sg_text *log)
{
    switch (status) {
    case RG_FATBIN_OK:
        return CUDA_SUCCESS;
    case RG_FATBIN_NO_PTX:
        sg_log_say(log,
                   "the fat binary has no PTX for compute capability %u.%u or lower, and machine code cannot "
                   "run here",
                   sg_state.capability / 10, sg_state.capability % 10);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case RG_FATBIN_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        sg_log_say(log, "fat binary: %s", rg_fatbin_status_string(status));
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

/* Text that is the sources' from now on. All of it together is limited: each entry, and each way to one, counts. */
static CUresult add(struct sg_sources *sources, char *text, size_t size)
{
    if (size > RG_FATBIN_TEXT_MAX - sources->bytes) {
        free(text);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sources->bytes += size;
    struct sg_source *at = realloc(sources->at, (sources->n + 1) * sizeof *at);
    if (at == NULL) {
        free(text);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sources->at = at;
    at[sources->n++] = (struct sg_source){text, size};
    return CUDA_SUCCESS;
}

CUresult sg_sources_add_text(struct sg_sources *sources, const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    char *copy = strndup(text, length);
    return copy != NULL ? add(sources, copy, length) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_entry(struct sg_sources *sources, const struct rg_fatbin_entry *entry,
                          struct sg_text *log)
{
    char *text = NULL;
    size_t size = 0;
    RG_TRY(fatbin_result(rg_fatbin_extract(entry, &text, &size), log));
    return add(sources, text, size);
}

/* The PTX of the objects that the device linker took in. */
static CUresult add_linked(struct sg_sources *sources, const void *const *objects, struct sg_text *log)
{
    size_t before = sources->n;
    for (; *objects != NULL; objects++) {
        struct rg_cuda_image object;
        struct rg_fatbin_entry entry;
        if (rg_cuda_image_identify(*objects, &object) == RG_CUDA_IMAGE_CONTAINER &&
            rg_fatbin_select(object.data, object.size, sg_state.capability, &entry) == RG_FATBIN_OK)
            RG_TRY(add_entry(sources, &entry, log));
    }
    return sources->n > before ? CUDA_SUCCESS : fatbin_result(RG_FATBIN_NO_PTX, log);
}

/* True if the container is a bundle; then *fatbin stands behind its mark. */
static bool is_bundle(const struct rg_cuda_image *image, struct rg_fatbin *fatbin)
{
    struct rg_fatbin_entry entry;
    return rg_fatbin_open(fatbin, image->data, image->size) == RG_FATBIN_OK &&
           rg_fatbin_next(fatbin, &entry) == RG_FATBIN_OK && entry.kind == BUNDLE_KIND;
}

/* Whether it has code for link-time optimisation and nothing that runs, as nvcc makes it for code=lto_NN. */
static bool is_intermediate(const struct rg_cuda_image *image)
{
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    bool intermediate = false;
    if (rg_fatbin_open(&fatbin, image->data, image->size) != RG_FATBIN_OK)
        return false;
    while (rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK) {
        if (entry.kind == RG_FATBIN_PTX || entry.kind == RG_FATBIN_ELF)
            return false;
        intermediate |= entry.kind == RG_FATBIN_NVVM;
    }
    return intermediate;
}

static CUresult add_container(struct sg_sources *sources, const struct rg_cuda_image *image,
                              struct sg_text *log)
{
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    if (is_bundle(image, &fatbin)) {
        enum rg_fatbin_status status;
        while ((status = rg_fatbin_next(&fatbin, &entry)) == RG_FATBIN_OK)
            RG_TRY(add_entry(sources, &entry, log));
        return status == RG_FATBIN_END ? CUDA_SUCCESS : fatbin_result(status, log);
    }
    enum rg_fatbin_status status = rg_fatbin_select(image->data, image->size, sg_state.capability, &entry);
    if (status == RG_FATBIN_NO_PTX && image->prelinked != NULL)
        return add_linked(sources, image->prelinked, log);
    if (status == RG_FATBIN_NO_PTX && sg_behaviour()->cubins &&
        sg_cubin_add_of_container(sources, image->data, image->size, log) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    if (status == RG_FATBIN_NO_PTX && is_intermediate(image)) {
        sg_log_say(log,
                   "the fat binary holds intermediate code for link-time optimisation (LTO-IR) alone: "
                   "only PTX can run here, which nvcc makes with code=compute_NN and nvJitLink with -ptx");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    RG_TRY(fatbin_result(status, log));
    return add_entry(sources, &entry, log);
}

/* An ELF file is machine code, if it is none that carries PTX. */
static CUresult add_elf(struct sg_sources *sources, const struct rg_cuda_image *image, struct sg_text *log)
{
    struct rg_ptx_carrier carrier;
    const char *text;
    size_t size, n = 0;
    if (rg_ptx_carrier_open(&carrier, image->data, image->size))
        for (; rg_ptx_carrier_next(&carrier, &text, &size); n++)
            RG_TRY(sg_sources_add_text(sources, text, size));
    if (n > 0)
        return CUDA_SUCCESS;
    if (sg_behaviour()->cubins)
        return sg_cubin_add(sources, image->data, image->size, log);
    sg_log_say(log, "the image is machine code of a real device: only PTX can run here");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* Whether the text begins as PTX must, behind blanks and comments: with its version. */
static bool begins_as_ptx(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n\v\f");
        const char *end = strncmp(text, "//", 2) == 0   ? strchr(text, '\n')
                          : strncmp(text, "/*", 2) == 0 ? strstr(text + 2, "*/")
                                                        : NULL;
        if (end == NULL)
            return strncmp(text, ".version", 8) == 0;
        text = *end == '*' ? end + 2 : end;
    }
}

CUresult sg_sources_add_found(struct sg_sources *sources, const struct rg_cuda_image *image,
                              struct sg_text *log)
{
    switch (image->kind) {
    case RG_CUDA_IMAGE_PTX:
        if (!begins_as_ptx(image->data)) {
            sg_log_say(log, "text that is no PTX: it does not begin with .version");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        return sg_sources_add_text(sources, image->data, (size_t)image->size);
    case RG_CUDA_IMAGE_ELF:
        return add_elf(sources, image, log);
    case RG_CUDA_IMAGE_CONTAINER:
        return add_container(sources, image, log);
    default:
        sg_log_say(log, "neither PTX nor a fat binary");
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

CUresult sg_sources_add_image(struct sg_sources *sources, const void *data, struct sg_text *log)
{
    struct rg_cuda_image image;
    (void)rg_cuda_image_identify(data, &image);
    return sg_sources_add_found(sources, &image, log);
}

/* What the directive in "….version 8.4…" says: 84; 0: it cannot be read, and is the compiler's to complain about. */
static unsigned ptx_version(const struct sg_source *source)
{
    struct rg_ptx_text text = {source->ptx, source->ptx + source->size};
    struct rg_ptx_word word;
    unsigned major = 0, minor = 0;
    char number[16] = "";
    while (rg_ptx_next(&text, &word))
        if (rg_ptx_is(&word, ".version")) {
            if (rg_ptx_next(&text, &word) && word.length < sizeof number)
                memcpy(number, word.at, word.length);
            return sscanf(number, "%u.%u", &major, &minor) == 2 && minor < 10 ? major * 10 + minor : 0;
        }
    return 0;
}

/* An older driver does not take PTX of newer toolkits. */
static CUresult check_versions(const struct sg_sources *sources, struct sg_text *log)
{
    const unsigned newest = sg_version()->ptx;
    for (size_t i = 0; i < sources->n && !sg_version_is_newest(); i++) {
        const unsigned version = ptx_version(&sources->at[i]);
        if (version > newest) {
            sg_log_say(log,
                       "ptxas application ptx input; fatal   : Unsupported .version %u.%u; current version "
                       "is '%u.%u'",
                       version / 10, version % 10, newest / 10, newest % 10);
            return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        }
    }
    return CUDA_SUCCESS;
}

CUresult sg_sources_program(const struct sg_sources *sources, struct sg_text *log, struct sg_program **out)
{
    RG_TRY(check_versions(sources, log));
    if (sources->n == 1)
        return sg_compile_result(
            sg_program_create(sources->at[0].ptx, sources->at[0].size, sg_state.capability, log, out));
    return sg_compile_result(sg_program_link(sources->at, sources->n, sg_state.capability, log, out));
}

void sg_sources_fini(struct sg_sources *sources)
{
    for (size_t i = 0; i < sources->n; i++)
        free((char *)(uintptr_t)sources->at[i].ptx);
    free(sources->at);
    *sources = (struct sg_sources){0};
}

/* --- bundles --- */

/* An entry's header as in fat binaries; what is not named is 0. */
struct entry_header {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t payload_size;
    uint64_t unused[2];
    uint64_t names;
    uint64_t flags;
    uint64_t unused_end[2];
};
_Static_assert(sizeof(struct entry_header) == 64, "as in files");

static size_t put_entry(unsigned char *to, uint16_t kind, const char *text, size_t size)
{
    size_t padded = (size + 8) & ~(size_t)7; /* at least one NUL */
    struct entry_header header = {
        .kind = kind, .version = 0x0101, .header_size = sizeof header, .payload_size = padded, .flags = 0x11};
    if (to != NULL) {
        memcpy(to, &header, sizeof header);
        memset(to + sizeof header, 0, padded);
        memcpy(to + sizeof header, text, size);
    }
    return sizeof header + padded;
}

CUresult sg_sources_bundle(const struct sg_sources *sources, void **image, size_t *size)
{
    if (sources->n == 1) {
        *size = sources->at[0].size + 1;
        *image = strdup(sources->at[0].ptx);
        return *image != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t total = put_entry(NULL, BUNDLE_KIND, "", 0);
    for (size_t i = 0; i < sources->n; i++)
        total += put_entry(NULL, RG_FATBIN_PTX, sources->at[i].ptx, sources->at[i].size);
    if (total > RG_IMAGE_MAX - RG_CUDA_CONTAINER_SIZE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *bytes = malloc(RG_CUDA_CONTAINER_SIZE + total);
    if (bytes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
    } container = {RG_CUDA_CONTAINER_MAGIC, 1, RG_CUDA_CONTAINER_SIZE, total};
    memcpy(bytes, &container, sizeof container);
    unsigned char *at = bytes + sizeof container;
    at += put_entry(at, BUNDLE_KIND, "", 0);
    for (size_t i = 0; i < sources->n; i++)
        at += put_entry(at, RG_FATBIN_PTX, sources->at[i].ptx, sources->at[i].size);
    *image = bytes;
    *size = RG_CUDA_CONTAINER_SIZE + total;
    return CUDA_SUCCESS;
}
