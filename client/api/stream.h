/* stream.h - streams as other parts of the client need them. */
#ifndef RG_CLIENT_API_STREAM_H
#define RG_CLIENT_API_STREAM_H

/** A number for cuStreamGetId. Any thread. */
unsigned long long rg_stream_next_id(void);

#endif
