/* rewind.c - etcd with another past than before: a lower revision, another cluster, another change at the revision that was told last. */
#include "pool/etcd/internal.h"

#include <criterion/criterion.h>

static struct rg_etcd etcd;

static void end(void)
{
    rg_etcd_past_fini(&etcd);
}

TestSuite(etcd_rewind, .fini = end);

static void put(const char *key, const char *value, int64_t changed)
{
    rg_etcd_past_put(&etcd, &(struct rg_etcd_pair){.key = key, .value = value, .changed = changed});
}

static void answered(const char *cluster, int64_t revision, int64_t before)
{
    json_t *reply =
        json_pack("{s:{s:s, s:o}}", "header", "cluster_id", cluster, "revision", rg_etcd_number(revision));
    rg_etcd_past_answered(&etcd, reply, before);
    json_decref(reply);
}

static bool is_there(const char *value, int64_t changed)
{
    json_t *reply = json_pack("{s:[{s:o, s:o}]}", "kvs", "value", rg_etcd_bytes(value), "mod_revision",
                              rg_etcd_number(changed));
    const bool there = rg_etcd_past_is_there(&etcd, reply);
    json_decref(reply);
    return there;
}

/* Whether it can be asked about. */
static bool knows(int64_t revision)
{
    json_t *question = rg_etcd_past_question(&etcd, revision);
    const bool knows = question != NULL;
    json_decref(question);
    return knows;
}

Test(etcd_rewind, what_was_told_last)
{
    cr_expect(!knows(0) && !knows(1));
    put("a", "1", 5);
    put("b", "2", 7);
    put("c", "3", 6);
    cr_expect(knows(7) && !knows(6) && !knows(8));
    cr_expect(is_there("2", 7));
    cr_expect(!is_there("1", 7));
    cr_expect(!is_there("2", 5), "it is what stood there before");
    json_t *none = json_object();
    cr_expect(!rg_etcd_past_is_there(&etcd, none));
    json_decref(none);
}

Test(etcd_rewind, a_revision_never_falls)
{
    answered("1", 20, 1);
    put("a", "1", 20);
    answered("1", 22, 20);
    answered("1", 21, 20); /* was begun before that, and answered later */
    cr_expect(etcd.past.revision == 22 && knows(20));
    answered("1", 9, 0); /* of a lease: says nothing of keys */
    cr_expect(etcd.past.revision == 22 && knows(20));
    answered("1", 19, 22);
    cr_expect_eq(etcd.past.revision, 19);
    cr_expect(!knows(20), "that was in another past");
}

/* As a process that goes on in another one's place. */
static void begin_after(const struct rg_etcd_seen *seen)
{
    rg_etcd_past_fini(&etcd);
    etcd.past = (struct rg_etcd_past){0};
    rg_etcd_set_seen(&etcd, seen);
}

Test(etcd_rewind, what_another_process_has_seen)
{
    answered("1", 20, 1);
    const struct rg_etcd_seen seen = rg_etcd_get_seen(&etcd);
    begin_after(&seen);
    put("a", "1", 15);
    answered("1", 21, etcd.past.revision);
    cr_expect(knows(15), "it is the past that was seen");
    begin_after(&seen);
    put("a", "1", 15);
    answered("1", 19, etcd.past.revision);
    cr_expect(!knows(15), "it is older than what was seen");
    begin_after(&seen);
    put("a", "1", 25);
    answered("2", 25, etcd.past.revision);
    cr_expect(!knows(25), "it is another etcd");
}

Test(etcd_rewind, another_cluster)
{
    answered("1", 20, 1);
    put("a", "1", 20);
    answered("2", 30, 0);
    cr_expect(!knows(20));
    put("a", "1", 31);
    answered("2", 31, 30);
    cr_expect(knows(31));
}
