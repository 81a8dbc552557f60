/*
 * Which credentials are for which server, what is wrong with some, and that a server over the network is never used
 * without by mistake.
 */
#include "client/credentials/credentials.h"

#include "client/query/servers.h"
#include "tests/client/credentials/folder.h"

static struct rg_credentials found;
static char why[1024];

static enum rg_status find(const char *server)
{
    *why = 0;
    return rg_credentials_find(server, &found, why, sizeof why);
}

/* Refused, for a reason with these words. */
static void refused(const char *server, const char *words)
{
    cr_assert_eq(find(server), RG_ERR_REFUSED, "%s", server);
    cr_assert(!found.found);
    cr_assert_not_null(strstr(why, words), "%s: %s", server, why);
}

static void plain(const char *server)
{
    cr_assert_eq(find(server), RG_OK, "%s: %s", server, why);
    cr_assert(!found.found);
    struct rg_tls_client tls;
    cr_assert_null(rg_credentials_tls(&found, &tls));
}

static void from(const char *server, const char *path)
{
    cr_assert_eq(find(server), RG_OK, "%s: %s", server, why);
    cr_assert(found.found);
    cr_assert_str_eq(found.folder, path);
}

Test(credentials, without_any, .init = make_home)
{
    static const char *const near[] = {"127.0.0.1",      "127.1.2.3:99", "localhost",
                                       "LOCALHOST:7601", "[::1]:7600",   "[::ffff:127.0.0.1]:7600",
                                       "unix:/run/x",    "unix:@x"};
    for (unsigned i = 0; i < sizeof near / sizeof *near; i++)
        plain(near[i]);
    static const char *const far[] = {"gpu",
                                      "gpu:7600",
                                      "10.0.0.1",
                                      "128.0.0.1",
                                      "1127.0.0.1",
                                      "127.0.0.1.example",
                                      "localhost.example",
                                      "[fe80::1]",
                                      "[::ffff:10.0.0.1]",
                                      "127.0.0.256.1",
                                      "rdma://10.0.0.1"};
    for (unsigned i = 0; i < sizeof far / sizeof *far; i++)
        refused(far[i], "remote-gpu join");
    cr_assert_eq(find("a b"), RG_ERR_INVALID);
    unsetenv("HOME"); /* nowhere to look */
    plain("127.0.0.1");
    refused("gpu", "remote-gpu join");
}

Test(credentials, without_but_allowed, .init = make_home)
{
    static const char *const no[] = {"", "no", "0", "off", "perhaps"}, *const yes[] = {"1", "yes", "on",
                                                                                       "true"};
    for (unsigned i = 0; i < sizeof no / sizeof *no; i++) {
        setenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED", no[i], 1);
        refused("gpu", "--allow-unauthenticated");
    }
    for (unsigned i = 0; i < sizeof yes / sizeof *yes; i++) {
        setenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED", yes[i], 1);
        plain("gpu");
    }
    /* credentials that there are decide, whatever is allowed where there are none */
    mkdir(below(".config/remote-gpu/servers/gpu:7600"), 0700);
    refused("gpu", "is empty");
    write_three(below(".config/remote-gpu/servers/gpu:7600"));
    from("gpu", below(".config/remote-gpu/servers/gpu:7600"));
}

Test(credentials, each_server_its_own, .init = make_home)
{
    mkdir(below(".config/remote-gpu/servers/gpu:7600"), 0700);
    mkdir(below(".config/remote-gpu/servers/[::1]:7601"), 0700);
    mkdir(below(".config/remote-gpu/servers/127.0.0.1:7600"), 0700);
    write_three(below(".config/remote-gpu/servers/gpu:7600"));
    write_three(below(".config/remote-gpu/servers/[::1]:7601"));
    write_three(below(".config/remote-gpu/servers/127.0.0.1:7600"));
    from("gpu", below(".config/remote-gpu/servers/gpu:7600"));
    cr_assert_str_eq(found.server_name, "gpu");
    from("tcp://GPU:7600", below(".config/remote-gpu/servers/gpu:7600"));
    from("[::1]:7601", below(".config/remote-gpu/servers/[::1]:7601"));
    cr_assert_str_eq(found.server_name, "::1");
    from("127.0.0.1",
         below(".config/remote-gpu/servers/127.0.0.1:7600")); /* loopback is no reason to go without */
    refused("gpu:7601", "joined so far: ");
    cr_assert_not_null(strstr(why, "gpu:7600"));
    plain("[::1]:7600");
    plain("unix:/run/x");
    /* those that are for all servers are for the others */
    write_three(below(".config/remote-gpu"));
    from("gpu:7601", below(".config/remote-gpu"));
    from("[::1]:7600", below(".config/remote-gpu"));
    from("gpu", below(".config/remote-gpu/servers/gpu:7600"));
    struct rg_tls_client tls;
    cr_assert_eq(rg_credentials_tls(&found, &tls), &tls);
    cr_assert_str_eq(tls.key_file, below(".config/remote-gpu/servers/gpu:7600/tls.key"));
    cr_assert_str_eq(tls.certificate_file, below(".config/remote-gpu/servers/gpu:7600/tls.crt"));
    cr_assert_str_eq(tls.ca_file, below(".config/remote-gpu/servers/gpu:7600/ca.crt"));
    cr_assert_str_eq(tls.server_name, "gpu");
}

