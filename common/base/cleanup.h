/* cleanup.h - scope-based clean-up of locals: RG_CLEANUP_FREE char *s = strdup(x); */
#ifndef RG_COMMON_BASE_CLEANUP_H
#define RG_COMMON_BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void rg_cleanup_free_p(void *p)
{
    free(*(void **)p);
}
static inline void rg_cleanup_fd_p(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#define RG_CLEANUP_FREE __attribute__((cleanup(rg_cleanup_free_p)))
#define RG_CLEANUP_FD   __attribute__((cleanup(rg_cleanup_fd_p)))

/** Hands the value of `var` out and leaves NULL behind, so that the clean-up does nothing. */
#define RG_TAKE_PTR(var)                                                                                     \
    __extension__({                                                                                          \
        __typeof__(var) rg_taken_ = (var);                                                                   \
        (var) = NULL;                                                                                        \
        rg_taken_;                                                                                           \
    })

#endif
