/* transfer.c - see transfer.h. */
#include "softgpu/driver/memory/transfer.h"

#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/range/range.h"
#include "softgpu/driver/schedule/schedule.h"
#include "softgpu/exec/exec.h"

#include <string.h>

#define STAGED_MAX 65536

static void move_row(unsigned char *to, const struct sg_transfer *t, const unsigned char *from)
{
    if (t->fill_size == 0) {
        memmove(to, from, t->width);
    } else if (t->fill_size == 1) {
        memset(to, (int)t->fill_value, t->width);
    } else if (t->fill_size == 2) {
        uint16_t *p = (uint16_t *)(void *)to;
        for (size_t i = 0; i < t->width / 2; i++)
            p[i] = (uint16_t)t->fill_value;
    } else {
        uint32_t *p = (uint32_t *)(void *)to;
        for (size_t i = 0; i < t->width / 4; i++)
            p[i] = t->fill_value;
    }
}

static void move(const struct sg_transfer *t)
{
    for (size_t z = 0; z < t->depth; z++)
        for (size_t y = 0; y < t->height; y++)
            move_row(
                (unsigned char *)(uintptr_t)(t->to.address + z * t->to.slice + y * t->to.pitch), t,
                (const unsigned char *)(uintptr_t)(t->from.address + z * t->from.slice + y * t->from.pitch));
}

/* Bytes from the first one moved to behind the last; false if that overflows. */
static bool extent(const struct sg_transfer *t, const struct sg_side *side, uint64_t *bytes)
{
    uint64_t rows, slices;
    return !__builtin_mul_overflow((uint64_t)(t->height - 1), (uint64_t)side->pitch, &rows) &&
           !__builtin_mul_overflow((uint64_t)(t->depth - 1), (uint64_t)side->slice, &slices) &&
           !__builtin_add_overflow(rows, slices, bytes) && !__builtin_add_overflow(*bytes, t->width, bytes) &&
           side->address + *bytes >= side->address;
}

/* Whether the side, if it is device memory, is still there. */
static bool held(const struct sg_transfer *t, const struct sg_side *side)
{
    uint64_t bytes;
    return !sg_address_is_device(side->address) ||
           (extent(t, side, &bytes) && sg_range_allows(side->address, bytes, side == &t->to));
}

