/* codec.c - see codec.h. */
#include "transport/multipath/codec.h"

#include "common/base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#ifdef RG_CODECS_INSIDE
#include <lz4.h>
#include <zstd.h>
#endif

enum { ZSTD_FAST_LEVEL = 1 };

/* What is used of the libraries, by the names of their stable interfaces. */
static struct {
    int (*lz4_pack)(const char *from, char *to, int size, int room, int acceleration);
    int (*lz4_unpack)(const char *from, char *to, int packed, int room);
    void *(*zstd_pack_create)(void);
    size_t (*zstd_pack)(void *context, void *to, size_t room, const void *from, size_t size, int level);
    size_t (*zstd_pack_free)(void *context);
    void *(*zstd_unpack_create)(void);
    size_t (*zstd_unpack)(void *context, void *to, size_t room, const void *from, size_t packed);
    size_t (*zstd_unpack_free)(void *context);
    unsigned (*zstd_is_error)(size_t result);
} library;

static bool has_lz4, has_zstd;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Contexts of Zstandard are costly to make: each thread keeps its own. */
static pthread_key_t pack_key, unpack_key;

#ifdef RG_CODECS_INSIDE
/* The portable client has them inside, for images that lack them. */
typedef void (*function)(void);
static const struct {
    const char *name;
    function address;
} inside[] = {{"LZ4_compress_fast", (function)LZ4_compress_fast},
              {"LZ4_decompress_safe", (function)LZ4_decompress_safe},
              {"ZSTD_createCCtx", (function)ZSTD_createCCtx},
              {"ZSTD_compressCCtx", (function)ZSTD_compressCCtx},
              {"ZSTD_freeCCtx", (function)ZSTD_freeCCtx},
              {"ZSTD_createDCtx", (function)ZSTD_createDCtx},
              {"ZSTD_decompressDCtx", (function)ZSTD_decompressDCtx},
              {"ZSTD_freeDCtx", (function)ZSTD_freeDCtx},
              {"ZSTD_isError", (function)ZSTD_isError}};

static void *open_library(const char *name)
{
    (void)name;
    return (void *)inside;
}

static bool symbol(void *handle, const char *name, void *out)
{
    (void)handle;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (strcmp(inside[i].name, name) == 0) {
            memcpy(out, &inside[i].address, sizeof inside[i].address);
            return true;
        }
    return false;
}
#else
static void *open_library(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static bool symbol(void *handle, const char *name, void *out)
{
    void *address = dlsym(handle, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}
#endif

static void free_pack(void *context)
{
    library.zstd_pack_free(context);
}

static void free_unpack(void *context)
{
    library.zstd_unpack_free(context);
}

static void load(void)
{
    void *lz4 = open_library("liblz4.so.1"), *zstd = open_library("libzstd.so.1");
    has_lz4 = lz4 && symbol(lz4, "LZ4_compress_fast", &library.lz4_pack) &&
              symbol(lz4, "LZ4_decompress_safe", &library.lz4_unpack);
    has_zstd = zstd && symbol(zstd, "ZSTD_createCCtx", &library.zstd_pack_create) &&
               symbol(zstd, "ZSTD_compressCCtx", &library.zstd_pack) &&
               symbol(zstd, "ZSTD_freeCCtx", &library.zstd_pack_free) &&
               symbol(zstd, "ZSTD_createDCtx", &library.zstd_unpack_create) &&
               symbol(zstd, "ZSTD_decompressDCtx", &library.zstd_unpack) &&
               symbol(zstd, "ZSTD_freeDCtx", &library.zstd_unpack_free) &&
               symbol(zstd, "ZSTD_isError", &library.zstd_is_error) &&
               pthread_key_create(&pack_key, free_pack) == 0 &&
               pthread_key_create(&unpack_key, free_unpack) == 0;
    if (!has_lz4)
        rg_info("no compression by LZ4: liblz4.so.1 cannot be loaded");
    if (!has_zstd)
        rg_info("no compression by Zstandard: libzstd.so.1 cannot be loaded");
}

bool rg_codec_available(enum rg_compression compression)
{
    if (compression == RG_COMPRESS_NONE)
        return true;
    pthread_once(&once, load);
    return compression == RG_COMPRESS_LZ4    ? has_lz4
           : compression == RG_COMPRESS_ZSTD ? has_zstd
           : compression == RG_COMPRESS_AUTO ? has_lz4 || has_zstd
                                             : false;
}

enum rg_status rg_compression_parse(const char *text, enum rg_compression *out)
{
    static const char *const names[] = {[RG_COMPRESS_NONE] = "none",
                                        [RG_COMPRESS_LZ4] = "lz4",
                                        [RG_COMPRESS_ZSTD] = "zstd",
                                        [RG_COMPRESS_AUTO] = "auto"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(*text ? text : "none", names[i]) == 0) {
            *out = (enum rg_compression)i;
            return RG_OK;
        }
    return RG_ERR_INVALID;
}

/* The thread's context, made when it is first needed; NULL: out of memory. */
static void *context_of_thread(pthread_key_t key, void *(*create)(void))
{
    void *context = pthread_getspecific(key);
    if (!context && (context = create()))
        pthread_setspecific(key, context);
    return context;
}

size_t rg_codec_pack(enum rg_compression codec, void *to, size_t room, const void *from, size_t size)
{
    if (!rg_codec_available(codec) || size > INT_MAX || room > INT_MAX)
        return 0;
    if (codec == RG_COMPRESS_LZ4) {
        const int packed = library.lz4_pack(from, to, (int)size, (int)room, 1);
        return packed > 0 ? (size_t)packed : 0;
    }
    void *context = codec == RG_COMPRESS_ZSTD ? context_of_thread(pack_key, library.zstd_pack_create) : NULL;
    if (!context)
        return 0;
    const size_t packed = library.zstd_pack(context, to, room, from, size, ZSTD_FAST_LEVEL);
    return library.zstd_is_error(packed) ? 0 : packed;
}

bool rg_codec_unpack(enum rg_compression codec, void *to, size_t size, const void *from, size_t packed)
{
    if (!rg_codec_available(codec) || size > INT_MAX || packed > INT_MAX)
        return false;
    if (codec == RG_COMPRESS_LZ4)
        return library.lz4_unpack(from, to, (int)packed, (int)size) == (int)size;
    void *context =
        codec == RG_COMPRESS_ZSTD ? context_of_thread(unpack_key, library.zstd_unpack_create) : NULL;
    return context && library.zstd_unpack(context, to, size, from, packed) == size;
}
