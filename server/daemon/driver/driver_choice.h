/*
 * driver_choice.h - which driver the server's sessions run on, and whether they may: a driver that was found must also be one to let
 * clients use, whose kernels are confined as the operator wants it. At the start, main thread.
 */
#ifndef RG_SERVER_DAEMON_DRIVER_DRIVER_CHOICE_H
#define RG_SERVER_DAEMON_DRIVER_DRIVER_CHOICE_H

#include "server/daemon/driver/driver.h"

/**
 * Finds the driver that is wanted ("auto", "soft" or a path). `open`: other machines can reach the server. False: it was said why there
 * is none to be used.
 */
RG_MUST_CHECK bool rg_driver_choose(const char *wanted, bool open, struct rg_sandboxes *sandboxes,
                                    struct rg_driver *driver);

#endif
