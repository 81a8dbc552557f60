/*
 * command.h - what remote-gpu run can tell of a command before it runs it.
 */
#ifndef RG_CLIENT_CLI_BASE_COMMAND_H
#define RG_CLIENT_CLI_BASE_COMMAND_H

#include <stdbool.h>

/**
 * Warns if the command, looked for as execvp(3) does, will have other rights than its caller's: for such programs ld.so ignores
 * LD_PRELOAD and LD_LIBRARY_PATH, and remote-gpu its variables, so neither it nor what it starts finds a server.
 */
void rg_cli_warn_of_rights(const char *command);
/** Whether the command, looked for likewise, is not one of another C library than ours. False: that was said. */
bool rg_cli_can_preload(const char *command);

#endif
