/* faults_internal.h - between faults.c, which starts and waits, and trap.c, which traps pages. */
#ifndef RG_CLIENT_MANAGED_FAULTS_INTERNAL_H
#define RG_CLIENT_MANAGED_FAULTS_INTERNAL_H

#include "client/managed/faults.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#define RG_FAULT_PAGE 4096u

extern int rg_faults_uffd;    /* -1: there is none, and signals take its place */
extern int rg_faults_pagemap; /* /proc/thread-self/pagemap; -1: it cannot be read */

/** Sees to it that touches without userfaultfd come to our handler; false: they cannot. */
bool rg_faults_need_handler(void);
/** With signals, touches at these addresses are of interest; others go to the application's handler. */
void rg_faults_cover(uint64_t start, uint64_t size);

static inline void *rg_fault_at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/** Lets those go on who wait in the kernel for these pages. */
static inline void rg_faults_wake(uint64_t start, uint64_t size)
{
    struct uffdio_range range = {start, size};
    (void)ioctl(rg_faults_uffd, UFFDIO_WAKE, &range);
}

#endif
