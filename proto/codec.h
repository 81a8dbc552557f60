/*
 * codec.h - writing and reading the parameters of records and replies.
 *
 * The writer fills memory whose size was computed beforehand; it checks nothing. The reader is the one place where
 * bytes from the wire are taken apart: every get checks what is left, the first that does not fit sets the sticky
 * `bad` flag, and from then on all gets return zeros or NULL. Callers check the flag once, before they act.
 */
#ifndef RG_PROTO_CODEC_H
#define RG_PROTO_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is little-endian; add byte swapping to codec.h for this machine"
#endif

struct rg_writer {
    unsigned char *at;
};

struct rg_reader {
    const unsigned char *at;
    const unsigned char *end;
    bool bad;
};

static inline void rg_put(struct rg_writer *w, const void *data, size_t size)
{
    if (size) {
        memcpy(w->at, data, size);
        w->at += size;
    }
}
static inline void rg_put_u32(struct rg_writer *w, uint32_t value)
{
    rg_put(w, &value, sizeof value);
}
static inline void rg_put_u64(struct rg_writer *w, uint64_t value)
{
    rg_put(w, &value, sizeof value);
}
static inline void rg_put_f32(struct rg_writer *w, float value)
{
    rg_put(w, &value, sizeof value);
}

static inline struct rg_reader rg_reader_of(const void *data, size_t size)
{
    return (struct rg_reader){.at = data, .end = (const unsigned char *)data + size};
}
static inline size_t rg_left(const struct rg_reader *r)
{
    return (size_t)(r->end - r->at);
}
/** The next `size` bytes in place (unaligned), or NULL with `bad` set. */
static inline const void *rg_get(struct rg_reader *r, size_t size)
{
    if (r->bad || size > rg_left(r)) {
        r->bad = true;
        return NULL;
    }
    const void *data = r->at;
    r->at += size;
    return data;
}
/** Copies the next `size` bytes to `out`; zeros when they are not there. */
static inline void rg_get_into(struct rg_reader *r, void *out, size_t size)
{
    const void *data = rg_get(r, size);
    if (data)
        memcpy(out, data, size);
    else
        memset(out, 0, size);
}
static inline uint32_t rg_get_u32(struct rg_reader *r)
{
    uint32_t value;
    rg_get_into(r, &value, sizeof value);
    return value;
}
static inline uint64_t rg_get_u64(struct rg_reader *r)
{
    uint64_t value;
    rg_get_into(r, &value, sizeof value);
    return value;
}
static inline float rg_get_f32(struct rg_reader *r)
{
    float value;
    rg_get_into(r, &value, sizeof value);
    return value;
}
/** A count of elements of `size` bytes, at most `limit`; bad if more, or if they cannot be in what is left. */
static inline size_t rg_get_count(struct rg_reader *r, size_t limit, size_t size)
{
    uint64_t count = rg_get_u64(r);
    if (r->bad || count > limit || (size && count > rg_left(r) / size)) {
        r->bad = true;
        return 0;
    }
    return (size_t)count;
}
/** A C string written by rg_put_string, in place, or NULL (which the writer may have meant, or `bad`). */
static inline const char *rg_get_string(struct rg_reader *r, size_t limit)
{
    size_t size = rg_get_count(r, limit, 1);
    if (size == 0)
        return NULL;
    const char *text = rg_get(r, size);
    if (!text || text[size - 1] != '\0' || memchr(text, '\0', size - 1)) {
        r->bad = true;
        return NULL;
    }
    return text;
}
static inline size_t rg_size_of_string(const char *text)
{
    return 8 + (text ? strlen(text) + 1 : 0);
}
static inline void rg_put_string(struct rg_writer *w, const char *text)
{
    size_t size = text ? strlen(text) + 1 : 0;
    rg_put_u64(w, size);
    if (size)
        rg_put(w, text, size);
}

#endif
