/*
 * module.h - what others need of modules and libraries.
 */
#ifndef RG_CLIENT_API_MODULE_H
#define RG_CLIENT_API_MODULE_H

#include <stdbool.h>

/**
 * The worker has no memory: unloads what was loaded in the hope that the program asks for it (client/prefetch/), and has
 * later loads wait for their results, which are known no more. False: there was nothing. Any thread, without locks.
 */
bool rg_modules_give_back(void);

#endif
