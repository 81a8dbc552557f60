/* uncancelled.h - parts of functions that a thread of the application is not cancelled in (pthread_cancel). */
#ifndef RG_COMMON_BASE_UNCANCELLED_H
#define RG_COMMON_BASE_UNCANCELLED_H

#include <pthread.h>

static inline int rg_uncancelled_begin(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}
static inline void rg_uncancelled_end(const int *before)
{
    int ignored;
    (void)pthread_setcancelstate(*before, &ignored);
}
/** Until the end of the block. It waits or does input and output with locks or roles that others need, and sees to those. */
#define RG_UNCANCELLED                                                                                       \
    __attribute__((cleanup(rg_uncancelled_end), unused)) const int rg_uncancelled_ = rg_uncancelled_begin()

#endif