Test(credentials, half_written, .init = make_home)
{
    static const char *const names[] = {"ca.crt", "tls.crt", "tls.key"};
    const char *const place = "servers/127.0.0.1:7600"; /* not even on loopback are they as good as none */
    mkdir(below(".config/remote-gpu/%s", place), 0700);
    for (unsigned missing = 1; missing < 7; missing++) {
        write_three(below(".config/remote-gpu/%s", place));
        for (unsigned i = 0; i < 3; i++)
            if (missing & 1u << i)
                unlink(below(".config/remote-gpu/%s/%s", place, names[i]));
        refused("127.0.0.1", "not complete");
    }
    for (unsigned i = 0; i < 3; i++) { /* a disk that was full */
        write_three(below(".config/remote-gpu/%s", place));
        write_file(below(".config/remote-gpu/%s/%s", place, names[i]), 0600, "");
        refused("127.0.0.1", "is empty");
    }
    write_three(below(".config/remote-gpu/%s", place));
    unlink(below(".config/remote-gpu/%s/ca.crt", place));
    mkdir(below(".config/remote-gpu/%s/ca.crt", place), 0700);
    refused("127.0.0.1", "is not a file");
}

Test(credentials, keys_of_others, .init = make_home)
{
    const char *const place = ".config/remote-gpu/servers/gpu:7600";
    mkdir(below("%s", place), 0700);
    write_three(below("%s", place));
    const bool root = geteuid() == 0;
    for (mode_t mode = 0; mode <= 0777; mode++) {
        chmod(below("%s/tls.key", place), mode | 0400);
        const bool good =
            root ? (mode & 037) == 0 : (mode & 077) == 0; /* root's may be lent to a group, to be read */
        cr_assert_eq(find("gpu"), good ? RG_OK : RG_ERR_REFUSED, "%04o", (unsigned)mode);
        cr_assert(good || strstr(why, "can be used by others"), "%s", why);
    }
    chmod(below("%s/tls.key", place), 0600);
    chmod(below("%s/tls.crt", place), 0644); /* it is no secret */
    chmod(below("%s/ca.crt", place), 0644);
    from("gpu", below("%s", place));
    if (!root)
        return;
    /* as somebody else: another user's key cannot be read, and that is said; none of it is "no credentials" */
    chmod(below(".config"), 0755);
    chmod(temporary_folder(), 0755);
    chmod(below(".config/remote-gpu"), 0755);
    chmod(below(".config/remote-gpu/servers"), 0755);
    chmod(below("%s", place), 0755);
    cr_assert_eq(seteuid(65534), 0);
    refused("gpu", "Permission denied");
    cr_assert_eq(seteuid(0), 0);
    chown(below("%s/tls.key", place), 65534, 65534);
    chmod(below("%s/tls.key", place), 0640);
    refused("gpu", "can be used by others"); /* not root's: a group is too many */
}

/* As Kubernetes mounts a secret: ..data is a link to a folder with a time in its name, the files are links into it. */
static void mount_secret(const char *path, const char *time, mode_t mode)
{
    static const char *const names[] = {"ca.crt", "tls.crt", "tls.key"};
    mkdir(below("%s", path), 0777);
    mkdir(below("%s/..%s", path, time), 0755);
    write_three(below("%s/..%s", path, time));
    for (int i = 0; i < 3; i++) {
        char target[64];
        chmod(below("%s/..%s/%s", path, time, names[i]), mode);
        snprintf(target, sizeof target, "..data/%s", names[i]);
        (void)!symlink(target, below("%s/%s", path, names[i]));
    }
    char target[64];
    snprintf(target, sizeof target, "..%s", time);
    cr_assert_eq(symlink(target, below("%s/..data_tmp", path)), 0);
    cr_assert_eq(rename(below("%s/..data_tmp", path), below("%s/..data", path)), 0);
}

