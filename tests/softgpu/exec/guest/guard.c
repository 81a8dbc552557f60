/*
 * guard.c - kernels are confined to their own memory (SOFTGPU_GUARD): attacks on the process that runs them.
 *
 *     guard            on the software device itself, which is in this process: kernels get the addresses of its own stack,
 *                      heap, data, code and libraries, and of nothing; each access must be CUDA_ERROR_ILLEGAL_ADDRESS,
 *                      and what is there unharmed
 *     guard remote     against a server: the only address of the worker's that a client learns is that of a function
 *
 * And what kernels may access, by all kinds of addresses, they can. After each fault there is a new context.
 */
#include "kernels.h"

#include "softgpu/guest.h"
#include "softgpu/tensor_map.h"

#include <cuda.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CANARY 0x5ca1ab1e5ca1ab1eull
#define WORDS  1024

static unsigned failures;
static CUdevice device;
static CUcontext context;

static void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    failures++;
}

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = "?";
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", what, name);
    exit(1);
}
#define MUST(call) must(call, #call)

static void renew_context(void)
{
    if (context)
        (void)cuCtxDestroy_v2(context);
    MUST(cuCtxCreate_v2(&context, 0, device));
}

static CUresult run_grid(const char *ptx, const char *name, uint64_t address, uint64_t number,
                         unsigned blocks, unsigned threads)
{
    CUmodule module;
    CUfunction function;
    void *arguments[] = {&address, &number};
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&function, module, name));
    MUST(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL));
    CUresult result = cuCtxSynchronize();
    if (result == CUDA_SUCCESS)
        (void)cuModuleUnload(module);
    else
        renew_context();
    return result;
}

static CUresult run(const char *ptx, const char *name, uint64_t address, uint64_t number, unsigned threads)
{
    return run_grid(ptx, name, address, number, 1, threads);
}

static void expect_fault(const char *ptx, const char *name, uint64_t address, uint64_t number,
                         unsigned threads, CUresult wanted)
{
    CUresult result = run(ptx, name, address, number, threads);
    if (result != wanted)
        complain("%s at %#llx: error %d instead of %d", name, (unsigned long long)address, (int)result,
                 (int)wanted);
}

/* --- accesses ----------------------------------------------------------------------------------------- */

static const char *const one_thread[] = {"load_global",
                                         "load_generic",
                                         "load_wide",
                                         "load_volatile",
                                         "load_acquire",
                                         "load_constant",
                                         "load_local",
                                         "store_global",
                                         "store_generic",
                                         "store_local",
                                         "store_wide",
                                         "store_release",
                                         "add",
                                         "reduce",
                                         "add_float",
                                         "increment",
                                         "exchange",
                                         "compare",
                                         "copy_in",
                                         "bulk_in",
                                         "bulk_out",
                                         "bulk_add",
                                         "barrier_there",
                                         "far_from_variable",
                                         "far_from_shared",
                                         "far_by_index",
                                         "filled"};
