/*
 * report.h - the profile's file and the summary.
 *
 * The file is complete JSON at any time: a thread adds what is new ten times a second, each time with a new
 * end behind the timeline. A process that is killed or leaves by _exit so loses what happened after the last
 * time, the call that was running, the names of lines, and the summary.
 */
#ifndef RG_CLIENT_PROFILE_REPORT_H
#define RG_CLIENT_PROFILE_REPORT_H

#include <stdbool.h>

/**
 * Creates the file (`%p` in its name: the process's number; never one that is there already); false: it was
 * said why not.
 */
bool rg_profile_report_start(const char *path);
/** The last time, with lines of code, and the summary on stderr. */
void rg_profile_report_finish(void);

#endif
