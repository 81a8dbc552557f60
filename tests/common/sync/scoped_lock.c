/* scoped_lock.c - the lock is held to the end of the block, however that is left. */
#include "common/sync/scoped_lock.h"

#include <criterion/criterion.h>
#include <errno.h>

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;

static int is_held(pthread_mutex_t *mutex)
{
    if (pthread_mutex_trylock(mutex) == EBUSY)
        return 1;
    pthread_mutex_unlock(mutex);
    return 0;
}

static int leave_early(int early)
{
    RG_SCOPED_LOCK(&outer);
    if (early)
        return is_held(&outer);
    {
        RG_SCOPED_LOCK(&inner);
        cr_assert(is_held(&outer) && is_held(&inner));
    }
    cr_assert_not(is_held(&inner));
    return is_held(&outer);
}

Test(scoped_lock, ends_with_its_block)
{
    cr_assert(leave_early(1));
    cr_assert_not(is_held(&outer));
    cr_assert(leave_early(0));
    cr_assert_not(is_held(&outer));
}

Test(scoped_lock, every_turn_of_a_loop_takes_it_anew)
{
    for (int i = 0; i < 3; i++) {
        cr_assert_not(is_held(&outer));
        RG_SCOPED_LOCK(&outer);
        if (i == 1)
            continue;
        cr_assert(is_held(&outer));
    }
    cr_assert_not(is_held(&outer));
}
