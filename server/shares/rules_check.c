/* rules_check.c - see rules_check.h. */
#include "server/shares/rules_check.h"

#include "common/base/limits.h"
#include "common/base/parse.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static rg_share_quota_check *quota_check, *used_up_check;

void rg_share_rules_check_quota(rg_share_quota_check *check)
{
    quota_check = check;
}

void rg_share_rules_check_used_up(rg_share_quota_check *check)
{
    used_up_check = check;
}

static bool mps_allowed;

void rg_share_rules_allow_mps(bool allowed)
{
    mps_allowed = allowed;
}

/* --- one key: its value into its field ------------------------------------------------------------------------- */

static bool get_amount(const json_t *value, void *out, char *why, size_t why_size)
{
    struct rg_share_amount *amount = out;
    const char *text = json_string_value(value);
    *amount = (struct rg_share_amount){0};
    if (!text) {
        rg_explain(why, why_size, "is not a text like \"8G\" or \"50%%\"");
        return false;
    }
    if (strchr(text, '%'))
        return rg_parse_fraction(text, &amount->millionths, why, why_size) == RG_OK;
    if (rg_parse_size(text, &amount->bytes, why, why_size) != RG_OK)
        return false;
    if (amount->bytes == 0)
        rg_explain(why, why_size, "'%s' is no memory at all", text);
    return amount->bytes != 0;
}

static bool get_part(const json_t *value, void *out, char *why, size_t why_size)
{
    const char *text = json_string_value(value);
    if (!text)
        rg_explain(why, why_size, "is not a text like \"25%%\"");
    return text && rg_parse_fraction(text, out, why, why_size) == RG_OK;
}

static bool get_weight(const json_t *value, void *out, char *why, size_t why_size)
{
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > RG_SHARE_WEIGHT_MAX) {
        rg_explain(why, why_size, "is not a number from 1 to %u", RG_SHARE_WEIGHT_MAX);
        return false;
    }
    *(uint32_t *)out = (uint32_t)number;
    return true;
}

static bool get_priority(const json_t *value, void *out, char *why, size_t why_size)
{
    const char *text = json_string_value(value);
    if (text && rg_share_priority_parse(text, out))
        return true;
    rg_explain(why, why_size, "is not \"low\", \"normal\" or \"high\"");
    return false;
}

static bool get_duration(const json_t *value, void *out, char *why, size_t why_size)
{
    const char *text = json_string_value(value);
    if (!text) {
        rg_explain(why, why_size, "is not a text like \"10min\"");
        return false;
    }
    if (rg_parse_duration(text, out, why, why_size) != RG_OK)
        return false;
    if (*(uint64_t *)out == 0)
        rg_explain(why, why_size, "'%s' is no time at all", text);
    return *(uint64_t *)out != 0;
}

static bool get_mode(const json_t *value, void *out, char *why, size_t why_size)
{
    static const char *const names[] = {[RG_SHARE_MODE_SHARED] = "shared",
                                        [RG_SHARE_MODE_TURNS] = "turns",
                                        [RG_SHARE_MODE_MPS] = "mps",
                                        [RG_SHARE_MODE_EXCLUSIVE] = "exclusive"};
    const char *text = json_string_value(value);
    enum rg_share_mode *mode = out;
    *mode = RG_SHARE_MODE_EXCLUSIVE;
    while (*mode != RG_SHARE_MODE_ANY && (!text || strcmp(text, names[*mode]) != 0))
        (*mode)--;
    if (*mode == RG_SHARE_MODE_ANY)
        rg_explain(why, why_size, "is none of \"shared\", \"turns\", \"mps\" and \"exclusive\"");
    else if (*mode == RG_SHARE_MODE_MPS && !mps_allowed)
        rg_explain(why, why_size,
                   "\"mps\" needs a server that has MPS; start remote-gpud with --mps and the folder of "
                   "nvidia-cuda-mps-control");
    return *mode != RG_SHARE_MODE_ANY && (*mode != RG_SHARE_MODE_MPS || mps_allowed);
}

static bool get_flag(const json_t *value, void *out, char *why, size_t why_size)
{
    if (!json_is_boolean(value))
        rg_explain(why, why_size, "is neither true nor false");
    *(bool *)out = json_is_true(value);
    return json_is_boolean(value);
}

static const struct key {
    const char *name;
    bool (*get)(const json_t *value, void *out, char *why, size_t why_size);
    size_t offset;
} keys[] = {
#define AT(field) offsetof(struct rg_share_limits, field)
    {"memory", get_amount, AT(memory)},
    {"max-memory", get_amount, AT(max_memory)},
    {"require-memory", get_flag, AT(require_memory)},
    {"compute", get_part, AT(compute)},
    {"max-compute", get_part, AT(max_compute)},
    {"weight", get_weight, AT(weight)},
    {"max-weight", get_weight, AT(max_weight)},
    {"priority", get_priority, AT(priority)},
    {"max-priority", get_priority, AT(max_priority)},
    {"idle-timeout", get_duration, AT(idle_timeout_ns)},
    {"max-idle-timeout", get_duration, AT(max_idle_timeout_ns)},
    {"mode", get_mode, AT(mode)},
    {"preempt", get_flag, AT(preempt)},
#undef AT
};

