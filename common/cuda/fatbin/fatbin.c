/*
 * fatbin.c - walks the entries of a fat-binary container and chooses among them; see fatbin.h.
 *
 * An entry is a header, its option block and name, and a payload padded to 8 bytes; the next entry follows.
 * Only the first 64 bytes of the header are needed; headers are longer. Offsets of name and options count
 * from the entry and must lie in its header. Nothing is logged here. Any thread.
 */
#include "common/cuda/fatbin/fatbin.h"

#include "common/cuda/image.h"

#include <string.h>

/** The entry's header as it lies in files, little-endian. */
struct header {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t payload_size;
    uint32_t compressed_size; /* 0: not compressed */
    uint32_t options;         /* offset of {u32 offset of the text, u32 its size} */
    uint16_t ptx_minor, ptx_major;
    uint32_t architecture;
    uint32_t name, name_size;
    uint64_t flags, reserved;
    uint64_t size; /* when decompressed; 0: not compressed */
};
_Static_assert(sizeof(struct header) == 64, "as in files");

#define NO_OPTIONS 0u

const char *rg_fatbin_status_string(enum rg_fatbin_status status)
{
    switch (status) {
    case RG_FATBIN_OK:
        return "success";
    case RG_FATBIN_END:
        return "no more entries";
    case RG_FATBIN_INVALID:
        return "the fat binary is malformed";
    case RG_FATBIN_LIMIT:
        return "the fat binary holds an entry that is too large";
    case RG_FATBIN_NO_PTX:
        return "the fat binary holds no PTX for this device";
    case RG_FATBIN_NO_MEMORY:
        return "out of memory";
    }
    return "unknown status";
}

enum rg_fatbin_status rg_fatbin_open(struct rg_fatbin *fatbin, const void *data, uint64_t size)
{
    struct rg_cuda_image image;
    if (rg_cuda_image_identify_bytes(data, size, &image) != RG_CUDA_IMAGE_CONTAINER)
        return RG_FATBIN_INVALID;
    fatbin->next = (const unsigned char *)data + RG_CUDA_CONTAINER_SIZE;
    fatbin->end = (const unsigned char *)data + image.size;
    return RG_FATBIN_OK;
}

/** Finds text of the header: [offset, offset + size) of the entry. False if that is not in the header. */
static bool header_text(const unsigned char *entry, uint32_t header_size, uint32_t offset, uint32_t size,
                        const char **text)
{
    if (offset > header_size || size > header_size - offset)
        return false;
    *text = (const char *)entry + offset;
    return true;
}

enum rg_fatbin_status rg_fatbin_next(struct rg_fatbin *fatbin, struct rg_fatbin_entry *out)
{
    const unsigned char *entry = fatbin->next;
    uint64_t available = (uint64_t)(fatbin->end - entry);
    struct header header;
    struct rg_fatbin_entry e = {0};

    if (!available)
        return RG_FATBIN_END;
    if (available < sizeof(header))
        return RG_FATBIN_INVALID;
    memcpy(&header, entry, sizeof(header));
    if (header.header_size < sizeof(header) || header.header_size > available ||
        header.payload_size > available - header.header_size)
        return RG_FATBIN_INVALID;

    e.kind = header.kind;
    e.architecture = header.architecture;
    e.ptx_major = header.ptx_major;
    e.ptx_minor = header.ptx_minor;
    e.flags = header.flags;
    e.payload = entry + header.header_size;
    if (header.flags & (RG_FATBIN_FLAG_LZ4 | RG_FATBIN_FLAG_ZSTD)) {
        if (header.compressed_size > header.payload_size)
            return RG_FATBIN_INVALID;
        e.stored_size = header.compressed_size;
        e.size = header.size;
    } else {
        e.stored_size = e.size = header.payload_size;
    }
    if (header.name && header.name_size &&
        header_text(entry, header.header_size, header.name, header.name_size, &e.name))
        e.name_size = header.name_size;
    uint32_t block[2];
    if (header.options != NO_OPTIONS && header.options <= header.header_size &&
        sizeof(block) <= header.header_size - header.options) {
        memcpy(block, entry + header.options, sizeof(block));
        if (block[1] && header_text(entry, header.header_size, block[0], block[1], &e.options))
            e.options_size = block[1];
    }
    fatbin->next = e.payload + header.payload_size;
    *out = e;
    return RG_FATBIN_OK;
}

bool rg_fatbin_fits(const struct rg_fatbin_entry *entry, uint32_t capability)
{
    if (entry->kind != RG_FATBIN_PTX)
        return false;
    if (entry->flags & RG_FATBIN_FLAG_ARCH)
        return entry->architecture == capability;
    if (entry->flags & RG_FATBIN_FLAG_FAMILY && entry->architecture / 10 != capability / 10)
        return false;
    return entry->architecture <= capability;
}

/** The order of preference between two entries that fit. */
static bool better(const struct rg_fatbin_entry *a, const struct rg_fatbin_entry *b)
{
    const uint64_t specific = RG_FATBIN_FLAG_ARCH | RG_FATBIN_FLAG_FAMILY;
    if (a->architecture != b->architecture)
        return a->architecture > b->architecture;
    return !(a->flags & specific) && (b->flags & specific);
}

enum rg_fatbin_status rg_fatbin_select(const void *data, uint64_t size, uint32_t capability,
                                       struct rg_fatbin_entry *entry)
{
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry candidate, best = {0};
    bool found = false;
    enum rg_fatbin_status status = rg_fatbin_open(&fatbin, data, size);

    while (status == RG_FATBIN_OK && (status = rg_fatbin_next(&fatbin, &candidate)) == RG_FATBIN_OK) {
        if (rg_fatbin_fits(&candidate, capability) && (!found || better(&candidate, &best))) {
            best = candidate;
            found = true;
        }
    }
    if (status != RG_FATBIN_END)
        return status;
    if (!found)
        return RG_FATBIN_NO_PTX;
    *entry = best;
    return RG_FATBIN_OK;
}
