/*
 * kernel_messages.h - how a line on standard error begins, behind the name of who says it, that the software device has for the
 * programmer rather than for who runs the machine: a kernel or a module that it cannot run, or not yet. A server passes such lines on to its client.
 */
#ifndef RG_COMMON_CUDA_KERNEL_MESSAGES_H
#define RG_COMMON_CUDA_KERNEL_MESSAGES_H

#define RG_KERNEL_MESSAGE      "this device cannot run kernel '"
#define RG_KERNEL_SLOW_MESSAGE "still compiling kernel '"
#define RG_MODULE_MESSAGE      "this device cannot run a module that has no PTX"

#endif
