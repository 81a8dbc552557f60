/* rules.c - the operator's rules file: what holds for whom, and files that are wrong. */
#include "server/shares/rules.h"

#include "common/base/limits.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct rg_share_user alice = {.kind = RG_SHARE_NAME, .name = "alice"};
static const struct rg_share_user bob = {.kind = RG_SHARE_NAME, .name = "bob"};
static const struct rg_share_user local = {.kind = RG_SHARE_UID, .uid = 1000, .name = "uid 1000 (carol)"};
static const struct rg_share_user pretender = {.kind = RG_SHARE_NAME, .name = "uid:1000"};
static const struct rg_share_user nobody = {.kind = RG_SHARE_NOBODY, .name = ""};

static const char good[] =
    "{\"default\": {\"memory\": \"8G\", \"max-memory\": \"50%\", \"require-memory\": true, \"idle-timeout\": "
    "\"10min\"},"
    " \"users\": {\"alice\": {\"max-memory\": \"100%\", \"weight\": 200, \"max-priority\": \"high\"},"
    "             \"uid:1000\": {\"compute\": \"25%\", \"require-memory\": false}},"
    " \"projects\": {\"vision\": {\"members\": [\"alice\", \"uid:1000\"], \"max-weight\": 500, \"weight\": "
    "150}}}";

static struct rg_share_rules *parse(const char *text, char *why, size_t size)
{
    struct rg_share_rules *rules = NULL;
    why[0] = 0;
    return rg_share_rules_parse(text, strlen(text), &rules, why, size) == RG_OK ? rules : NULL;
}

static struct rg_share_limits limits_of(const struct rg_share_rules *rules, const struct rg_share_user *user,
                                        const char *project)
{
    struct rg_share_limits out;
    char why[256] = "";
    cr_assert_eq(rg_share_rules_limits(rules, user, project, &out, why, sizeof why), RG_OK, "%s", why);
    return out;
}

Test(rules, the_more_special_comes_first)
{
    char why[256];
    struct rg_share_rules *rules = parse(good, why, sizeof why);
    cr_assert(rules, "%s", why);
    struct rg_share_limits of = limits_of(rules, &bob, "");
    cr_expect_eq(of.memory.bytes, 8ull << 30);
    cr_expect_eq(of.max_memory.millionths, 500000);
    cr_expect(of.require_memory);
    cr_expect_eq(of.idle_timeout_ns, 600000000000ull);
    cr_expect_eq(of.weight, 0);
    of = limits_of(rules, &alice, "");
    cr_expect_eq(of.memory.bytes, 8ull << 30);
    cr_expect_eq(of.max_memory.millionths, 1000000);
    cr_expect_eq(of.weight, 200);
    cr_expect_eq(of.max_priority, RG_SHARE_PRIORITY_HIGH);
    of = limits_of(rules, &alice, "vision");
    cr_expect_eq(of.max_weight, 500);
    cr_expect_eq(of.weight, 200, "what is said of the user comes before the project");
    of = limits_of(rules, &local, "vision");
    cr_expect_eq(of.weight, 150);
    cr_expect_eq(of.compute, 250000);
    cr_expect_not(of.require_memory);
    rg_share_rules_free(rules);
}

Test(rules, a_certificate_is_no_user_of_this_machine)
{
    char why[256];
    struct rg_share_rules *rules = parse(good, why, sizeof why);
    cr_expect_eq(limits_of(rules, &pretender, "").compute, 0);
    cr_expect(limits_of(rules, &nobody, "").require_memory);
    struct rg_share_limits out;
    cr_expect_eq(rg_share_rules_limits(rules, &pretender, "vision", &out, why, sizeof why), RG_ERR_REFUSED);
    rg_share_rules_free(rules);
}

