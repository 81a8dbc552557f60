/* settings.c - settings of remote-gpu: a flag beats the environment beats the user's file. */
#include "client/cli/base/settings.h"
#include "client/cli/base/inventory.h"
#include "client/cli/base/output.h"
#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_home(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/.config", temporary_folder());
    mkdir(path, 0700);
    strcat(path, "/remote-gpu");
    mkdir(path, 0700);
    strcat(path, "/config");
    FILE *out = fopen(path, "w");
    cr_assert_not_null(out);
    fputs("server = from-file\nsomething = x\n", out);
    fclose(out);
    setenv("HOME", temporary_folder(), 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("REMOTE_GPU_SERVER");
    unsetenv("REMOTE_GPU_GPUS");
    unsetenv("REMOTE_GPU_OPT");
}

static void write_config(const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/.config/remote-gpu/config", temporary_folder());
    FILE *out = fopen(path, "w");
    cr_assert_not_null(out);
    fputs(text, out);
    fclose(out);
}

TestSuite(settings, .init = make_home);

static enum rg_cli_load load(struct rg_cli_settings *settings, enum rg_cli_command command, const char *word)
{
    char *argv[] = {(char *)"run", (char *)(uintptr_t)word};
    int next;
    return rg_cli_settings_load(settings, command, word ? 2 : 1, argv, &next);
}

Test(settings, a_mistake_in_the_file_is_told)
{
    struct rg_cli_settings settings;
    cr_expect_eq(load(&settings, RG_CLI_RUN, NULL), RG_CLI_WRONG);
    rg_cli_settings_fini(&settings);
}

Test(settings, file_environment_flag)
{
    write_config("server = from-file\ngpus = 3\nopt = -all\n");
    struct rg_cli_settings settings;
    cr_assert_eq(load(&settings, RG_CLI_RUN, NULL), RG_CLI_GO);
    cr_assert_eq(settings.server.n, 1);
    cr_expect_str_eq(settings.server.items[0], "from-file");
    cr_expect_eq(settings.gpus, 3);
    cr_expect_str_eq(settings.opt, "-all");
    rg_cli_settings_fini(&settings);

    setenv("REMOTE_GPU_SERVER", "from-env:1,second", 1);
    cr_assert_eq(load(&settings, RG_CLI_RUN, NULL), RG_CLI_GO);
    cr_assert_eq(settings.server.n, 2);
    cr_expect_str_eq(settings.server.items[0], "from-env:1");
    rg_cli_settings_fini(&settings);

    cr_assert_eq(load(&settings, RG_CLI_RUN, "-lfrom-flag"), RG_CLI_GO);
    cr_assert_eq(settings.server.n, 1);
    cr_expect_str_eq(settings.server.items[0], "from-flag");
    cr_expect_eq(settings.gpus, 3);
    rg_cli_settings_fini(&settings);
}

Test(settings, wrong_values_from_any_source)
{
    static const struct {
        const char *name, *variable, *value;
    } wrong[] = {{"opt", "REMOTE_GPU_OPT", "-batch,-wrong"},
                 {"connections", "REMOTE_GPU_CONNECTIONS", "9"},
                 {"rails", "REMOTE_GPU_RAILS", "0"},
                 {"transport", "REMOTE_GPU_TRANSPORT", "udp"},
                 {"wait", "REMOTE_GPU_WAIT", "long"},
                 {"compress", "REMOTE_GPU_COMPRESS", "gzip"},
                 {"gpus", "REMOTE_GPU_GPUS", "0"},
                 {"log", "REMOTE_GPU_LOG", "loud"},
                 {"driver", NULL, ""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char word[64];
        struct rg_cli_settings settings;
        write_config("");
        snprintf(word, sizeof word, "--%s=%s", wrong[i].name, wrong[i].value);
        cr_expect_eq(load(&settings, RG_CLI_RUN, word), RG_CLI_WRONG, "%s", word);
        rg_cli_settings_fini(&settings);
        if (wrong[i].variable) {
            setenv(wrong[i].variable, wrong[i].value, 1);
            cr_expect_eq(load(&settings, RG_CLI_RUN, NULL), RG_CLI_WRONG, "%s", wrong[i].variable);
            unsetenv(wrong[i].variable);
            rg_cli_settings_fini(&settings);
        }
        write_config(word + 2);
        cr_expect_eq(load(&settings, RG_CLI_RUN, NULL), RG_CLI_WRONG, "%s", word + 2);
        rg_cli_settings_fini(&settings);
    }
}

Test(settings, right_values)
{
    static const char *const right[] = {
        "--opt=",    "--opt=-all,+batch,query-cache", "--connections=0", "--connections=auto", "--rails=off",
        "--rails=2", "--rails=mlx5_0,10.0.0.1"};
    write_config("");
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct rg_cli_settings settings;
        cr_expect_eq(load(&settings, RG_CLI_RUN, right[i]), RG_CLI_GO, "%s", right[i]);
        rg_cli_settings_fini(&settings);
    }
}

Test(settings, one_file_serves_all_subcommands)
{
    write_config("server = a\ngpus = 3\n");
    struct rg_cli_settings settings;
    cr_assert_eq(load(&settings, RG_CLI_LIST, NULL), RG_CLI_GO);
    cr_expect_str_eq(settings.server.items[0], "a");
    rg_cli_settings_fini(&settings);
    cr_expect_eq(load(&settings, RG_CLI_LIST, "--gpus=2"), RG_CLI_WRONG);
    rg_cli_settings_fini(&settings);
}

Test(text, bytes)
{
    char text[24];
    cr_expect_str_eq(rg_cli_bytes_text(0, text, sizeof text), "0 B");
    cr_expect_str_eq(rg_cli_bytes_text(1536, text, sizeof text), "1.5 KiB");
    cr_expect_str_eq(rg_cli_bytes_text(150ull << 30, text, sizeof text), "150 GiB");
    cr_expect_str_eq(rg_cli_bytes_text(UINT64_MAX, text, sizeof text), "16.0 EiB");
}

Test(text, uuid_and_columns)
{
    char text[48];
    const uint8_t uuid[16] = {0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff};
    cr_expect_str_eq(rg_uuid_text(uuid, false, text, sizeof text),
                     "GPU-10010203-0405-0607-0809-0a0b0c0d0eff");
    cr_expect_eq(rg_cli_text_columns("abc"), 3);
    cr_expect_eq(rg_cli_text_columns("äöü€"), 4);
}
