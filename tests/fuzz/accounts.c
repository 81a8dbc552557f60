/*
 * accounts.c - usage as it travels, and the accounts' file: questions and answers that are taken apart, what sessions and parts become in
 * the file, what questions find there, and a file that a disk or somebody else has changed.
 *
 * The input: u8 which (modulo WAYS), then
 *
 *   QUESTION, ANSWER, QUOTAS   a packed message; what unpacks must pack again, to what unpacks
 *   STEPS      steps: u8 kind (modulo 3), then SESSION: u8 number, u8 kind, texts user, address, project, u64 started, ended; PART: u8
 *              session, part, u64 hour, held, bytes; ASK: u8 by, everybody, has project, texts user, project, u64 since, until, skip
 *   FILE       the file, in which a good one's bytes are changed: u16 at, u8 value each
 */
#include "common/base/log.h"
#include "server/accounts/protocol.h"
#include "server/accounts/store_internal.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/steps.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUESTION, ANSWER, QUOTAS, RECORDS, FILE_CHANGED, WAYS };
enum { SESSION, PART, ASK, KINDS };
enum { RUN = 7, FILE_MAX = 1 << 20 };

static char why[RG_ACCOUNTS_WHY];
/* Files: one with a session in it, and one with nothing, since to make the tables takes as long as all that is done with them. */
static struct {
    unsigned char *data;
    size_t size;
} good, empty;
/* What is used for RECORDS again and again, in memory: to open a file takes longer than all that is done with it. */
static struct rg_store *kept;
static struct rg_usage_answer answer, answer_again;

/* --- messages --------------------------------------------------------------------------------------------------- */

static void question(const uint8_t *data, size_t size)
{
    static unsigned char packed[RG_QUESTION_SIZE_MAX];
    struct rg_usage_question one, other;
    if (rg_usage_unpack_question(data, size, &one) != RG_OK)
        return;
    const size_t n = rg_usage_pack_question(&one, packed);
    CHECK(n <= sizeof packed && rg_usage_unpack_question(packed, n, &other) == RG_OK &&
          strcmp(one.user, other.user) == 0 && one.by == other.by && one.skip == other.skip);
}

static void usage_answer(const uint8_t *data, size_t size)
{
    static unsigned char packed[RG_ANSWER_SIZE_MAX];
    if (rg_usage_unpack_answer(data, size, &answer) != RG_OK)
        return;
    CHECK(answer.n <= RG_USAGE_ROWS_MAX);
    const size_t n = rg_usage_pack_answer(&answer, packed);
    CHECK(n <= sizeof packed && rg_usage_unpack_answer(packed, n, &answer_again) == RG_OK &&
          answer_again.n <= answer.n);
}

static void quotas(const uint8_t *data, size_t size)
{
    static unsigned char packed[RG_ANSWER_SIZE_MAX];
    static struct rg_quota_answer one, other;
    if (rg_quota_unpack_answer(data, size, &one) != RG_OK)
        return;
    const size_t n = rg_quota_pack_answer(&one, packed);
    CHECK(n <= sizeof packed && rg_quota_unpack_answer(packed, n, &other) == RG_OK && one.n == other.n);
}

/* --- records ------------------------------------------------------------------------------------------------------- */

static void take_text(char *out, size_t room)
{
    size_t size;
    snprintf(out, room, "%s", fuzz_text(&size));
}

static void session(struct rg_store *store)
{
    static struct rg_accountant_session one;
    memset(&one, 0, sizeof one);
    one.number = fuzz_u8();
    one.owner.kind = (enum rg_usage_kind)(RG_USAGE_NOBODY + fuzz_u8() % 3);
    take_text(one.owner.user, sizeof one.owner.user);
    take_text(one.owner.address, sizeof one.owner.address);
    take_text(one.owner.project, sizeof one.owner.project);
    one.started = (int64_t)fuzz_u64();
    one.ended = (int64_t)fuzz_u64();
    one.sharing = (enum rg_sharing)(one.number % RG_SHARINGS);
    one.mig = one.number % 2;
    if (rg_store_begin(store, why, sizeof why) == RG_OK &&
        rg_store_session(store, &one, why, sizeof why) == RG_OK)
        (void)!rg_store_commit(store, why, sizeof why);
}

