/*
 * random.c - arc4random() for LLVM's archives, where the software device is built with them inside (SG_LLVM_STATIC): they were
 * compiled where glibc has it (2.36), and the device is to run with older ones. It is not seen outside of the device.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/** A random number, as arc4random(3). Any thread. */
uint32_t arc4random(void)
{
    uint32_t value;
    if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
        abort(); /* so small a request is answered whole, and a kernel without the call has no such C library either */
    return value;
}
