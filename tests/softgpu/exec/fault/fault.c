/*
 * fault.c - kernels that go wrong in every way: the fault is reported with its place, the engine and the
 * process go on, and signals that are not a kernel's reach the handlers they are meant for.
 */
#include "tests/softgpu/exec/kernel_test.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *forbidden; /* a page that cannot be touched */

static void healthy(struct sg_thread *t, const unsigned char *params)
{
    _Atomic uint32_t *count = PARAMETER(_Atomic uint32_t, params);
    sg_rt_barrier_sync(t, 0, 0);
    ++*count;
}

static void check_engine_is_well(void)
{
    _Atomic uint32_t count = 0;
    CHECK_EQUAL(run_threads(healthy, 10, 100, (void *)&count), SG_FAULT_NONE);
    CHECK_EQUAL(count, 1000);
}

/* --- thread form: thread 37 of block 2 goes wrong while the others wait --- */

static void store_bad(struct sg_thread *t, const unsigned char *params)
{
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        store_word(PARAMETER(void, params));
    sg_rt_barrier_sync(t, 0, 0);
}

static void fault_number(struct sg_thread *t, const unsigned char *params)
{
    uint32_t fault = *(const uint32_t *)(const void *)params;
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        sg_rt_fault(t, fault);
    sg_rt_barrier_sync(t, 0, 0);
}

static void jump_wild(struct sg_thread *t, const unsigned char *params)
{
    void (*target)(void) = (void (*)(void))PARAMETER(void, params);
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        target();
    sg_rt_barrier_sync(t, 0, 0);
}

#if defined(__x86_64__)
/* Aligned vector stores to an address that is not, in the encodings that compilers use. */
static void store_aligned(struct sg_thread *t, const unsigned char *params)
{
    unsigned char *target = PARAMETER(unsigned char, params);
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        __asm__ volatile("movaps %%xmm0, (%0)" ::"r"(target) : "memory");
    sg_rt_barrier_sync(t, 0, 0);
}

static void store_aligned_indexed(struct sg_thread *t, const unsigned char *params)
{
    unsigned char *target = PARAMETER(unsigned char, params) - 0x1000 - 8 * 5;
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        __asm__ volatile("movq %0, %%r12; movq $5, %%r9; movdqa %%xmm1, 0x1000(%%r12,%%r9,8)" ::"r"(target)
                         : "memory", "r12", "r9");
    sg_rt_barrier_sync(t, 0, 0);
}

static void store_aligned_vex(struct sg_thread *t, const unsigned char *params)
{
    unsigned char *target = PARAMETER(unsigned char, params) - 16;
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        __asm__ volatile("movq %0, %%r13; vmovaps %%xmm1, 16(%%r13)" ::"r"(target) : "memory", "r13");
    sg_rt_barrier_sync(t, 0, 0);
}

static void load_operand(struct sg_thread *t, const unsigned char *params)
{
    unsigned char *target = PARAMETER(unsigned char, params) + 16;
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        __asm__ volatile("addps -16(%0), %%xmm1" ::"r"(target) : "memory", "xmm1");
    sg_rt_barrier_sync(t, 0, 0);
}
#endif

static void undefined_instruction(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        __builtin_trap();
    sg_rt_barrier_sync(t, 0, 0);
}

static volatile bool deeper = true; /* for ever; the compiler does not know */

static unsigned char recurse(volatile unsigned char *above)
{
    volatile unsigned char frame[2048];
    frame[0] = above ? above[0] : 0;
    return deeper ? (unsigned char)(recurse(frame) + frame[0]) : frame[0];
}

static void overflow(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        recurse(NULL);
    sg_rt_barrier_sync(t, 0, 0);
}

static void free_twice(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->block->ctaid[0] == 2 && t->linear == 37) {
        void *memory = sg_rt_malloc(t, 100);
        sg_rt_free(t, memory);
        sg_rt_free(t, memory);
    }
    sg_rt_barrier_sync(t, 0, 0);
}

