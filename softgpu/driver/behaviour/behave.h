/*
 * behave.h - SOFTGPU_BEHAVE=nvidia[:KEY=VALUE…]: what NVIDIA's driver may do, and this device otherwise never does, so that
 * programs and servers that rely on luck are found where there is no GPU. Everything is within the API's rules.
 *
 * Without the setting all questions are answered as for a device that is as quick and as orderly as it can be. What is
 * decided by chance depends on the seed and the order of questions alone. Any thread.
 */
#ifndef SG_DRIVER_BEHAVIOUR_BEHAVE_H
#define SG_DRIVER_BEHAVIOUR_BEHAVE_H

#include "common/cuda/api.h"

#include <stdbool.h>
#include <stdint.h>

struct sg_behaviour {
    bool nvidia;
    unsigned init_ms, context_ms; /* that initialising, and making a context, takes */
    unsigned work_us;             /* a piece of a stream's work begins up to so much later */
    unsigned host_us;             /* so does a host function, on a thread that runs nothing else */
    unsigned queue; /* a launch waits while so many pieces of work are queued in its context; 0: any number */
    unsigned resolution_ns; /* of times between events */
    bool peers;             /* devices can access each other */
    bool registers;         /* host memory can be page-locked where it lies */
    bool lazy;              /* a function's first use waits for the context's work, to load it */
    bool prohibited;        /* the devices' compute mode */
    bool exclusive;         /* the same: one process at a time has contexts on a device */
    bool process;           /* after a fault no context can be made any more in this process */
    bool fixed;             /* initialising takes addresses of its own, or fails where others have them */
    bool cubins; /* machine code is taken for its functions, parameters and variables, and does nothing */
    unsigned fail_at; /* the launch of this number, from 1 on, fails; 0: none */
    CUresult fail_with;
    unsigned load_at; /* so does loading the function that is the first of this number to be used, once */
    CUresult load_with;
};

/** What SOFTGPU_BEHAVE says; read once. */
const struct sg_behaviour *sg_behaviour(void);
/** One of `n` numbers from 0 on, by chance; 0 where nothing is. */
uint64_t sg_behave_chance(uint64_t n);
/** Takes the addresses that NVIDIA's driver has in every process; false: something else is there. Once. */
bool sg_behave_take_addresses(void);
/** Sleeps up to `most_us` microseconds, often not at all. */
void sg_behave_late(unsigned most_us);
void sg_behave_sleep_ms(unsigned ms);
/**
 * Bytes that an allocation of `size` takes of a device's memory: whole blocks of `block` bytes; with NVIDIA's driver those are
 * of 2 MiB, and small allocations share them.
 */
uint64_t sg_behave_taken(uint64_t size, uint64_t block);
/** How the next launch fails, or CUDA_SUCCESS; *at_once: by the call, else when the device gets to it. */
CUresult sg_behave_launch(bool *at_once);
/** How loading a function fails that is used for the first time, or CUDA_SUCCESS. */
CUresult sg_behave_load(void);
/** CU_COMPUTEMODE_… of the devices. */
int sg_behave_compute_mode(void);

#endif
