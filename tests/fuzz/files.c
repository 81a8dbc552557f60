/*
 * files.c - files that are kept from one run to the next, as they would be if a disk or somebody else had changed them:
 * the client's journals, compiled kernels, traces of `remote-gpu run --record`, modules of a server's cache.
 *
 * The input: u8 which; then the file. Journals and kernels carry digests of themselves: with the highest bit of `which`
 * these are made right, so that what is behind them is reached.
 */
#include "client/cache/journal.h"
#include "client/predict/trace.h"
#include "common/cache/digest.h"
#include "softgpu/compiler/jit/cache.h"
#include "tests/client/predict/build_trace.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzzer.h"

enum { RIGHT = 128, FILE_MAX = 64 << 10 };

static struct rg_disk_cache *disk;
static struct sg_cache *kernels;
static volatile unsigned char sink;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char path[256];
    (void)argc, (void)argv;
    fuzz_folder_make();
    snprintf(path, sizeof path, "%s/kernels", fuzz_folder);
    kernels = sg_cache_open(path, 1 << 20);
    snprintf(path, sizeof path, "%s/disk", fuzz_folder);
    disk = rg_disk_cache_open(path, 1 << 20);
    CHECK(kernels && disk && rg_disk_cache_make(disk));
    return 0;
}

static bool take(void *user, const struct rg_journal_record *record)
{
    (void)user;
    sink = (unsigned char)strlen(record->name);
    for (size_t i = 0; i < record->size; i++)
        sink = ((const unsigned char *)record->data)[i];
    return true;
}

/* Cuts the bytes into records: u8 type, u8 size of name, u8 size of data. */
static void journal(const unsigned char *data, size_t size, bool right)
{
    struct rg_journal records = {.cache = disk, .name = {1}};
    if (!right) {
        rg_disk_cache_write(disk, records.name, data, size);
    } else {
        rg_journal_remove(&records);
        while (size >= 3) {
            char name[256];
            const size_t name_size = data[1] < size - 3 ? data[1] : size - 3;
            memcpy(name, data + 3, name_size);
            name[name_size] = '\0';
            const size_t left = size - 3 - name_size, bytes = data[2] < left ? data[2] : left;
            rg_journal_add(&records, data[0], 0, data[1] ? name : NULL, data + 3 + name_size, bytes);
            data += 3 + name_size + bytes;
            size -= 3 + name_size + bytes;
        }
        records.size = 0;
    }
    CHECK(rg_journal_read(&records, take, NULL) || !right);
}

static void kernel(const unsigned char *data, size_t size, bool right)
{
    const struct rg_digest key = rg_digest_of_bytes(&(struct rg_digest_part){"key", 3}, 1);
    size_t found = 0;
    if (right) {
        sg_cache_write(kernels, &key, data, size);
    } else {
        /* A cache of the same folder, without what this one keeps around the file. */
        char path[256];
        snprintf(path, sizeof path, "%s/kernels", fuzz_folder);
        struct rg_disk_cache *same = rg_disk_cache_open(path, 1 << 20);
        CHECK(same);
        rg_disk_cache_write(same, key.bytes, data, size);
        rg_disk_cache_close(same);
    }
    unsigned char *read = sg_cache_read(kernels, &key, &found);
    for (size_t i = 0; read && i < found; i++)
        sink = read[i];
    CHECK(!right || !read || (found == size && memcmp(read, data, size) == 0));
    free(read);
    sg_cache_drop(kernels, &key);
}

static void trace(unsigned char *data, size_t size, bool right)
{
    struct rg_trace read;
    char why[256];
    if (right && size >= sizeof(struct rg_trace_head))
        mend_checksums(&(struct built){.data = data, .size = size});
    memset(&read, 0, sizeof read);
    if (rg_trace_parse(data, size, &read, why, sizeof why) == RG_OK)
        for (size_t i = 0; i < read.n_threads; i++)
            for (size_t k = 0; k < read.threads[i].n; k++)
                sink = (unsigned char)read.threads[i].items[k].kind;
    rg_trace_free(&read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > FILE_MAX)
        return 0;
    const unsigned which = (data[0] & ~RIGHT) % 3;
    const bool right = data[0] & RIGHT;
    unsigned char *exact = malloc(size);
    CHECK(exact);
    memcpy(exact, data + 1, size - 1);
    if (which == 0)
        journal(exact, size - 1, right);
    else if (which == 1)
        kernel(exact, size - 1, right);
    else {
        unsigned char *file = malloc(size - 1 ? size - 1 : 1); /* not a byte more */
        CHECK(file);
        memcpy(file, exact, size - 1);
        trace(file, size - 1, right);
        free(file);
    }
    free(exact);
    return 0;
}

void fuzz_seeds(void)
{
    static unsigned char seed[16384];
    size_t size = 0;
    fuzz_seed("journal",
              "\x80"
              "\1\4\5namehello\2\0\3abc",
              18);
    seed[0] = 0;
    struct rg_journal records = {.cache = disk, .name = {1}};
    rg_journal_remove(&records);
    rg_journal_add(&records, 1, 2, "name", "hello", 5);
    rg_journal_add(&records, 2, 0, NULL, "abc", 3);
    unsigned char *file = rg_disk_cache_read(disk, records.name, 0, sizeof seed - 1, 0, &size);
    CHECK(file);
    memcpy(seed + 1, file, size);
    fuzz_seed("journal-file", seed, size + 1);
    free(file);
    fuzz_seed("kernel", "\x81some code", 10);
    fuzz_seed("kernel-file", "\1some code", 10);
    struct built built = {0};
    build_steps(&built, 2, 2, 1000, 64);
    CHECK(built.size < sizeof seed);
    memcpy(seed + 1, built.data, built.size);
    seed[0] = 2;
    fuzz_seed("trace-file", seed, built.size + 1);
    seed[0] = 2 + RIGHT;
    fuzz_seed("trace", seed, built.size + 1);
    built.size = 0;
    build_servers(&built, 2, A_COPY, 1000, 64);
    CHECK(built.size < sizeof seed);
    memcpy(seed + 1, built.data, built.size);
    fuzz_seed("trace-servers", seed, built.size + 1);
    free_built(&built);
}