static const struct key *key_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

void rg_share_rules_overlay(struct rg_share_limits *limits, const json_t *entry)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(entry, keys[i].name);
        if (value) /* which was checked when the file was read */
            (void)keys[i].get(value, (char *)limits + keys[i].offset, NULL, 0);
    }
}

/* --- checking a file --------------------------------------------------------------------------------------- */

static bool check_members(const json_t *members, char *why, size_t why_size)
{
    size_t i;
    json_t *member;
    bool good = json_is_array(members);
    json_array_foreach((json_t *)(uintptr_t)members, i, member) good = good && json_is_string(member);
    if (!good)
        rg_explain(why, why_size, "\"members\" is not a list of users' names");
    return good;
}

/* What is said of one user, of one project, or by default; `where` names it. */
static bool check_entry(const json_t *entry, const char *where, bool project, char *why, size_t why_size)
{
    const char *name;
    json_t *value;
    char reason[256] = "";
    if (!json_is_object(entry)) {
        rg_explain(why, why_size, "%s is not an object { … }", where);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)entry, name, value)
    {
        const struct key *key = key_by_name(name);
        struct rg_share_limits ignored;
        if (key && key->get(value, (char *)&ignored + key->offset, reason, sizeof reason))
            continue;
        if (!key && project && strcmp(name, "members") == 0 && check_members(value, reason, sizeof reason))
            continue;
        if (!key && quota_check && strcmp(name, "quota") == 0 && quota_check(value, reason, sizeof reason))
            continue;
        if (!reason[0])
            snprintf(reason, sizeof reason, "there is no such setting");
        rg_explain(why, why_size, "%s, \"%s\": %s", where, name, reason);
        return false;
    }
    return true;
}

/* Who is in it twice would count twice. */
static bool check_once(const json_t *members, char *why, size_t why_size)
{
    json_t *seen = json_object(), *member;
    bool good = seen != NULL;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)members, i, member)
    {
        const char *name = json_string_value(member);
        if (good && json_object_get(seen, name)) {
            rg_explain(why, why_size, "'%s' is in it twice", name);
            good = false;
        }
        good = good && json_object_set_new(seen, name, json_true()) == 0;
    }
    json_decref(seen);
    return good;
}

/* A group has members, and a quota for all of them together: limits are a user's, or a project's. */
static bool check_group(const json_t *group, const char *where, char *why, size_t why_size)
{
    const char *name;
    json_t *value;
    char reason[256] = "";
    if (!json_is_object(group)) {
        rg_explain(why, why_size, "%s is not an object { … }", where);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)group, name, value)
    {
        if (strcmp(name, "members") == 0 && check_members(value, reason, sizeof reason) &&
            check_once(value, reason, sizeof reason))
            continue;
        if (quota_check && strcmp(name, "quota") == 0 && quota_check(value, reason, sizeof reason))
            continue;
        if (!reason[0])
            snprintf(reason, sizeof reason, "a group has \"members\" and \"quota\"");
        rg_explain(why, why_size, "%s, \"%s\": %s", where, name, reason);
        return false;
    }
    return true;
}

static bool check_entries(const json_t *entries, const char *section, bool project, char *why,
                          size_t why_size)
{
    const char *name;
    json_t *entry;
    char where[RG_CONTROL_TEXT + 32];
    if (!json_is_object(entries) || json_object_size(entries) > RG_SHARE_RULES_NAMES_MAX) {
        rg_explain(why, why_size, "\"%s\" is not an object { … } of at most %u names", section,
                   RG_SHARE_RULES_NAMES_MAX);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)entries, name, entry)
    {
        if (strlen(name) >= RG_CONTROL_TEXT || !*name) {
            rg_explain(why, why_size, "\"%s\" has a name that is empty or longer than %d bytes", section,
                       RG_CONTROL_TEXT - 1);
            return false;
        }
        snprintf(where, sizeof where, "\"%s\", \"%s\"", section, name);
        if (*section == 'g' ? !check_group(entry, where, why, why_size)
                            : !check_entry(entry, where, project, why, why_size))
            return false;
    }
    return true;
}

bool rg_share_rules_check(const json_t *root, char *why, size_t why_size)
{
    const char *name;
    json_t *value;
    if (!json_is_object(root)) {
        rg_explain(why, why_size, "the file is not an object { … }");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        bool good;
        if (strcmp(name, "default") == 0) {
            good = check_entry(value, "\"default\"", false, why, why_size);
        } else if (strcmp(name, "when-used-up") == 0 && used_up_check) {
            char reason[256] = "";
            good = used_up_check(value, reason, sizeof reason);
            if (!good)
                rg_explain(why, why_size, "\"when-used-up\": %s", reason);
        } else if (strcmp(name, "users") == 0 || strcmp(name, "projects") == 0 ||
                   strcmp(name, "groups") == 0) {
            good = check_entries(value, name, *name == 'p', why, why_size);
        } else {
            rg_explain(
                why, why_size,
                "\"%s\" is none of \"default\", \"users\", \"projects\", \"groups\" and \"when-used-up\"",
                name);
            good = false;
        }
        if (!good)
            return false;
    }
    return true;
}
