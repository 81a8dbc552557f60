/*
 * command.h - what the monitor tells a worker about the suspension of its session: by the signal, with the command as its value.
 * A signal without a value (kill) is RG_SUSPEND_UNTIL_USED.
 */
#ifndef RG_SERVER_SUSPEND_COMMAND_H
#define RG_SERVER_SUSPEND_COMMAND_H

#include <signal.h>

#define RG_SUSPEND_SIGNAL SIGUSR1

enum rg_suspend_command {
    RG_SUSPEND_NOTHING,
    RG_SUSPEND_UNTIL_USED, /* it comes back at its next call */
    RG_SUSPEND_HOLD,       /* it comes back when the monitor says so */
    RG_SUSPEND_RESUME,
    RG_SUSPEND_LOOK, /* at the grant in its slot (server/shares/slot.h), whether it is preempted */
};

/** What came of a command, for the slot (server/shares/slot.h). */
enum rg_suspend_result {
    RG_SUSPEND_DONE = 1,
    RG_SUSPEND_BUSY,       /* it did not come to rest */
    RG_SUSPEND_SHARED,     /* others have a part in its memory */
    RG_SUSPEND_IMPOSSIBLE, /* the driver has no such functions */
    RG_SUSPEND_REFUSED,    /* the driver refuses */
    RG_SUSPEND_PREEMPTED,  /* it is not resumed while a session of higher priority has its memory */
};

#endif