static void part(struct rg_store *store)
{
    struct rg_accountant_part one = {.session = fuzz_u8(), .part = fuzz_u8()};
    one.slice.hour = (rg_hour)fuzz_u64();
    one.slice.figures.held_ns = fuzz_u64();
    one.slice.figures.bytes_in = one.slice.figures.peak_bytes = fuzz_u64();
    if (rg_store_begin(store, why, sizeof why) == RG_OK &&
        rg_store_part(store, &one, why, sizeof why) == RG_OK)
        (void)!rg_store_commit(store, why, sizeof why);
}

static void look(struct rg_store *store)
{
    static unsigned char packed[RG_ANSWER_SIZE_MAX];
    static struct rg_accountant_query query;
    memset(&query, 0, sizeof query);
    query.question.by = (enum rg_usage_by)(RG_USAGE_BY_USER + fuzz_u8() % 6);
    query.everybody = fuzz_u8() & 1;
    query.question.has_project = fuzz_u8() & 1;
    take_text(query.question.user, sizeof query.question.user);
    take_text(query.question.project, sizeof query.question.project);
    query.question.since = (int64_t)fuzz_u64();
    query.question.until = (int64_t)fuzz_u64();
    query.question.skip = fuzz_u64() & INT64_MAX;
    query.owner.kind = RG_USAGE_CERTIFICATE;
    snprintf(query.owner.user, sizeof query.owner.user, "alice");
    if (rg_store_query(store, &query, &answer, why, sizeof why) != RG_OK)
        return;
    for (uint32_t i = 0; i < answer.n; i++) /* one's own alone */
        CHECK(query.everybody || query.question.by != RG_USAGE_BY_USER ||
              (answer.rows[i].kind == RG_USAGE_CERTIFICATE && strcmp(answer.rows[i].user, "alice") == 0));
    CHECK(rg_usage_pack_answer(&answer, packed) <= sizeof packed);
}

static void total(void *data, const struct rg_account_owner *owner, uint64_t day_ns, uint64_t month_ns)
{
    uint64_t *sum = data;
    *sum += strlen(owner->user) + day_ns + month_ns;
}

/* All that is done with accounts. */
static void use(struct rg_store *store, void (*steps)(struct rg_store *store))
{
    const struct rg_accountant_load load = {.day = {0, 24}, .month = {0, INT64_MAX}};
    uint64_t sum = 0, removed;
    steps(store);
    (void)!rg_store_totals(store, &load, total, &sum, why, sizeof why);
    (void)!rg_store_close_sessions(store, true, why, sizeof why);
    (void)!rg_store_expire(store, 3600, 2000000000, &removed, why, sizeof why);
}

/* False: the file cannot be opened. */
static bool use_file(void (*steps)(struct rg_store *store))
{
    struct rg_store *store = NULL;
    if (rg_store_open(&store, fuzz_folder, RUN, why, sizeof why) != RG_OK)
        return false;
    use(store, steps);
    rg_store_close(store);
    return true;
}

static void remove_files(void)
{
    static const char *const names[] = {"accounts.db", "accounts.db-wal", "accounts.db-shm", "lock"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", fuzz_folder, names[i]);
        (void)unlink(path);
    }
}

static void records(struct rg_store *store)
{
    static void (*const kinds[KINDS])(struct rg_store * store) = {session, part, look};
    while (fuzz_more())
        kinds[fuzz_u8() % KINDS](store);
}

