/*
 * streams.h - a driver for NCCL of the software device, whose streams do something only when they are told to: what happens in
 * which order is the test's choice. It stands in the place of softgpu/nccl/driver.c. One thread.
 */
#ifndef RG_TESTS_SOFTGPU_NCCL_STREAMS_H
#define RG_TESTS_SOFTGPU_NCCL_STREAMS_H

#include <cuda.h>
#include <stdbool.h>

enum { STREAMS = 4 };

/** Stream `index` below STREAMS. */
CUstream streams_get(unsigned index);
/** Lets all streams go on as far as they can. */
void streams_run(void);
/** Steps that the stream is still to do. */
unsigned streams_left(unsigned index);
/** Whether memory of the device can be accessed by the process itself; not so, until it is said. */
void streams_set_in_place(bool in_place);
/** Bytes of page-locked memory that there are. */
size_t streams_page_locked(void);

#endif
