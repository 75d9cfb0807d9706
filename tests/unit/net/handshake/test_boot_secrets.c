/* SPDX-License-Identifier: Apache-2.0 */
/* A server with several secrets: whose a client proves, what that allows, and what becomes of sessions when
 * the secrets change. */
#include "lib/boot_rig.h"

#include <fcntl.h>
#include <stdio.h>

static struct pst_boot_secret secret_of(const char *secret, const char *owner, bool confined)
{
    return (struct pst_boot_secret){pst_bytes_of(secret), (void *)(uintptr_t)owner, confined};
}

static void expect_owner(struct rig *rig, const char *secret, const char *owner)
{
    struct client *c = calloc(1, sizeof(*c));

    assert_int_equal(dial(c, &rig->tcp, secret, false), 0);
    assert_string_equal(c->welcome.grant, owner);
    assert_int_equal(client_address(c), 0);
    pst_boot_link_close(c->link);
    free(c);
}

static void expect_wrong(struct rig *rig, const char *secret)
{
    struct client *c = calloc(1, sizeof(*c));

    assert_int_equal(dial(c, &rig->tcp, secret, false), -EACCES);
    assert_string_equal(c->fault, "wrong secret");
    free(c);
}

static void each_secret_has_its_owner(void **state)
{
    char texts[PST_BOOT_SECRETS_MAX][16];
    struct pst_boot_secret secrets[PST_BOOT_SECRETS_MAX];
    struct rig rig;

    (void)state;
    rig_open(&rig, "before", 4, 4);
    for (int i = 0; i < PST_BOOT_SECRETS_MAX; i++) {
        snprintf(texts[i], sizeof(texts[i]), "secret %d", i);
        secrets[i] = secret_of(texts[i], i % 2 ? "odd" : "even", false);
    }
    secrets[5] = secret_of(texts[2], "late", false); /* the first of two that are the same */
    assert_int_equal(pst_boot_server_secrets(rig.server, secrets, PST_BOOT_SECRETS_MAX), 0);
    rig_run(&rig);
    expect_owner(&rig, "secret 0", "even");
    expect_owner(&rig, "secret 2", "even");
    expect_owner(&rig, "secret 255", "odd");
    expect_wrong(&rig, "secret 5");
    expect_wrong(&rig, "secret 256");
    expect_wrong(&rig, "secret ");
    expect_wrong(&rig, "before");
    rig_close(&rig);
}

/* What shares memory of the host sees all of it. */
static void confined_clients_share_no_memory(void **state)
{
    struct pst_boot_secret secrets[] = {secret_of("all", "all", false), secret_of("some", "some", true)};
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "x", 4, 4);
    assert_int_equal(pst_boot_server_secrets(rig.server, secrets, pst_count_of(secrets)), 0);
    rig.arena_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rig_run(&rig);
    for (int some = 0; some < 2; some++) {
        assert_int_equal(dial(c, &rig.path, some ? "some" : "all", false), 0);
        assert_int_equal(c->welcome.arena_count, !some);
        assert_int_equal(c->welcome.same_host, !some);
        assert_int_equal(rig.same_host, !some);
        assert_int_equal(rig.descriptors, !some);
        if (!some)
            close(c->fds[0]);
        pst_boot_link_close(c->link);
    }
    rig_close(&rig);
    free(c);
}

static void sessions_outlive_their_secret(void **state)
{
    struct pst_boot_secret old = secret_of("old", "a", false), fresh = secret_of("new", "a", false);
    struct client *c = calloc(1, sizeof(*c)), *half = calloc(1, sizeof(*half));
    struct rig rig;

    (void)state;
    rig_open(&rig, "x", 4, 4);
    assert_int_equal(pst_boot_server_secrets(rig.server, &old, 1), 0);
    rig_run(&rig);
    assert_int_equal(dial(c, &rig.tcp, "old", false), 0);
    assert_int_equal(client_address(c), 0);
    assert_int_equal(dial(half, &rig.tcp, "old", false), 0);
    rig_halt(&rig);
    assert_int_equal(pst_boot_server_secrets(rig.server, &fresh, 1), 0);
    rig_run(&rig);
    assert_int_equal(client_address(half), 0); /* welcomed before, by the secret of before */
    assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns()), 0);
    expect_wrong(&rig, "old");
    expect_owner(&rig, "new", "a");
    await_count(&rig.ends, 1);
    assert_int_equal(rig.welcomes, 3);
    pst_boot_link_close(c->link);
    pst_boot_link_close(half->link);
    rig_close(&rig);
    free(c);
    free(half);
}

/* A client of before does not ask for the name, and would not know what to do with it. */
static void the_name_comes_on_request(void **state)
{
    struct pst_boot_welcome *w = calloc(1, sizeof(*w)), *back = calloc(1, sizeof(*back));
    uint8_t buf[4096] = {0};
    size_t bytes, bare;

    (void)state;
    w->page_bytes = 4096;
    w->shard_count = 1;
    w->shards[0].bytes = 1;
    bare = boot_welcome_bytes(w);
    snprintf(w->grant, sizeof(w->grant), "%s", "a-name-of-thirty-one-characters");
    bytes = boot_welcome_bytes(w);
    assert_int_equal(bytes, bare + 32);
    boot_welcome_encode(w, buf, bytes);
    assert_int_equal(boot_welcome_decode(buf, bytes, back), 0);
    assert_string_equal(back->grant, w->grant);
    assert_int_equal(boot_welcome_decode(buf, bare, back), 0);
    assert_string_equal(back->grant, "");
    for (size_t cut = bare + 1; cut < bytes; cut++)
        assert_int_equal(boot_welcome_decode(buf, cut, back), -EPROTO);
    buf[bytes - 1] = '\n'; /* it is printed */
    assert_int_equal(boot_welcome_decode(buf, bytes, back), -EPROTO);
    buf[bare] = 32;
    assert_int_equal(boot_welcome_decode(buf, bytes + 1, back), -EPROTO);
    free(w);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_secret_has_its_owner),
        cmocka_unit_test(confined_clients_share_no_memory),
        cmocka_unit_test(sessions_outlive_their_secret),
        cmocka_unit_test(the_name_comes_on_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
