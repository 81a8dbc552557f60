/* standard_streams.h - programs of ours that are started without standard input, output or error. */
#ifndef RG_COMMON_BASE_STANDARD_STREAMS_H
#define RG_COMMON_BASE_STANDARD_STREAMS_H

#include <stdbool.h>

/**
 * Takes the numbers of those of the three that are closed, so that no file that is opened later gets them, and with it what is
 * written to standard output and error. To use them still fails. With `inherited` what this program starts has them as well, else
 * finds them closed. For the beginning of main.
 */
void rg_standard_streams_take(bool inherited);

#endif
