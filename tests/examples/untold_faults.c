/*
 * untold_faults.c - a kernel that does not say of a page fault whether it was a write, as gVisor's: to be preloaded. Handlers of
 * SIGSEGV find no error code.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

static struct sigaction set; /* what the program believes */

static void without_code(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    registers[REG_ERR] = registers[REG_TRAPNO] = 0;
    set.sa_sigaction(number, info, context);
}

__attribute__((visibility("default"))) int sigaction(int number, const struct sigaction *action,
                                                     struct sigaction *old)
{
    int (*next)(int, const struct sigaction *, struct sigaction *) =
        (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    if (number != SIGSEGV)
        return next(number, action, old);
    if (old)
        *old = set;
    if (!action)
        return 0;
    set = *action;
    struct sigaction told = *action;
    if (action->sa_flags & SA_SIGINFO)
        told.sa_sigaction = without_code;
    return next(number, &told, NULL);
}