Test(rules, projects_have_members)
{
    char why[256] = "";
    struct rg_share_limits out;
    struct rg_share_rules *rules = parse(good, why, sizeof why);
    cr_expect_eq(rg_share_rules_limits(rules, &bob, "vision", &out, why, sizeof why), RG_ERR_REFUSED);
    cr_expect(strstr(why, "no member of a project 'vision'"), "%s", why);
    cr_expect_eq(rg_share_rules_limits(rules, &alice, "unknown", &out, why, sizeof why), RG_ERR_REFUSED);
    cr_expect_eq(rg_share_rules_limits(rules, &nobody, "vision", &out, why, sizeof why), RG_ERR_REFUSED);
    rg_share_rules_free(rules);
    cr_expect_eq(rg_share_rules_limits(NULL, &bob, "any", &out, why, sizeof why), RG_OK);
    cr_expect_eq(out.max_memory.bytes, 0);
}

Test(rules, a_file_that_is_wrong_is_wrong_as_a_whole)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "line 1"},
        {"{", "line 1"},
        {"[]", "not an object"},
        {"{\"defaults\": {}}", "none of \"default\""},
        {"{\"default\": 8}", "\"default\" is not an object"},
        {"{\"default\": {\"memry\": \"8G\"}}", "\"default\", \"memry\": there is no such setting"},
        {"{\"default\": {\"members\": [\"x\"]}}", "no such setting"},
        {"{\"default\": {\"memory\": 8}}", "not a text like \"8G\""},
        {"{\"default\": {\"memory\": \"8Q\"}}", "'8Q'"},
        {"{\"default\": {\"memory\": \"0\"}}", "no memory at all"},
        {"{\"default\": {\"memory\": \"0%\"}}", "not more than 0"},
        {"{\"default\": {\"max-memory\": \"150%\"}}", "not more than 0 and at most 1"},
        {"{\"default\": {\"compute\": \"1.5\"}}", "not more than 0 and at most 1"},
        {"{\"default\": {\"weight\": 0}}", "1 to 1000"},
        {"{\"default\": {\"weight\": 1001}}", "1 to 1000"},
        {"{\"default\": {\"priority\": \"urgent\"}}", "\"low\", \"normal\" or \"high\""},
        {"{\"default\": {\"idle-timeout\": \"0\"}}", "no time at all"},
        {"{\"default\": {\"require-memory\": \"yes\"}}", "neither true nor false"},
        {"{\"users\": {\"\": {}}}", "empty"},
        {"{\"users\": {\"alice\": {\"weight\": -1}}}", "\"users\", \"alice\", \"weight\""},
        {"{\"users\": {\"alice\": {}, \"alice\": {}}}", "duplicate"},
        {"{\"projects\": {\"p\": {\"members\": \"alice\"}}}", "not a list"},
        {"{\"projects\": {\"p\": {\"members\": [1]}}}", "not a list"},
        {"{\"default\": {\"quota\": {}}}", "no such setting"},
        {"{\"default\": {\"mode\": \"mig\"}}", "is none of \"shared\", \"turns\", \"mps\" and \"exclusive\""},
        {"{\"default\": {\"mode\": 1}}", "is none of \"shared\""},
        {"{\"default\": {\"mode\": \"mps\"}}", "start remote-gpud with --mps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[256];
        struct rg_share_rules *rules = parse(cases[i].text, why, sizeof why);
        cr_expect_null(rules, "%s", cases[i].text);
        cr_expect(strstr(why, cases[i].expected), "%s: %s", cases[i].text, why);
        rg_share_rules_free(rules);
    }
}

Test(rules, modes)
{
    static const struct {
        const char *name;
        enum rg_share_mode mode;
    } modes[] = {{"shared", RG_SHARE_MODE_SHARED},
                 {"turns", RG_SHARE_MODE_TURNS},
                 {"mps", RG_SHARE_MODE_MPS},
                 {"exclusive", RG_SHARE_MODE_EXCLUSIVE}};
    rg_share_rules_allow_mps(true);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char text[64], why[256] = "";
        struct rg_share_limits out;
        snprintf(text, sizeof text, "{\"default\": {\"mode\": \"%s\"}}", modes[i].name);
        struct rg_share_rules *rules = parse(text, why, sizeof why);
        cr_assert(rules, "%s", why);
        cr_expect_eq(rg_share_rules_limits(rules, &bob, "", &out, why, sizeof why), RG_OK, "%s", why);
        cr_expect_eq(out.mode, modes[i].mode, "%s", modes[i].name);
        rg_share_rules_free(rules);
    }
    rg_share_rules_allow_mps(false);
}

