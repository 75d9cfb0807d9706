/* SPDX-License-Identifier: Apache-2.0 */
/* test_link.c: how long a peer is believed that only says that it is alive. */
#include "files/carry/link.h"

#include "lib/cm.h"

#include <pthread.h>
#include <sys/socket.h>

enum { STALL_MS = 250, FRAMES = 500, SPEAKS_EACH = 250, PAUSE_US = 20000 };

/* One side of a pair, and a peer that sends FRAMES frames and ends. */
struct rig {
    int ends[2];
    bool speaks; /* now and then something else than that it is alive */
    struct link link;
    char fault[PST_FAULT_BYTES];
    pthread_t peer;
};

static void *be_alive(void *arg)
{
    struct rig *rig = arg;

    for (int i = 0; i < FRAMES; i++) {
        const uint8_t frame[LINK_HEAD_BYTES] = {0, 0, 0, 0,
                                                rig->speaks && i % SPEAKS_EACH == 0 ? LINK_DONE : LINK_ALIVE};

        if (send(rig->ends[1], frame, sizeof(frame), MSG_NOSIGNAL) != (ssize_t)sizeof(frame))
            break;
        usleep(PAUSE_US); /* all together last longer than one is believed that says nothing else */
    }
    shutdown(rig->ends[1], SHUT_WR);
    return NULL;
}

static void begin(struct rig *rig, bool speaks)
{
    *rig = (struct rig){.speaks = speaks};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, rig->ends), 0);
    assert_int_equal(link_open(&rig->link, rig->ends[0], STALL_MS, rig->fault), 0);
    link_trust(&rig->link);
    assert_int_equal(pthread_create(&rig->peer, NULL, be_alive, rig), 0);
}

static void end(struct rig *rig)
{
    link_close(&rig->link);
    close(rig->ends[0]);
    pthread_join(rig->peer, NULL);
    close(rig->ends[1]);
}

static void a_peer_that_is_but_alive_is_given_up(void **state)
{
    struct pst_reader frame;
    enum link_type type;
    struct rig rig;

    (void)state;
    begin(&rig, false);
    assert_int_equal(link_receive(&rig.link, 0, &type, &frame), -ETIMEDOUT);
    end(&rig);
}

static void a_peer_that_moves_is_not(void **state)
{
    struct pst_reader frame;
    enum link_type type;
    struct rig rig;

    (void)state;
    begin(&rig, true);
    for (int i = 0; i < FRAMES / SPEAKS_EACH; i++) {
        assert_int_equal(link_receive(&rig.link, 0, &type, &frame), 0);
        assert_int_equal(type, LINK_DONE);
    }
    end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_is_but_alive_is_given_up),
        cmocka_unit_test(a_peer_that_moves_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
