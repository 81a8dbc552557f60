/*
 * fuzz_kernels.c - random kernels, compiled and run in different ways, must do the same.
 *
 * usage: fuzz_kernels [FIRST_SEED [COUNT [text]]]
 *
 * Each way has a process of its own, since it is chosen by the environment, and a limit of time. A seed that
 * differs is named, with the first word that does; `text` prints its PTX.
 */
#include "random_ptx.h"

#include "softgpu/compiler/compiler.h"
#include "softgpu/exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS      5u
#define THREADS_MAX 160u
#define COUNTERS    16u
#define SECONDS     120u /* that one way may take; a kernel that hangs is ended by SIGALRM */
#define WORDS       (BLOCKS * THREADS_MAX * RANDOM_WORDS + COUNTERS)

static const struct {
    const char *name, *opt, *cores;
} ways[] = {
    {"optimised, many cores", "", "4"},
    {"optimised, one core", "", "1"},
    {"optimised, more threads than blocks and cores", "", "32"},
    {"not optimised", "-llvm", "2"},
    {"without lockstep", "-lockstep", "2"},
    {"a stack for each thread", "-loops", "3"},
    {"a stack for each thread, not optimised", "-loops,-llvm", "1"},
};
#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

struct outcome {
    int fault; /* -1: it does not compile */
    _Alignas(64) uint32_t words[WORDS];
};

static uint32_t threads_of(uint64_t seed)
{
    static const uint32_t counts[] = {32, 64, 160, 7, 45, 96, 1, 128};
    return counts[seed % (sizeof(counts) / sizeof(counts[0]))];
}

static void run(uint64_t seed, struct outcome *out)
{
    static _Alignas(64) uint32_t in[BLOCKS * THREADS_MAX * RANDOM_WORDS];
    static unsigned char variable[256];
    uint32_t threads = threads_of(seed);
    uint64_t state = seed * 77 + 5;
    for (uint32_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t word = (uint32_t)(state >> 32);
        in[i] = word % 7 == 0   ? word % 5
                : word % 7 == 1 ? UINT32_MAX - word % 3
                : word % 7 == 2 ? 0x3f000000 + (word & 0xffffff)
                                : word;
    }
    char *text = random_ptx(seed, threads);
    struct sg_text log = {0};
    struct sg_program *program = NULL;
    void *code = NULL;
    out->fault = -1;
    if (text == NULL || sg_program_create(text, strlen(text), 120, &log, &program) != SG_COMPILE_OK) {
        fprintf(stderr, "seed %llu does not compile: %s\n", (unsigned long long)seed,
                log.data ? log.data : "");
    } else {
        for (size_t i = 0; sg_program_variable(program, i) != NULL; i++)
            sg_program_place(program, i, variable);
        const struct sg_kernel *kernel = sg_program_kernel(program, 0);
        const void *params[3] = {in, out->words, out->words + WORDS - COUNTERS};
        if (sg_program_code(program, 0, &log, &code) != SG_COMPILE_OK) {
            fprintf(stderr, "seed %llu has no code: %s\n", (unsigned long long)seed,
                    log.data ? log.data : "");
        } else {
            struct sg_launch launch = {.kernel_name = "k",
                                       .code = code,
                                       .form = kernel->form,
                                       .grid = {BLOCKS, 1, 1},
                                       .block = {threads, 1, 1},
                                       .params = params,
                                       .params_size = kernel->params_size,
                                       .shared_static = kernel->shared_static,
                                       .stack_size = kernel->local_size};
            struct sg_fault_report report;
            out->fault = (int)sg_exec_run(&launch, &report);
        }
        sg_program_destroy(program);
    }
    sg_text_fini(&log);
    free(text);
}

static bool differs(uint64_t seed, const struct outcome *first, const struct outcome *other, const char *way)
{
    uint32_t threads = threads_of(seed);
    if (first->fault != other->fault) {
        printf("seed %llu: fault %d %s, but %d %s\n", (unsigned long long)seed, first->fault, ways[0].name,
               other->fault, way);
        return true;
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        if (first->words[i] == other->words[i])
            continue;
        uint32_t thread = i / RANDOM_WORDS;
        printf("seed %llu: word %u of block %u thread %u is %#x %s, but %#x %s\n", (unsigned long long)seed,
               i % RANDOM_WORDS, thread / threads, thread % threads, first->words[i], ways[0].name,
               other->words[i], way);
        return true;
    }
    return false;
}

int main(int count, char **arguments)
{
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    uint64_t seeds = count > 2 ? strtoull(arguments[2], NULL, 0) : 24;
    bool bad = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 3) {
        char *text = random_ptx(first, threads_of(first));
        fputs(text, stdout);
        free(text);
        return 0;
    }
    setenv("SOFTGPU_CACHE", "off", 1);
    size_t size = sizeof(struct outcome) * N_WAYS;
    struct outcome *outcomes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        return 2;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        memset(outcomes, 0, size);
        for (size_t way = 0; way < N_WAYS; way++) {
            pid_t child = fork();
            if (child == 0) {
                setenv("SOFTGPU_OPT", ways[way].opt, 1);
                setenv("SOFTGPU_CORES", ways[way].cores, 1);
                alarm(SECONDS);
                run(seed, &outcomes[way]);
                _exit(0);
            }
            int status = 1;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                printf("seed %llu: the process ends with status %#x, %s\n", (unsigned long long)seed,
                       (unsigned)status, ways[way].name);
                bad = true;
            }
        }
        bad |= outcomes[0].fault != 0;
        if (outcomes[0].fault != 0)
            printf("seed %llu: fault %d\n", (unsigned long long)seed, outcomes[0].fault);
        for (size_t way = 1; way < N_WAYS; way++)
            bad |= differs(seed, &outcomes[0], &outcomes[way], ways[way].name);
    }
    printf("%s: seeds %llu to %llu in %zu ways\n", bad ? "failed" : "ok", (unsigned long long)first,
           (unsigned long long)(first + seeds - 1), N_WAYS);
    return bad;
}
