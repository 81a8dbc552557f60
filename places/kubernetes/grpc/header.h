/* header.h - a header of HTTP/2 as nghttp2 takes it: two texts that remain until it has been submitted. */
#ifndef RG_PLACES_KUBERNETES_GRPC_HEADER_H
#define RG_PLACES_KUBERNETES_GRPC_HEADER_H

#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <string.h>

#define RG_GRPC_HEADER(name_, value_)                                                                        \
    {                                                                                                        \
        .name = (uint8_t *)(uintptr_t)(name_), .namelen = strlen(name_),                                     \
        .value = (uint8_t *)(uintptr_t)(value_), .valuelen = strlen(value_), .flags = NGHTTP2_NV_FLAG_NONE   \
    }

#endif
