/* frame.h - what stands before each message on a byte stream: 16 bytes, little-endian. */
#ifndef RG_TRANSPORT_FRAME_H
#define RG_TRANSPORT_FRAME_H

#include "common/base/limits.h"
#include "common/base/status.h"

#include <assert.h>
#include <endian.h>
#include <stdint.h>

#define RG_FRAME_MAGIC 0x31504752u /* "RGP1" */

/** The message's bytes follow, then the bulk data's. */
struct rg_frame {
    uint32_t magic;
    uint32_t msg_size;  /* at most RG_MESSAGE_MAX */
    uint32_t bulk_size; /* at most RG_BULK_MAX */
    uint32_t reserved;  /* 0 */
};
static_assert(sizeof(struct rg_frame) == 16, "the frame header is 16 bytes on the wire");

static inline struct rg_frame rg_frame_encode(size_t msg_size, size_t bulk_size)
{
    return (struct rg_frame){htole32(RG_FRAME_MAGIC), htole32((uint32_t)msg_size),
                             htole32((uint32_t)bulk_size), 0};
}

/** Checks a header from the wire. RG_ERR_PROTOCOL: not one; RG_ERR_LIMIT: too large. */
static inline enum rg_status rg_frame_decode(const struct rg_frame *wire, size_t *msg_size, size_t *bulk_size)
{
    if (le32toh(wire->magic) != RG_FRAME_MAGIC || wire->reserved != 0)
        return RG_ERR_PROTOCOL;
    if (le32toh(wire->msg_size) > RG_MESSAGE_MAX || le32toh(wire->bulk_size) > RG_BULK_MAX)
        return RG_ERR_LIMIT;
    *msg_size = le32toh(wire->msg_size);
    *bulk_size = le32toh(wire->bulk_size);
    return RG_OK;
}

#endif
