/*
 * codec.h - compression of pieces of bulk data: LZ4 and Zstandard, and the choice between them and none.
 *
 * The libraries are loaded by name when compression is first asked for, so that programs which do not use it
 * have nothing of them, and their own versions are not mixed up with ours.
 */
#ifndef RG_TRANSPORT_MULTIPATH_CODEC_H
#define RG_TRANSPORT_MULTIPATH_CODEC_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What the user asked for (REMOTE_GPU_COMPRESS); on the wire in hellos, and the first three for pieces. */
enum rg_compression {
    RG_COMPRESS_NONE = 0,
    RG_COMPRESS_LZ4 = 1,
    RG_COMPRESS_ZSTD = 2,
    RG_COMPRESS_AUTO = 3, /* whichever is fastest, as measured */
};

/** Understands "", "none", "lz4", "zstd", "auto". RG_ERR_INVALID: none of these. */
RG_MUST_CHECK enum rg_status rg_compression_parse(const char *text, enum rg_compression *out);
/** Whether this machine has what it takes; loads it. For auto: one of both is enough. Any thread. */
bool rg_codec_available(enum rg_compression compression);
/**
 * Compresses `size` bytes into at most `room` bytes. 0: they do not fit, so that sending them as they are is
 * better. Any thread.
 */
size_t rg_codec_pack(enum rg_compression codec, void *to, size_t room, const void *from, size_t size);
/** Takes apart what must be exactly `size` bytes; writes no byte beyond. False: it is not. Any thread. */
bool rg_codec_unpack(enum rg_compression codec, void *to, size_t size, const void *from, size_t packed);

#endif