/* Memory that was freed by a stream that did not wait for this one is met as a device would meet it. */
static void run_transfer(struct sg_task *task)
{
    const struct sg_transfer *t = (const void *)task->payload;
    bool from_held = t->fill_size != 0 || held(t, &t->from);
    if (from_held && held(t, &t->to)) {
        move(t);
        return;
    }
    rg_warn("a copy or fill was queued for memory at 0x%llx that has been freed since",
            (unsigned long long)(from_held ? t->to.address : t->from.address));
    sg_context_poison(task->stream->object.context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What kind of memory the side is. `device`: the call says it is device memory, so it must be known. */
static CUresult place_side(const struct sg_transfer *t, struct sg_side *side, bool device)
{
    struct sg_range range;
    uint64_t bytes;
    if (!extent(t, side, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_range_find(side->address, &range)) {
        if (device || side->address == 0 || sg_address_is_device(side->address))
            return CUDA_ERROR_INVALID_VALUE;
        side->place = SG_PLACE_PAGEABLE;
        return CUDA_SUCCESS;
    }
    bool host = range.kind == SG_RANGE_HOST || range.kind == SG_RANGE_REGISTERED;
    bool inside = range.kind == SG_RANGE_MAPPED ? sg_range_allows(side->address, bytes, side == &t->to)
                                                : bytes <= range.size - (side->address - range.base);
    if (!inside && (!host || device))
        return CUDA_ERROR_INVALID_VALUE;
    if (sg_range_is_managed(
            range.kind)) /* the host sees it too: synchronous calls must have done their work */
        side->place = SG_PLACE_LOCKED;
    else
        side->place = !host ? SG_PLACE_DEVICE : inside ? SG_PLACE_LOCKED : SG_PLACE_PAGEABLE;
    return CUDA_SUCCESS;
}

bool sg_transfer_is_empty(const struct sg_transfer *t)
{
    return t->width == 0 || t->height == 0 || t->depth == 0;
}

void sg_transfer_join_rows(struct sg_transfer *t, size_t pitch)
{
    size_t bytes;
    if (pitch == t->width && t->depth == 1 && !__builtin_mul_overflow(t->width, t->height, &bytes)) {
        t->width = bytes;
        t->height = 1;
    }
}

/* A task of the transfer; `staged`: the source's bytes are taken along now. */
static struct sg_task *transfer_task(const struct sg_transfer *t, size_t staged)
{
    struct sg_task *task = sg_task_new(sizeof *t + staged, run_transfer, NULL);
    if (task == NULL)
        return NULL;
    struct sg_transfer *mine = (void *)task->payload;
    *mine = *t;
    if (staged > 0) {
        struct sg_transfer stage = *t;
        mine->from =
            (struct sg_side){(uintptr_t)(mine + 1), t->width, t->width * t->height, SG_PLACE_PAGEABLE};
        stage.to = mine->from;
        move(&stage);
    }
    return task;
}

/* Whether a synchronous copy returns when its source has been read, which NVIDIA's driver may. */
static bool is_early(const struct sg_transfer *t, bool asynchronous, bool small)
{
    return sg_behaviour()->nvidia && !asynchronous && small && t->from.place == SG_PLACE_PAGEABLE &&
           t->to.place == SG_PLACE_DEVICE && t->fill_size == 0 && sg_behave_chance(2) == 0;
}

/* Waits for what is before the next task of the stream: of the legacy one, what is in blocking streams, too. */
static CUresult wait_for_earlier(struct sg_stream *stream)
{
    struct sg_task *mark = sg_task_new(0, NULL, NULL);
    if (mark == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_submit_wait(stream, mark);
    return CUDA_SUCCESS;
}

CUresult sg_transfer(struct sg_transfer *t, bool to_device, bool from_device, bool asynchronous,
                     CUstream handle)
{
    SG_STREAM_OR_RETURN(stream, handle);
    if (sg_transfer_is_empty(t))
        return CUDA_SUCCESS;
    RG_TRY(place_side(t, &t->to, to_device));
    if (t->fill_size == 0)
        RG_TRY(place_side(t, &t->from, from_device));
    else
        t->from.place = SG_PLACE_DEVICE;
    if (t->in_order) {
        t->to.place = t->to.place == SG_PLACE_PAGEABLE ? SG_PLACE_LOCKED : t->to.place;
        t->from.place = t->from.place == SG_PLACE_PAGEABLE ? SG_PLACE_LOCKED : t->from.place;
    }
    bool pageable = t->to.place == SG_PLACE_PAGEABLE || t->from.place == SG_PLACE_PAGEABLE;
    bool on_device = t->to.place == SG_PLACE_DEVICE && t->from.place == SG_PLACE_DEVICE;
    bool wait = asynchronous ? pageable : !on_device;
    size_t staged = 0;
    const bool small = t->width <= STAGED_MAX && t->height * t->depth <= STAGED_MAX / t->width;
    if (asynchronous && t->from.place == SG_PLACE_PAGEABLE && t->to.place != SG_PLACE_PAGEABLE && small) {
        staged = t->width * t->height * t->depth;
        wait = false;
    }
    if (is_early(t, asynchronous, small)) {
        /* by the rules for pageable sources: what is before has been waited for, and the copy need not have been made */
        RG_TRY(wait_for_earlier(stream));
        staged = t->width * t->height * t->depth;
        wait = false;
    } else if (asynchronous && staged > 0 && sg_behave_chance(4) == 1) { /* nor need it be asynchronous */
        wait = true;
    }
    struct sg_task *task = transfer_task(t, staged);
    if (task == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!wait) {
        if (small)
            sg_submit_small(stream, task);
        else
            sg_submit(stream, task, NULL);
        return CUDA_SUCCESS;
    }
    sg_submit_wait(stream, task);
    if (!asynchronous)
        sg_exec_flush_output();
    return (CUresult)atomic_load(&stream->object.context->owner->sticky);
}
