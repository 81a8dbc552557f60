/*
 * replay.c - runs a fuzzer's corpus without libFuzzer, with any compiler.
 *
 * usage: fuzz_NAME FILE|FOLDER…       every file, and the empty input, in memory of exactly its size
 *        fuzz_NAME --seeds FOLDER     writes the inputs that the fuzzer itself can make
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
#pragma weak fuzz_seeds

static const char *seeds;
static unsigned long inputs;

/* A custom mutator is never called here; it must link. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
    (void)data, (void)max_size;
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
    const int n = scandir(path, &entries, NULL, alphasort);
    CHECK(n >= 0);
    for (int i = 0; i < n; i++) {
        char inside[4096];
        if (entries[i]->d_name[0] != '.' &&
            snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name) < (int)sizeof inside)
            run_path(inside);
        free(entries[i]);
    }
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
    run("", 0);
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    fprintf(stderr, "%lu inputs\n", inputs);
    return 0;
}
