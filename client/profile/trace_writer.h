/*
 * trace_writer.h - `remote-gpu run --record`: a trace of all that decides how long a run takes over some
 * network, for `remote-gpu predict`. The file's format is in trace_format.h.
 *
 * Threads note what they do in the profile's events (threads.h): each call, each record that is put into the
 * command stream, each wait. The worker measures how long records and the device's work take (proto/times.h).
 * A thread of ours writes both ten times a second; the file is whole once the process ends by exit.
 */
#ifndef RG_CLIENT_PROFILE_TRACE_WRITER_H
#define RG_CLIENT_PROFILE_TRACE_WRITER_H

#include <stdbool.h>

/** Creates the file, as rg_profile_report_start does; false: it was said why not. */
bool rg_trace_writer_start(const char *path);
/** Sessions have begun, which the file is told of: the program's, and later further ones. Says if a worker measures nothing. */
void rg_trace_writer_sessions(void);
/** Fetches the last times and ends the file. */
void rg_trace_writer_finish(void);

#endif
