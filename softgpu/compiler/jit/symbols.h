/*
 * symbols.h - names by which generated code knows what is bound to addresses when the code is loaded. Code is
 * kept from one run to the next, so no address may be in it: besides these there are only the engine's
 * functions and math.c's.
 */
#ifndef SG_COMPILER_JIT_SYMBOLS_H
#define SG_COMPILER_JIT_SYMBOLS_H

/** A variable in .global or .const space, by program_index. */
#define SG_SYMBOL_VARIABLE "sg.variable%u"
/** The program's list of handles: the address of a function is that of its place in it. */
#define SG_SYMBOL_HANDLES "sg.handle.places"
/** A kernel's code, by its number in the program. */
#define SG_SYMBOL_KERNEL "sg.kernel%u"
/** The same of the code that it has until there is better. */
#define SG_SYMBOL_QUICK "sg.quick%u"

#define SG_SYMBOL_SIZE 32

#endif