static bool check_quota(const json_t *quota, char *why, size_t why_size)
{
    if (json_is_object(quota))
        return true;
    rg_explain(why, why_size, "is no quota");
    return false;
}

Test(rules, quotas_are_somebody_elses_to_check)
{
    char why[256];
    rg_share_rules_check_quota(check_quota);
    struct rg_share_rules *rules =
        parse("{\"default\": {\"quota\": {}}, \"users\": {\"alice\": {\"quota\": "
              "{\"gpus\": 2}}}, \"projects\": {\"p\": {\"quota\": {\"gpus\": 3}}}}",
              why, sizeof why);
    cr_assert(rules, "%s", why);
    cr_expect_eq(json_integer_value(json_object_get(rg_share_rules_quota(rules, &alice, NULL), "gpus")), 2);
    cr_expect_eq(json_integer_value(json_object_get(rg_share_rules_quota(rules, NULL, "p"), "gpus")), 3);
    cr_expect_eq(json_object_size(rg_share_rules_quota(rules, NULL, NULL)), 0);
    cr_expect_null(rg_share_rules_quota(rules, &bob, NULL));
    rg_share_rules_free(rules);
    cr_expect_null(parse("{\"default\": {\"quota\": 1}}", why, sizeof why));
    cr_expect(strstr(why, "is no quota"), "%s", why);
    rg_share_rules_check_quota(NULL);
}

Test(rules, members_by_name)
{
    char why[256];
    struct rg_share_rules *rules =
        parse("{\"groups\": {\"g\": {\"members\": [\"bob\", \"uid:7\"]}, \"empty\": {}}}", why, sizeof why);
    cr_assert(rules, "%s", why);
    const json_t *group = json_object_get(rg_share_rules_groups(rules), "g");
    cr_expect(rg_share_rules_has_member(group, "bob"));
    cr_expect(rg_share_rules_has_member(group, "uid:7"));
    cr_expect_not(rg_share_rules_has_member(group, "alice"));
    cr_expect_not(rg_share_rules_has_member(group, ""));
    cr_expect_not(rg_share_rules_has_member(json_object_get(rg_share_rules_groups(rules), "empty"), "bob"));
    rg_share_rules_free(rules);
    /* how that is kept is no key of a file */
    cr_expect_null(parse("{\"groups\": {\"g\": {\"\\u0001members\": {\"bob\": true}}}}", why, sizeof why));
}

Test(rules, files)
{
    char why[512] = "", path[] = "/tmp/rg-rules-XXXXXX";
    struct rg_share_rules *rules = NULL;
    cr_expect_eq(rg_share_rules_read("/nonexistent/rules", &rules, why, sizeof why), RG_ERR_NOT_FOUND);
    cr_expect(strstr(why, "/nonexistent/rules"), "%s", why);
    const int fd = mkstemp(path);
    cr_assert_eq(write(fd, good, strlen(good)), (ssize_t)strlen(good));
    cr_expect_eq(rg_share_rules_read(path, &rules, why, sizeof why), RG_OK, "%s", why);
    rg_share_rules_free(rules);
    cr_assert_eq(ftruncate(fd, RG_SHARE_RULES_MAX + 1), 0);
    cr_expect_eq(rg_share_rules_read(path, &rules, why, sizeof why), RG_ERR_INVALID);
    cr_expect(strstr(why, "larger than"), "%s", why);
    close(fd);
    unlink(path);
}
