/*
 * gate.h - what every call of the application passes through: calls under way are counted, and new ones are held up while the
 * process is locked (cuCheckpointProcessLock).
 *
 * The exported functions are generated gates around the functions themselves, which have other names inside (generated
 * softgpu/gates.c, inside.h); only calls that change nothing have none (`anytime` in proto/api). A call that the application
 * makes inside another one, from a callback on the same thread, belongs to that one. Host functions pass: the work that they are
 * a part of is waited for, and the driver refuses their calls anyway.
 *
 * Threads: any. A call costs two additions to a counter that few threads share.
 */
#ifndef SG_DRIVER_CORE_GATE_H
#define SG_DRIVER_CORE_GATE_H

#include <stdbool.h>
#include <stdint.h>

/** A call begins: waits while the gate is closed. */
void sg_gate_enter(void);
void sg_gate_leave(void);
/** Whether the calling thread is inside a call. */
bool sg_gate_inside(void);

/**
 * Holds up new calls and waits until those under way have returned, or until `deadline` (ns of the monotonic clock; UINT64_MAX:
 * for ever): false then, and the gate is open again. One thread at a time.
 */
bool sg_gate_close(uint64_t deadline);
void sg_gate_open(void);

static inline bool sg_gate_entered(void)
{
    sg_gate_enter();
    return true;
}
static inline void sg_gate_left(const bool *entered)
{
    (void)entered;
    sg_gate_leave();
}
/** The rest of the block is a call of the application. */
#define SG_GATED __attribute__((cleanup(sg_gate_left), unused)) const bool sg_gated_ = sg_gate_entered()

#endif
