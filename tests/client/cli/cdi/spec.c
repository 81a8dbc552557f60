/* spec.c - CDI specifications: the names that may be in one, and what becomes of what cannot be written. */
#include "client/cli/cdi/spec.h"

#include <criterion/criterion.h>

#include <string.h>

Test(cdi, kinds)
{
    static const char *const good[] = {"remote-gpu.io/gpu", "a/b", "Vendor_1.x/class-2_b", "v9/g9"};
    static const char *const bad[] = {
        "",       "gpu",     "/gpu",   "vendor/", "vendor/a/b", "1vendor/gpu", "vendor-/gpu",
        "v./gpu", "v/2gpu",  "v/g.p",  "v/gpu_",  "v /gpu",     "v/gpu=1",     "v\xc3\xa4/gpu",
        "v/gpu,", "v:1/gpu", ".v/gpu", "_v/gpu",  "v/-gpu",     "v//gpu"};
    char why[256];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_expect(rg_cdi_kind_is_valid(good[i], why, sizeof why), "%s: %s", good[i], why);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *why = 0;
        cr_expect(!rg_cdi_kind_is_valid(bad[i], why, sizeof why), "%s", bad[i]);
        cr_expect(*why, "%s: nothing is said", bad[i]);
    }
}

Test(cdi, a_mount_is_there_once)
{
    struct rg_cdi_spec spec;
    rg_cdi_init(&spec);
    rg_cdi_add_mount(&spec, "/a", "/x");
    rg_cdi_add_mount(&spec, "/a", "/x");
    rg_cdi_add_mount(&spec, "/a", "/y");
    cr_expect(json_array_size(spec.mounts) == 2);
    rg_cdi_fini(&spec);
}

Test(cdi, devices)
{
    struct rg_cdi_spec spec;
    rg_cdi_init(&spec);
    json_t *whole = rg_cdi_finish(&spec, "a/b", "N", 3);
    const json_t *devices = json_object_get(whole, "devices");
    static const char *const names[] = {"1", "2", "3", "all"}, *const values[] = {"N=1", "N=2", "N=3", "N="};
    cr_assert(json_array_size(devices) == 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *one = json_array_get(devices, i);
        const json_t *env = json_object_get(json_object_get(one, "containerEdits"), "env");
        cr_expect_str_eq(json_string_value(json_object_get(one, "name")), names[i]);
        cr_expect_str_eq(json_string_value(json_array_get(env, 0)), values[i]);
    }
    cr_expect(!json_object_get(json_object_get(whole, "containerEdits"), "deviceNodes"),
              "an empty list stands for nothing");
    json_decref(whole);
    rg_cdi_fini(&spec);
}

/* A path need not be UTF-8, which JSON is: no file is better than one with something left out. */
Test(cdi, what_cannot_be_written_leaves_no_file)
{
    struct rg_cdi_spec spec;
    rg_cdi_init(&spec);
    rg_cdi_add_mount(&spec, "/folder\xff", "/x");
    rg_cdi_add_mount(&spec, "/a", "/x");
    cr_expect_null(rg_cdi_finish(&spec, "a/b", "N", 1));
    rg_cdi_fini(&spec);
    rg_cdi_init(&spec);
    rg_cdi_add_variable(&spec, "NAME", "\xff");
    cr_expect_null(rg_cdi_finish(&spec, "a/b", "N", 1));
    rg_cdi_fini(&spec);
}
