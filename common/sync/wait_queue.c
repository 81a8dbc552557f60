/* wait_queue.c - see wait_queue.h. */
#include "common/sync/wait_queue.h"

#include "common/base/clock.h"

/* On the stack of who sleeps. It goes away under the lock, so that who wakes is done with it. */
struct rg_wait_queue_entry {
    struct rg_wait_queue_entry *next, *previous;
    pthread_cond_t wake;
    bool woken;
};

static void enter(struct rg_wait_queue *list, struct rg_wait_queue_entry *self)
{
    self->woken = false;
    self->next = NULL;
    self->previous = list->last;
    if (list->last)
        list->last->next = self;
    else
        list->first = self;
    list->last = self;
    list->count++;
}

static void leave(struct rg_wait_queue *list, struct rg_wait_queue_entry *self)
{
    if (self->previous)
        self->previous->next = self->next;
    else
        list->first = self->next;
    if (self->next)
        self->next->previous = self->previous;
    else
        list->last = self->previous;
    list->count--;
}

static bool wake(struct rg_wait_queue *list, struct rg_wait_queue_entry *sleeper)
{
    if (!sleeper)
        return false;
    leave(list, sleeper);
    sleeper->woken = true;
    pthread_cond_signal(&sleeper->wake);
    return true;
}

void rg_wait_queue_wait(struct rg_wait_queue *list, pthread_mutex_t *lock)
{
    struct rg_wait_queue_entry self;
    pthread_cond_init(&self.wake, NULL);
    enter(list, &self);
    while (!self.woken)
        pthread_cond_wait(&self.wake, lock);
    pthread_cond_destroy(&self.wake);
}

bool rg_wait_queue_wait_until(struct rg_wait_queue *list, pthread_mutex_t *lock, const struct timespec *until)
{
    struct rg_wait_queue_entry self;
    int error = 0;
    rg_cond_init(&self.wake);
    enter(list, &self);
    while (!self.woken && error == 0)
        error = pthread_cond_timedwait(&self.wake, lock, until);
    if (!self.woken)
        leave(list, &self);
    pthread_cond_destroy(&self.wake);
    return self.woken;
}

bool rg_wait_queue_wake_first(struct rg_wait_queue *list)
{
    return wake(list, list->first);
}

bool rg_wait_queue_wake_last(struct rg_wait_queue *list)
{
    return wake(list, list->last);
}
