/*
 * fake_device.h - a device for tests of the worker: what it is given takes time and does nothing. It does one thing after
 * another, whoever gave it, as fast as the clock goes: so a machine that is slow makes it idle, and changes no proportion.
 */
#ifndef TESTS_SERVER_SHARES_GATE_FAKE_DEVICE_H
#define TESTS_SERVER_SHARES_GATE_FAKE_DEVICE_H

#include <stdint.h>

/** Puts it into rg_driver, over the stub driver: copies and writes take `ns` each, and a fill as many nanoseconds as it has bytes. */
void fake_device_use(uint64_t ns);
/** The stream that was given work last, by its number. */
unsigned fake_device_last(void);
/** What it has done so far of what was given to a stream. */
uint64_t fake_device_work(unsigned n);
/** Times that work of a stream was given while another's was under way, and not about to be done: they were not one after another. */
unsigned fake_device_overlaps(void);

#endif