/* A parameter that is so much, of 32 bits. */
static void past_shared(struct sg_thread *t, const unsigned char *params)
{
    if (t->block->ctaid[0] == 2 && t->linear == 37)
        store_word(t->block->shared + (uint32_t)(uintptr_t)PARAMETER(void, params));
    sg_rt_barrier_sync(t, 0, 0);
}

static void check_fault(sg_thread_code code, void *pointer, enum sg_fault expected, uint64_t address)
{
    struct sg_fault_report report;
    struct sg_launch launch = thread_launch(code, 4, 64, &pointer);
    launch.shared_static = 1000;
    CHECK_EQUAL(sg_exec_run(&launch, &report), expected);
    CHECK_EQUAL(report.fault, expected);
    CHECK_EQUAL(report.ctaid[0], 2);
    CHECK_EQUAL(report.tid[0], 37);
    if (address)
        CHECK_EQUAL(report.address, address);
    check_engine_is_well();
}

static void test_thread_form(void)
{
    for (int i = 0; i < 3; i++) {
        check_fault(store_bad, forbidden + 40, SG_FAULT_ILLEGAL_ADDRESS, (uintptr_t)forbidden + 40);
        check_fault(store_bad, (void *)16, SG_FAULT_ILLEGAL_ADDRESS, 16);
        check_fault(store_bad, (void *)0x8000000000000000u, SG_FAULT_ILLEGAL_ADDRESS, 0x8000000000000000u);
    }
#if defined(__x86_64__)
    static _Alignas(64) unsigned char buffer[64];
    static const sg_thread_code accesses[] = {store_aligned, store_aligned_indexed, load_operand,
                                              store_aligned_vex};
    for (int i = 0; i < (__builtin_cpu_supports("avx") ? 4 : 3); i++) {
        check_fault(accesses[i], buffer + 4, SG_FAULT_MISALIGNED, (uintptr_t)buffer + 4);
        check_fault(accesses[i], (void *)0xabcd000000000004u, SG_FAULT_ILLEGAL_ADDRESS, 0xabcd000000000004u);
        check_fault(accesses[i], forbidden + 16, SG_FAULT_ILLEGAL_ADDRESS, (uintptr_t)forbidden + 16);
    }
#endif
    check_fault(fault_number, (void *)(uintptr_t)SG_FAULT_TRAP, SG_FAULT_TRAP, 0);
    check_fault(fault_number, (void *)(uintptr_t)SG_FAULT_MISALIGNED, SG_FAULT_MISALIGNED, 0);
    check_fault(jump_wild, forbidden, SG_FAULT_INVALID_PC, (uintptr_t)forbidden);
    check_fault(jump_wild, NULL, SG_FAULT_INVALID_PC, 0);
    check_fault(undefined_instruction, NULL, SG_FAULT_ILLEGAL_INSTRUCTION, 0);
    check_fault(overflow, NULL, SG_FAULT_STACK, 0);
    check_fault(free_twice, NULL, SG_FAULT_ILLEGAL_ADDRESS, 0);
    static const uint32_t far[] = {1024, 128 << 10, 1 << 20, 3 << 20, 15 << 20, 1 << 30, UINT32_MAX & ~3u};
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++)
        check_fault(past_shared, (void *)(uintptr_t)far[i], SG_FAULT_ILLEGAL_ADDRESS, 0); // NOLINT
}

/* --- block form --- */

static void block_store_bad(struct sg_block *block, const unsigned char *params)
{
    if (block->ctaid[0] == 700)
        store_word(PARAMETER(void, params));
}

static void block_trap(struct sg_block *block, const unsigned char *params)
{
    (void)params;
    struct sg_thread thread = {.block = block, .tid = {3, 0, 0}, .linear = 3};
    if (block->ctaid[0] == 700)
        sg_rt_fault(&thread, SG_FAULT_TRAP);
}

