/* scoped_lock.h - a mutex that is held to the end of the block: RG_SCOPED_LOCK(&table->lock); */
#ifndef RG_COMMON_SYNC_SCOPED_LOCK_H
#define RG_COMMON_SYNC_SCOPED_LOCK_H

#include <pthread.h>

static inline pthread_mutex_t *rg_scoped_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}
static inline void rg_scoped_unlock(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

#define RG_SCOPED_NAME_(n) rg_scoped_lock_##n
#define RG_SCOPED_NAME(n)  RG_SCOPED_NAME_(n)
/** Locks `mutex` until the end of the enclosing block, however that is left. Waiting on a condition in between is fine. */
#define RG_SCOPED_LOCK(mutex)                                                                                \
    __attribute__((cleanup(rg_scoped_unlock), unused)) pthread_mutex_t *const RG_SCOPED_NAME(__COUNTER__) =  \
        rg_scoped_lock(mutex)

#endif