static void changed_file(void)
{
    unsigned char *file = malloc(good.size);
    CHECK(file);
    memcpy(file, good.data, good.size);
    while (fuzz_more()) {
        uint16_t at;
        rg_get_into(&fuzz_in, &at, sizeof at);
        file[at % good.size] = (unsigned char)fuzz_u8();
    }
    fuzz_folder_write("accounts.db", file, good.size);
    free(file);
    (void)use_file(look);
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

static void add_some(struct rg_store *store)
{
    static struct rg_accountant_session one = {.number = 1,
                                               .owner = {RG_USAGE_CERTIFICATE, "alice", "", "ml"},
                                               .started = 1700000000,
                                               .n_devices = 1};
    struct rg_accountant_part some = {.session = 1, .slice = {.hour = 472222, .figures = {.held_ns = 5}}};
    CHECK(rg_store_begin(store, why, sizeof why) == RG_OK &&
          rg_store_session(store, &one, why, sizeof why) == RG_OK &&
          rg_store_part(store, &some, why, sizeof why) == RG_OK &&
          rg_store_commit(store, why, sizeof why) == RG_OK);
}

static void add_nothing(struct rg_store *store)
{
    (void)store;
}

/* What a file has in it when that is done with a new one. */
static unsigned char *make_file(void (*steps)(struct rg_store *store), size_t *size)
{
    char path[256];
    CHECK(use_file(steps));
    snprintf(path, sizeof path, "%s/accounts.db", fuzz_folder);
    FILE *file = fopen(path, "rb");
    unsigned char *made = malloc(FILE_MAX);
    CHECK(file && made && (*size = fread(made, 1, FILE_MAX, file)) > 0);
    fclose(file);
    remove_files();
    return made;
}

/* Accounts with nothing in them, whose pages are from now on in memory alone. */
static void open_kept(void)
{
    enum {
        WRITE_VERSION = 18,
        READ_VERSION = 19,
        ROLLBACK = 1
    }; /* bytes of the file's head; memory has no write-ahead log */
    fuzz_folder_write("accounts.db", empty.data, empty.size);
    CHECK(rg_store_open(&kept, fuzz_folder, RUN, why, sizeof why) == RG_OK);
    unsigned char *pages = sqlite3_malloc64(empty.size);
    CHECK(pages);
    memcpy(pages, empty.data, empty.size);
    pages[WRITE_VERSION] = pages[READ_VERSION] = ROLLBACK;
    CHECK(sqlite3_deserialize(kept->db, "main", pages, (sqlite3_int64)empty.size, (sqlite3_int64)empty.size,
                              SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) == SQLITE_OK);
    remove_files();
}

/* As it was opened. */
static void empty_kept(void)
{
    rg_store_rollback(kept);
    CHECK(
        rg_store_run(
            kept,
            "BEGIN; DELETE FROM part; DELETE FROM session; UPDATE clock SET seen = 0, jumped = 0; COMMIT") ==
        SQLITE_OK);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    fuzz_folder_make();
    good.data = make_file(add_some, &good.size);
    empty.data = make_file(add_nothing, &empty.size);
    open_kept();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const unsigned way = data[0] % WAYS;
    if (way == QUESTION)
        question(data + 1, size - 1);
    else if (way == ANSWER)
        usage_answer(data + 1, size - 1);
    else if (way == QUOTAS)
        quotas(data + 1, size - 1);
    if (way < RECORDS)
        return 0;
    fuzz_in = rg_reader_of(data + 1, size - 1);
    if (way == RECORDS) {
        use(kept, records);
        empty_kept();
    } else {
        changed_file();
        remove_files();
    }
    return 0;
}

static void add_u64(uint64_t value)
{
    fuzz_add(&value, sizeof value);
}

void fuzz_seeds(void)
{
    static unsigned char packed[RG_ANSWER_SIZE_MAX];
    const struct rg_usage_question asked = {
        .user = "alice", .project = "ml", .has_project = 1, .since = 1, .by = RG_USAGE_BY_DAY};
    static struct rg_quota_answer quota = {
        .user = "alice", .n = 1, .rows = {{RG_QUOTA_USER, "alice", {1, 2}, {3}}}};
    FUZZ_STEP(NULL, QUESTION);
    fuzz_add(packed, rg_usage_pack_question(&asked, packed));
    fuzz_finish("question");
    memset(&answer, 0, sizeof answer);
    answer.n = 2;
    snprintf(answer.rows[0].user, sizeof answer.rows[0].user, "alice");
    answer.rows[1].held_ns = UINT64_MAX;
    FUZZ_STEP(NULL, ANSWER);
    fuzz_add(packed, rg_usage_pack_answer(&answer, packed));
    fuzz_finish("answer");
    FUZZ_STEP(NULL, QUOTAS);
    fuzz_add(packed, rg_quota_pack_answer(&quota, packed));
    fuzz_finish("quotas");
    FUZZ_STEP(NULL, RECORDS);
    FUZZ_STEP("alice", SESSION, 1, 2);
    fuzz_add_text("", 0);
    fuzz_add_text("ml", 2);
    add_u64(1700000000);
    add_u64(0);
    FUZZ_STEP(NULL, PART, 1, 0);
    add_u64(472222);
    add_u64(1000000000);
    add_u64(UINT64_MAX);
    for (unsigned char by = 0; by < 6; by++) {
        FUZZ_STEP("", ASK, by, 0, 0);
        fuzz_add_text("", 0);
        add_u64(0);
        add_u64(0);
        add_u64(0);
    }
    fuzz_finish("records");
    FUZZ_STEP(NULL, FILE_CHANGED, 100, 0, 7, 18, 0, 9);
    fuzz_finish("file");
}
