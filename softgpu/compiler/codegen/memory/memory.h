/*
 * memory.h - what reads and writes memory: loads, stores, atomics, copies, barriers in shared memory,
 * tensors, textures; and the conversions of addresses.
 */
#ifndef SG_COMPILER_CODEGEN_MEMORY_MEMORY_H
#define SG_COMPILER_CODEGEN_MEMORY_MEMORY_H

#include "softgpu/compiler/codegen/builder/builder.h"

/* Emitters: see arithmetic.h. */
LLVMValueRef sg_emit_memory(struct sg_codegen *gen);   /* memory.c */
LLVMValueRef sg_emit_space(struct sg_codegen *gen);    /* spaces.c */
LLVMValueRef sg_emit_atomic(struct sg_codegen *gen);   /* atomic.c */
LLVMValueRef sg_emit_copy(struct sg_codegen *gen);     /* copy.c */
LLVMValueRef sg_emit_mbarrier(struct sg_codegen *gen); /* mbarrier.c */
LLVMValueRef sg_emit_tensor(struct sg_codegen *gen);   /* tensor.c */
LLVMValueRef sg_emit_texture(struct sg_codegen *gen);  /* texture.c */

/* --- what they share --- */

/** What .acquire and its like ask of an access that loads, stores, or both. */
LLVMAtomicOrdering sg_gen_ordering(struct sg_codegen *gen, bool load, bool store);
/** Says of an access that it does not depend on those of other threads, if its space allows that. */
void sg_gen_mark_parallel(struct sg_codegen *gen, LLVMValueRef access, uint8_t space);
/** The instruction's operation (.add, .min …) in its type, by one thread, on what `address` points to. */
void sg_gen_reduce(struct sg_codegen *gen, LLVMValueRef address, LLVMValueRef value);
/** Runs `turn` once for each block of the cluster (`rank` of 64 bits) that is in the mask (of 64 bits). */
void sg_gen_for_blocks(struct sg_codegen *gen, LLVMValueRef mask,
                       void (*turn)(struct sg_codegen *gen, LLVMValueRef rank, void *user), void *user);
/** Tells the mbarrier that `pointer` points to that bytes (of 32 bits) have come. */
void sg_gen_complete_bytes(struct sg_codegen *gen, LLVMValueRef pointer, LLVMValueRef bytes);
/** Whether the phase that a test or wait asks for is complete. */
LLVMValueRef sg_gen_mbarrier_test(struct sg_codegen *gen);

#endif