static const char *const many_threads[] = {"rows",          "scattered",   "matrix",        "load_waiting",
                                           "store_waiting", "add_waiting", "matrix_waiting"};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void attack(uint64_t address)
{
    for (size_t i = 0; i < COUNT(one_thread); i++)
        expect_fault(access_ptx, one_thread[i], address, 0x41414141, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    /* a store that leads out of a variable which nobody reads may be left out */
    CUresult left_out = run(access_ptx, "far_from_local", address, 0x41414141, 1);
    if (left_out != CUDA_SUCCESS && left_out != CUDA_ERROR_ILLEGAL_ADDRESS)
        complain("far_from_local at %#llx: error %d", (unsigned long long)address, (int)left_out);
    for (size_t i = 0; i < COUNT(many_threads); i++)
        expect_fault(access_ptx, many_threads[i], address, 0x41414141, 64, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* --- what is undefined, made up, or changed meanwhile ------------------------------------------------- */

/* The kernel may do anything but leave its memory: whatever is left of this process says so. */
static void attack_undefined(void)
{
    static const char *const one[] = {"branch", "jump",   "store",   "store_near",
                                      "print",  "format", "call_it", "zeros"};
    static const char *const warp[] = {"matrix_local", "matrix_param", "matrix_local_waiting"};
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, 4096));
    for (size_t i = 0; i < COUNT(one); i++)
        (void)run(undefined_ptx, one[i], 0, 0x4141414141414141, 1);
    renew_context();
    for (size_t i = 0; i < COUNT(warp); i++)
        for (uint64_t stride = 16; stride < 1ull << 32; stride <<= 4)
            (void)run(undefined_ptx, warp[i], 0, stride, 32);
    renew_context();
}

static void put_map(CUdeviceptr at, struct sg_tensor_map map)
{
    MUST(cuMemcpyHtoD_v2(at, &map, sizeof(map)));
}

static void attack_by_maps(uint64_t address)
{
    const struct sg_tensor_map good = {.address = address,
                                       .strides = {64, 64, 64, 64},
                                       .last = {1023, 1023, 1023, 1023, 1023},
                                       .magic = SG_TENSOR_MAGIC,
                                       .box = {64, 8, 1, 1, 1},
                                       .type = 2, /* of 32 bits */
                                       .rank = 1,
                                       .steps = {1, 1, 1, 1, 1}};
    static const char *const ways[] = {"box_in", "box_out", "box_add"};
    CUdeviceptr at;
    for (size_t i = 0; i < COUNT(ways); i++) {
        MUST(cuMemAlloc_v2(&at, 4096));
        put_map(at, good);
        expect_fault(box_ptx, ways[i], at, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    for (int i = 0; i < 7; i++) {
        struct sg_tensor_map bad = good;
        MUST(cuMemAlloc_v2(&at, 4096));
        bad.address = at;
        bad.rank = 2;
        CUresult wanted = CUDA_ERROR_ILLEGAL_INSTRUCTION;
        switch (i) {
        case 0: /* nothing is wrong */
            wanted = CUDA_SUCCESS;
            bad.last[0] = bad.last[1] = 7;
            break;
        case 1:
            bad.steps[1] = 0;
            break;
        case 2:
            bad.box[0] = 0xffff;
            bad.box[1] = 0xffff;
            break;
        case 3:
            bad.box[0] = 1; /* less than what is copied at once */
            break;
        case 4:
            bad.type = 200;
            break;
        case 5:
            bad.swizzle = 255;
            break;
        default:
            bad.rank = 5;
            break;
        }
        put_map(at, bad);
        expect_fault(box_ptx, "box_in_2", at, 0, 1, wanted);
        if (wanted == CUDA_SUCCESS)
            (void)cuMemFree_v2(at);
    }
}

static void attack_by_races(uint64_t address)
{
    CUdeviceptr at;
    const struct {
        char format[8];
        uint64_t argument;
    } text = {"%0d", address};
    MUST(cuMemAlloc_v2(&at, 4096));
    MUST(cuMemcpyHtoD_v2(at, &text, sizeof(text)));
    fflush(stdout);
    CUresult result = run_grid(race_ptx, "print_changed", at, 0, 16, 1);
    if (result != CUDA_SUCCESS)
        complain("a format that is changed: error %d", (int)result);
    for (int i = 0; i < 3; i++) {
        renew_context();
        MUST(cuMemAlloc_v2(&at, 4096));
        MUST(cuMemsetD8_v2(at, 0, 4096));
        result = run_grid(race_ptx, "launch_changed", at, address, 16, 1);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_ILLEGAL_ADDRESS)
            complain("parameters that are changed: error %d", (int)result);
    }
    renew_context();
}

/* --- this process -------------------------------------------------------------------------------------- */

static uint64_t in_data[WORDS];

static void fill(uint64_t *words)
{
    for (int i = 0; i < WORDS; i++)
        words[i] = CANARY;
}

static void check(const char *what, const uint64_t *words)
{
    for (int i = 0; i < WORDS; i++)
        if (words[i] != CANARY) {
            complain("%s was written to", what);
            return;
        }
}

static void attack_this_process(void)
{
    _Alignas(4096) uint64_t on_stack[WORDS];
    uint64_t *in_heap = aligned_alloc(4096, sizeof(on_stack));
    uint64_t *mapped =
        mmap(NULL, sizeof(on_stack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!in_heap || mapped == MAP_FAILED)
        exit(1);
    fill(on_stack);
    fill(in_heap);
    fill(mapped);
    fill(in_data);
    attack((uintptr_t)on_stack);
    attack((uintptr_t)in_heap);
    attack((uintptr_t)mapped);
    attack((uintptr_t)in_data);
    attack(((uintptr_t)stdout + 15) & ~(uintptr_t)15);    /* the C library's data */
    attack((uintptr_t)cuCtxSynchronize & ~(uintptr_t)15); /* code, perhaps the driver's */
    check("the stack", on_stack);
    check("the heap", in_heap);
    check("a mapping", mapped);
    check("the program's data", in_data);
    /* what a texture's or an array's address would be is not the program's either */
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, 1 << 20));
    expect_fault(control_ptx, "print_there", (uintptr_t)in_heap, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_fault(control_ptx, "free_there", (uintptr_t)in_heap, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_fault(control_ptx, "call_anything", (uintptr_t)in_heap, 0, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "call_anything", (uintptr_t)abort, 0, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "stack_elsewhere", (uintptr_t)(in_heap + WORDS), 0, 1,
                 CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_fault(control_ptx, "stack_elsewhere", (uintptr_t)(on_stack + WORDS), 0, 1,
                 CUDA_ERROR_ILLEGAL_ADDRESS);
    attack_by_maps((uintptr_t)in_heap);
    attack_by_races((uintptr_t)in_heap);
    check("the heap", in_heap);
    check("the stack", on_stack);
    free(in_heap);
    munmap(mapped, sizeof(on_stack));
}

static void attack_places_that_are_none(void)
{
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, 4 << 20));
    attack(0);
    attack(4096);
    attack(memory + (64ull << 40)); /* behind all that kernels have */
    attack(memory + (256ull << 40));
    attack(0x00007ffffffff000);
    attack(0xffffffff81000000);
    attack(0x4141414141414140);
    expect_fault(access_ptx, "far_by_constant", 0, 1, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* --- control ------------------------------------------------------------------------------------------ */

static void attack_control(void)
{
    expect_fault(control_ptx, "call_anything", 0, 0, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "call_anything", 0x4141414141414141, 0, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "call_other_kind", 0, 0, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "jump_anywhere", 0, 4, 1, CUDA_SUCCESS);
    expect_fault(control_ptx, "jump_anywhere", 0, 5, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "jump_anywhere", 0, 0x7fffffff, 1, CUDA_ERROR_INVALID_PC);
    expect_fault(control_ptx, "recurse", 0, 20, 1, CUDA_SUCCESS);
    expect_fault(control_ptx, "stack_elsewhere", 0x2000, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_fault(control_ptx, "stack_elsewhere", 0, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    /* how far a local array may be written beyond its end says the size of the stack; return addresses are not there */
    for (uint64_t size = 128; size <= 1 << 20; size *= 4) {
        CUresult result = run(control_ptx, "overflow_locals", 0x4141414141414141, size, 1);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_ILLEGAL_ADDRESS &&
            result != CUDA_ERROR_HARDWARE_STACK_ERROR)
            complain("%llu bytes over the end of a local array: error %d", (unsigned long long)size,
                     (int)result);
    }
    CUresult deep = run(control_ptx, "recurse", 0, 1 << 20, 1);
    if (deep != CUDA_ERROR_HARDWARE_STACK_ERROR && deep != CUDA_ERROR_ILLEGAL_ADDRESS)
        complain("recursion without end: error %d", (int)deep);
    /* what is a little below a stack may be kernels' memory of another kind, as theirs all lies together */
    for (uint64_t size = 1ull << 36; size; size <<= 4) {
        CUresult result = run(control_ptx, "allocate_much", 0x4141414141414141, size, 1);
        if (result == CUDA_SUCCESS)
            complain("alloca of %#llx bytes succeeds", (unsigned long long)size);
    }
}

/* --- what is right ------------------------------------------------------------------------------------ */

static void expect_value(const char *name, uint64_t address, uint64_t number, const volatile uint32_t *value,
                         uint32_t wanted)
{
    CUresult result = run(right_ptx, name, address, number, 1);
    uint32_t got = 0;
    if (result == CUDA_SUCCESS && value)
        got = *value;
    else if (result == CUDA_SUCCESS)
        MUST(cuMemcpyDtoH_v2(&got, address, sizeof(got)));
    if (result != CUDA_SUCCESS || got != wanted)
        complain("%s: error %d, %u instead of %u", name, (int)result, got, wanted);
}

/* Memory of the program's at an address that kernels cannot reach by themselves. */
static void use_registered_memory(bool remote)
{
    const size_t size = 64 << 10;
    CUdeviceptr seen;
    uint32_t *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, (remote ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    for (int i = 0; i < 3; i++) {
        MUST(cuMemHostRegister_v2(memory, size, CU_MEMHOSTREGISTER_DEVICEMAP));
        MUST(cuMemHostGetDevicePointer_v2(&seen, memory, 0));
        *memory = 7;
        expect_value("increment", seen, 0, memory, 108);
        expect_value("increment", seen, 0, memory, 209);
        MUST(cuMemHostUnregister(memory));
        expect_fault(right_ptx, "increment", seen, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    munmap(memory, size);
}

/* Where an alias of registered memory would be there is something, or there can be none. */
static void register_badly(void)
{
    const size_t size = 64 << 10;
    const int shared = MAP_SHARED | MAP_ANONYMOUS;
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, shared, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    const uint64_t there = (uintptr_t)memory & SG_GUEST_MASK;
    volatile uint64_t *other = mmap((void *)(uintptr_t)there, size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if ((uintptr_t)other != there)
        exit(1);
    *other = CANARY;
    CUresult result = cuMemHostRegister_v2(memory, size, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS)
        complain("memory is registered although something is where its alias would be");
    if (*other != CANARY)
        complain("an alias replaced what was there");
    munmap((void *)(uintptr_t)there, size);
    MUST(cuMemHostRegister_v2(memory, size, CU_MEMHOSTREGISTER_DEVICEMAP));
    memset(memory, 0, 4);
    expect_value("increment", there, 0, (volatile uint32_t *)(void *)memory, 101);
    MUST(cuMemHostUnregister(memory));
    munmap(memory, size);
    /* neither whole pages nor shared: registered, and out of reach */
    for (int i = 0; i < 2; i++) {
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, i ? MAP_PRIVATE | MAP_ANONYMOUS : shared, -1, 0);
        if (memory == MAP_FAILED)
            exit(1);
        void *const start = memory + (i ? 0 : 16);
        MUST(cuMemHostRegister_v2(start, size / 2, CU_MEMHOSTREGISTER_DEVICEMAP));
        expect_fault(right_ptx, "increment", (uintptr_t)start, 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        munmap(memory, size); /* the context has gone, and what was registered in it */
    }
}

static void use_all_memory(bool remote)
{
    CUdeviceptr result, managed;
    uint32_t *host;
    MUST(cuMemAlloc_v2(&result, 4096));
    expect_value("own_memory", result, 2, NULL, 40 + 1 + 9 + 3 + 2);
    expect_value("heap", result, 0, NULL, 55);
    expect_value("pointers", result, 0, NULL, 74);
    expect_value("pointers", result, 2, NULL, 111);
    expect_value("dynamic", result, 4, NULL, 77);
    MUST(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    *(volatile uint32_t *)(uintptr_t)managed = 5;
    expect_value("increment", managed, 0, (volatile uint32_t *)(uintptr_t)managed, 106);
    MUST(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    *host = 9;
    expect_value("increment", (uintptr_t)host, 0, host, 110);
    use_registered_memory(remote);
}

/* The address of a function is one of the worker's own memory: the only one that a client gets. */
static void attack_worker(void)
{
    CUdeviceptr result;
    uint64_t handle = 0;
    MUST(cuMemAlloc_v2(&result, 4096));
    MUST(run(right_ptx, "handle", result, 0, 1));
    MUST(cuMemcpyDtoH_v2(&handle, result, sizeof(handle)));
    attack(handle & ~(uint64_t)15);
    attack_by_maps(handle & ~(uint64_t)15);
    attack_by_races(handle);
}

int main(int argc, char **argv)
{
    bool remote = argc > 1 && strcmp(argv[1], "remote") == 0;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    renew_context();
    use_all_memory(remote);
    attack_worker();
    attack_places_that_are_none();
    attack_control();
    attack_undefined();
    if (!remote)
        attack_this_process();
    if (!remote)
        register_badly();
    renew_context();
    use_all_memory(remote);
    printf("guard: %s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
