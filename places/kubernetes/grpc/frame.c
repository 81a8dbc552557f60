/* frame.c - see frame.h. */
#include "places/kubernetes/grpc/frame.h"

#include <stdio.h>

enum rg_grpc_status rg_grpc_unframe(const uint8_t *data, size_t size, const uint8_t **message,
                                    size_t *message_size)
{
    if (size < RG_GRPC_FRAME)
        return RG_GRPC_INTERNAL;
    const uint32_t stated =
        (uint32_t)data[1] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 8 | data[4];
    if (stated != size - RG_GRPC_FRAME || data[0] > 1)
        return RG_GRPC_INTERNAL;
    if (data[0] == 1)
        return RG_GRPC_UNIMPLEMENTED;
    *message = data + RG_GRPC_FRAME;
    *message_size = stated;
    return RG_GRPC_OK;
}

void rg_grpc_frame(uint8_t out[RG_GRPC_FRAME], size_t size)
{
    out[0] = 0;
    for (int i = 0; i < 4; i++)
        out[1 + i] = (uint8_t)(size >> (24 - 8 * i));
}

void rg_grpc_escape(const char *text, char *out, size_t room)
{
    size_t used = 0;
    for (; *text && used + 4 <= room; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c >= 0x20 && c < 0x7f && c != '%')
            out[used++] = (char)c;
        else
            used += (size_t)snprintf(out + used, room - used, "%%%02X", c);
    }
    out[used] = '\0';
}
