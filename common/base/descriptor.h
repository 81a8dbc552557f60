/* descriptor.h - descriptors of ours inside somebody else's process. */
#ifndef RG_COMMON_BASE_DESCRIPTOR_H
#define RG_COMMON_BASE_DESCRIPTOR_H

/**
 * The same descriptor under a high number, out of the way of what the process does with its own: programs close those of standard
 * streams, and take the numbers for files of theirs. Where there is no other number it stays what it was.
 */
int rg_descriptor_move_up(int fd);

#endif
