/* limits.h - every limit that one side holds the other to, and the sizes both must agree on. */
#ifndef RG_COMMON_BASE_LIMITS_H
#define RG_COMMON_BASE_LIMITS_H

#define RG_DEFAULT_PORT 7600

/* Transport (transport/transport.h) */
#define RG_MESSAGE_MAX (256u * 1024)      /* bytes of a message without its bulk part */
#define RG_BULK_MAX    (4u * 1024 * 1024) /* bytes of bulk data attached to one message */

/* Session */
#define RG_SERVERS_MAX        16           /* servers of one client process */
#define RG_CLIENT_THREADS_MAX 65536u       /* threads of one client process that have called CUDA and live */
#define RG_OBJECTS_MAX        (1u << 22)   /* live objects of one session */
#define RG_NAME_MAX           65536u       /* bytes of a C string in a call, with its NUL */
#define RG_IMAGE_MAX          (2ull << 30) /* bytes of a module image */
#define RG_PARAMS_MAX         32768u       /* bytes of the parameters of one kernel launch (CUDA 13: 32764) */
#define RG_ARRAY_MAX          65536u       /* elements of an array in a call */
#define RG_REPLY_INLINE       65536u       /* bytes of a reply that are not bulk */

/* Server */
#define RG_SESSIONS_DEFAULT 64    /* sessions at once, unless configured */
#define RG_HELLO_TIMEOUT_MS 10000 /* an unfinished handshake is dropped after this */
#define RG_DEVICES_MAX      64

#endif