static void block_overflow(struct sg_block *block, const unsigned char *params)
{
    (void)params;
    if (block->ctaid[0] == 700)
        recurse(NULL);
}

static void block_divide(struct sg_block *block, const unsigned char *params)
{
    volatile int zero = PARAMETER(int, params) != NULL, one = 1;
    if (block->ctaid[0] == 700)
        one /= zero;
    (void)one;
}

static void check_block_fault(sg_block_code code, void *pointer, enum sg_fault expected)
{
    struct sg_fault_report report;
    struct sg_launch launch = thread_launch(NULL, 2000, 32, &pointer);
    launch.code = (void *)(uintptr_t)code;
    launch.form = SG_CODE_BLOCK;
    CHECK_EQUAL(sg_exec_run(&launch, &report), expected);
    CHECK_EQUAL(report.ctaid[0], 700);
    if (expected == SG_FAULT_TRAP)
        CHECK_EQUAL(report.tid[0], 3);
    if (expected == SG_FAULT_ILLEGAL_ADDRESS)
        CHECK_EQUAL(report.address, (uintptr_t)pointer);
    check_engine_is_well();
}

static void test_block_form(void)
{
    check_block_fault(block_store_bad, forbidden + 8, SG_FAULT_ILLEGAL_ADDRESS);
    check_block_fault(block_trap, NULL, SG_FAULT_TRAP);
    check_block_fault(block_overflow, NULL, SG_FAULT_STACK);
#ifndef RG_SANITIZED /* the undefined-behaviour sanitizer would see the division first */
    check_block_fault(block_divide, NULL, SG_FAULT_ILLEGAL_INSTRUCTION);
#else
    (void)block_divide;
#endif
}

/* --- a fault stops the rest of the grid --- */

static void spin_or_fault(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->block->ctaid[0] == 3)
        sg_rt_fault(t, SG_FAULT_TRAP);
    for (;;)
        sg_rt_yield(t); /* for ever, but for the fault */
}

static void count_then_fault(struct sg_block *block, const unsigned char *params)
{
    _Atomic uint32_t *count = PARAMETER(_Atomic uint32_t, params);
    struct sg_thread thread = {.block = block};
    if (++*count == 10)
        sg_rt_fault(&thread, SG_FAULT_TRAP);
}

static void test_fault_stops_others(void)
{
    CHECK_EQUAL(run_threads(spin_or_fault, 4, 32, NULL), SG_FAULT_TRAP);
    _Atomic uint32_t count = 0;
    CHECK_EQUAL(run_blocks(count_then_fault, 1000000, 1, (void *)&count), SG_FAULT_TRAP);
    CHECK(count < 1000000);
    check_engine_is_well();
}

/* --- signals that are not a kernel's --- */

static sigjmp_buf application_point;
static volatile sig_atomic_t application_signals;

static void application_handler(int signal)
{
    (void)signal;
    application_signals++;
    siglongjmp(application_point, 1);
}

static void test_application_signals(void)
{
    /* the handler was installed before the engine's (in main): faults of the host reach it */
    if (sigsetjmp(application_point, 1) == 0)
        store_word(forbidden);
    CHECK_EQUAL(application_signals, 1);
    if (sigsetjmp(application_point, 1) == 0)
        raise(SIGSEGV);
    CHECK_EQUAL(application_signals, 2);

    check_engine_is_well();
}

static void default_child(void)
{
    check_engine_is_well(); /* installs the handlers with no other before them */
    store_word(forbidden);
}

static void test_default_action(void)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        default_child();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(void)
{
    forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (forbidden == MAP_FAILED)
        return 99;
    test_default_action(); /* first: before this process has an engine */
    signal(SIGSEGV, application_handler);
    test_thread_form();
    test_block_form();
    test_fault_stops_others();
    test_application_signals();
    return TEST_RESULT();
}