Test(credentials, secret_of_kubernetes, .init = make_home)
{
    mount_secret("secret", "2026_01_01", 0400);
    setenv("REMOTE_GPU_CREDENTIALS", below("secret"), 1);
    from("gpu", below("secret"));
    from("127.0.0.1", below("secret")); /* who names them wants them */
    cr_assert(!found.joined);           /* whoever has mounted them renews them */
    plain("unix:/run/x");
    mount_secret("secret", "2026_02_01", 0400);
    from("gpu", below("secret"));
    mount_secret("secret", "2026_03_01", 0644); /* what a secret has without defaultMode */
    refused("gpu", "defaultMode");
}

Test(credentials, named_folder, .init = make_home)
{
    write_three(below(".config/remote-gpu"));
    mkdir(below("other"), 0700);
    setenv("REMOTE_GPU_CREDENTIALS", below("other"), 1);
    refused("gpu", "REMOTE_GPU_CREDENTIALS names");
    refused("127.0.0.1", "REMOTE_GPU_CREDENTIALS names");
    setenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED", "yes",
           1); /* that is for servers without any: these were asked for */
    refused("gpu", "REMOTE_GPU_CREDENTIALS names");
    setenv("REMOTE_GPU_CREDENTIALS", below("nowhere"), 1);
    refused("gpu", "REMOTE_GPU_CREDENTIALS names");
    write_three(below("other"));
    cr_assert_eq(chdir(temporary_folder()), 0);
    setenv("REMOTE_GPU_CREDENTIALS", "other", 1);
    from("gpu", below("other"));
    setenv("REMOTE_GPU_CREDENTIALS", "", 1);
    from("gpu", below(".config/remote-gpu"));
    setenv("XDG_CONFIG_HOME", below("config"), 1);
    unsetenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED");
    refused("gpu", "remote-gpu join");
    mkdir(below("config"), 0700);
    mkdir(below("config/remote-gpu"), 0700);
    write_three(below("config/remote-gpu"));
    from("gpu", below("config/remote-gpu"));
}

Test(credentials, server_joined_last, .init = make_home)
{
    char server[320];
    cr_assert(!rg_credentials_joined(server, sizeof server));
    static const char *const bad[] = {"", "\n", "a b\n", "host:port\n"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(below(".config/remote-gpu/server"), 0600, bad[i]);
        cr_assert(!rg_credentials_joined(server, sizeof server), "%s", bad[i]);
    }
    write_file(below(".config/remote-gpu/server"), 0600, "gpu:7601\nmore\n");
    cr_assert(rg_credentials_joined(server, sizeof server));
    cr_assert_str_eq(server, "gpu:7601");
    cr_assert(!rg_credentials_joined(server, strlen("gpu:7601"))); /* no room: not half of it */
    setenv("REMOTE_GPU_SERVER", "other", 1);
    cr_assert_str_eq(rg_servers_named(), "other");
    unsetenv("REMOTE_GPU_SERVER");
    cr_assert_str_eq(rg_servers_named(), "gpu:7601");
}

Test(credentials, policy, .init = make_home)
{
    struct rg_security_policy policy = rg_security_policy();
    cr_assert(!policy.unauthenticated && !policy.control_only && !policy.no_rdma);
    const struct rg_credentials none = {0}, some = {.found = true};
    cr_assert(rg_credentials_allow_rdma(&none, why, sizeof why)); /* nothing is encrypted there anyway */
    cr_assert(!rg_credentials_allow_rdma(&some, why, sizeof why));
    cr_assert_not_null(strstr(why, "--encrypt control"));
    setenv("REMOTE_GPU_ENCRYPT", "control", 1);
    setenv("REMOTE_GPU_RDMA_POLICY", "deny", 1);
    policy = rg_security_policy();
    cr_assert(policy.control_only && policy.no_rdma);
    cr_assert(!rg_credentials_allow_rdma(&none, why, sizeof why));
    cr_assert_not_null(strstr(why, "--rdma deny"));
    setenv("REMOTE_GPU_RDMA_POLICY", "allow", 1);
    cr_assert(rg_credentials_allow_rdma(&some, why, sizeof why));
    setenv("REMOTE_GPU_ENCRYPT", "Control", 1); /* what is not understood is not a permission */
    cr_assert(!rg_security_policy().control_only);
}
