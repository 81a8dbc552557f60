/*
 * replay.c - runs a fuzzer's corpus without libFuzzer, with any compiler.
 *
 * usage: fuzz_NAME FILE|FOLDER…       every file, and the empty input, in memory of exactly its size
 *        fuzz_NAME --seeds FOLDER     writes the inputs that the fuzzer itself can make
 *        fuzz_NAME --random CASES SEED FOLDER   as many inputs that are files of the folder, changed by the fuzzer's mutator
 *
 * A file that cannot be read is an error; a folder that is not there is an empty corpus.
 */
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#pragma weak LLVMFuzzerInitialize
#pragma weak LLVMFuzzerCustomMutator
#pragma weak fuzz_seeds

static const char *seeds;
static unsigned long inputs;

static uint64_t state;

static uint32_t chance(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

/* Some bits are others; libFuzzer does more. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
    (void)max_size;
    for (unsigned i = chance(4); i && size; i--)
        data[chance((uint32_t)size)] ^= (uint8_t)(1u << chance(8));
    return size;
}

void fuzz_seed(const char *name, const void *data, size_t size)
{
    char path[4096];
    CHECK(snprintf(path, sizeof path, "%s/%s", seeds, name) < (int)sizeof path);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void run(const void *data, size_t size)
{
    /* Never NULL, and of exactly this size, so that a sanitizer sees every byte that is read beyond it. */
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    CHECK(LLVMFuzzerTestOneInput(copy, size) == 0);
    free(copy);
    inputs++;
}

static void run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(size + 1);
    CHECK(file && data && fread(data, 1, size, file) == size);
    fclose(file);
    fprintf(stderr, "%s\n", path); /* the last line names what went wrong */
    run(data, size);
    free(data);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_path(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        CHECK(errno == ENOENT);
        return;
    }
    if (!S_ISDIR(status.st_mode)) {
        run_file(path, (size_t)status.st_size);
        return;
    }
    struct dirent **entries;
    const int n = scandir(path, &entries, is_visible, alphasort);
    CHECK(n >= 0);
    for (int i = 0; i < n; i++) {
        char inside[4096];
        if (snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name) < (int)sizeof inside)
            run_path(inside);
        free(entries[i]);
    }
    free(entries);
}

/* --- inputs that are made ---------------------------------------------------------------------------------------- */

enum { RANDOM_MAX = 65536, CHANGES_MAX = 8 };

static void run_changed(const char *folder, const char *name, uint64_t number)
{
    static uint8_t data[RANDOM_MAX];
    char path[4096];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    state = number;
    for (unsigned i = 0; i <= number % CHANGES_MAX; i++)
        size = LLVMFuzzerCustomMutator(data, size, sizeof data, chance(UINT32_MAX));
    fprintf(stderr, "%s changed, seed %llu\n", path, (unsigned long long)number);
    run(data, size);
}

/* Each case has a seed of its own, so that one is made again by itself. */
static void run_random(unsigned long cases, uint64_t seed, const char *folder)
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_visible, alphasort);
    CHECK(n > 0 && LLVMFuzzerCustomMutator);
    for (unsigned long i = 0; i < cases; i++)
        run_changed(folder, entries[(seed + i) * 2654435761u % (unsigned)n]->d_name, seed + i);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
}

int main(int argc, char **argv)
{
    if (LLVMFuzzerInitialize)
        (void)LLVMFuzzerInitialize(&argc, &argv);
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        seeds = argv[2];
        if (fuzz_seeds)
            fuzz_seeds();
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "--random") == 0) {
        run_random(strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), argv[4]);
        fprintf(stderr, "%lu inputs\n", inputs);
        return 0;
    }
    run("", 0);
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    fprintf(stderr, "%lu inputs\n", inputs);
    return 0;
}
