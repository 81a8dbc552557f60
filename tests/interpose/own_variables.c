/*
 * own_variables.c - which libraries have variables by the names of the driver's functions; and files that are cut off or damaged, of
 * which it only matters that they do no harm.
 *
 * usage: own_variables LIBRARY BEHIND, which has such variables, and one that needs it
 */
#include "interpose/own_variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned wrong;

static void expect(const char *file, bool expected)
{
    if (rg_has_own_variables(file) != expected) {
        printf("%s: WRONG: it has %s\n", file, expected ? "them" : "none");
        wrong++;
    }
}

static size_t read_all(const char *file, unsigned char **bytes)
{
    FILE *in = fopen(file, "rb");
    if (!in || fseek(in, 0, SEEK_END) != 0)
        exit(2);
    const size_t size = (size_t)ftell(in);
    *bytes = malloc(size);
    rewind(in);
    if (!*bytes || fread(*bytes, 1, size, in) != size)
        exit(2);
    fclose(in);
    return size;
}

static void write_all(const char *file, const unsigned char *bytes, size_t size)
{
    FILE *out = fopen(file, "wb");
    if (!out || fwrite(bytes, 1, size, out) != size || fclose(out) != 0)
        exit(2);
}

/* What is there of a file that breaks off, and what a file says with some bytes of its tables changed. */
static void damaged(const char *library)
{
    char file[] = "/tmp/own-variables-XXXXXX";
    unsigned char *bytes;
    const size_t size = read_all(library, &bytes);
    const int fd = mkstemp(file);
    if (fd < 0)
        exit(2);
    close(fd);
    unsigned found = 0, seed = 1;
    for (size_t end = 0; end < size; end += end < 4096 ? 61 : 1001) {
        write_all(file, bytes, end);
        found += rg_has_own_variables(file);
    }
    for (unsigned i = 0; i < 400; i++) {
        unsigned char *changed = malloc(size);
        if (!changed)
            exit(2);
        memcpy(changed, bytes, size);
        for (unsigned j = 0; j < 1 + i % 8; j++) {
            seed = seed * 1664525 + 1013904223;
            changed[(seed >> 8) % (size < 4096 ? size : 4096)] = (unsigned char)(seed >> 3);
        }
        write_all(file, changed, size);
        found += rg_has_own_variables(file);
        free(changed);
    }
    printf("damaged files that have them all the same: %u\n", found);
    unlink(file);
    free(bytes);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    expect(argv[1], true);
    expect(argv[2], true);
    expect(argv[0], false);
    expect("/no/such/file.so", false);
    expect("/", false);
    expect("/dev/null", false);
    damaged(argv[1]);
    printf("%s\n", wrong ? "WRONG" : "ok");
    return wrong ? 1 : 0;
}
