/* SPDX-License-Identifier: Apache-2.0 */
/* test_link.c: how long a peer is waited for that does not move, or only says that it is alive. */
#include "files/carry/link.h"

#include "lib/cm.h"

#include <pthread.h>
#include <sys/socket.h>

enum { STALL_MS = 250, FRAMES = 500, SPEAKS_EACH = 250, PAUSE_US = 20000, BUSY_FRAMES = 100 };

/* One side of a pair, and a peer. */
struct rig {
    int ends[2];
    struct link link;
    char fault[PST_FAULT_BYTES];
    pthread_t peer;
};

/* Sends FRAMES frames and ends. @speaks: now and then something else than that it is alive. */
static void send_frames(struct rig *rig, bool speaks)
{
    for (int i = 0; i < FRAMES; i++) {
        const uint8_t frame[LINK_HEAD_BYTES] = {0, 0, 0, 0,
                                                speaks && i % SPEAKS_EACH == 0 ? LINK_DONE : LINK_ALIVE};

        if (send(rig->ends[1], frame, sizeof(frame), MSG_NOSIGNAL) != (ssize_t)sizeof(frame))
            break;
        usleep(PAUSE_US); /* all together last longer than one is believed that says nothing else */
    }
    shutdown(rig->ends[1], SHUT_WR);
}

static void *be_alive(void *arg)
{
    send_frames(arg, false);
    return NULL;
}

static void *speak(void *arg)
{
    send_frames(arg, true);
    return NULL;
}

static void begin(struct rig *rig, void *(*peer)(void *rig))
{
    *rig = (struct rig){.ends = {-1, -1}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, rig->ends), 0);
    assert_int_equal(link_open(&rig->link, rig->ends[0], STALL_MS, rig->fault), 0);
    link_trust(&rig->link);
    assert_int_equal(pthread_create(&rig->peer, NULL, peer, rig), 0);
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
    begin(&rig, be_alive);
    assert_int_equal(link_receive(&rig.link, 0, &type, &frame), -ETIMEDOUT);
    end(&rig);
}

static void a_peer_that_moves_is_not(void **state)
{
    struct pst_reader frame;
    enum link_type type;
    struct rig rig;

    (void)state;
    begin(&rig, speak);
    for (int i = 0; i < FRAMES / SPEAKS_EACH; i++) {
        assert_int_equal(link_receive(&rig.link, 0, &type, &frame), 0);
        assert_int_equal(type, LINK_DONE);
    }
    end(&rig);
}

/* A frame that waits to be read, and then it works for many stalls before it reads on. */
static void *be_busy(void *arg)
{
    struct rig *rig = arg;
    uint8_t into[65536];

    for (int i = 0; i < BUSY_FRAMES; i++) {
        const uint8_t frame[LINK_HEAD_BYTES] = {0, 0, 0, 0, i == 0 ? LINK_NEED : LINK_ALIVE};

        if (send(rig->ends[1], frame, sizeof(frame), MSG_NOSIGNAL) != (ssize_t)sizeof(frame))
            break;
        usleep(PAUSE_US);
    }
    while (recv(rig->ends[1], into, sizeof(into), 0) > 0)
        ;
    return NULL;
}

static void *be_silent(void *arg)
{
    (void)arg;
    return NULL;
}

/* More than the socket takes. */
static int send_much(struct rig *rig)
{
    memset(link_put_space(&rig->link, LINK_FRAME_BYTES_MAX), 0, LINK_FRAME_BYTES_MAX);
    return link_send(&rig->link, LINK_DATA);
}

static void a_peer_that_works_takes_its_time_to_read(void **state)
{
    struct pst_reader frame;
    enum link_type type;
    struct rig rig;

    (void)state;
    begin(&rig, be_busy);
    assert_int_equal(send_much(&rig), 0);
    assert_int_equal(link_receive(&rig.link, 0, &type, &frame), 0);
    assert_int_equal(type, LINK_NEED);
    end(&rig);
}

static void a_peer_that_does_not_read_is_given_up(void **state)
{
    void *(*const peers[])(void *) = {be_alive, be_silent};
    struct rig rig;

    (void)state;
    for (size_t i = 0; i < pst_count_of(peers); i++) {
        begin(&rig, peers[i]);
        assert_int_equal(send_much(&rig), -ETIMEDOUT);
        end(&rig);
    }
}

static void send_all(struct rig *rig, const void *data, size_t bytes)
{
    assert_int_equal(send(rig->ends[1], data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static void a_look_at_a_peer_that_is_but_alive_ends(void **state)
{
    uint8_t alive[FRAMES][LINK_HEAD_BYTES] = {{0}};
    const uint8_t fault[LINK_HEAD_BYTES + 4] = {4, 0, 0, 0, LINK_ERROR, 0xff, 0xff, 0xff, 0xff};
    struct rig rig;
    int looks = 0;

    (void)state;
    begin(&rig, be_silent);
    for (int i = 0; i < FRAMES; i++)
        alive[i][4] = LINK_ALIVE;
    send_all(&rig, alive, sizeof(alive));
    send_all(&rig, fault, sizeof(fault));
    while (link_look(&rig.link) == 0)
        looks++;
    assert_in_range(looks, 1, FRAMES);
    assert_int_equal(rig.link.error, -EPERM);
    end(&rig);
}

static void a_look_stays_in_step(void **state)
{
    const uint8_t long_alive[LINK_HEAD_BYTES + 3] = {3, 0, 0, 0, LINK_ALIVE, 1, 2, 3};
    const uint8_t done[LINK_HEAD_BYTES] = {0, 0, 0, 0, LINK_DONE};
    struct pst_reader frame;
    enum link_type type;
    struct rig rig;

    (void)state;
    begin(&rig, be_silent);
    send_all(&rig, long_alive, sizeof(long_alive));
    send_all(&rig, done, sizeof(done));
    assert_int_equal(link_look(&rig.link), 0);
    assert_int_equal(link_receive(&rig.link, 0, &type, &frame), 0);
    assert_int_equal(type, LINK_DONE);
    end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_works_takes_its_time_to_read),
        cmocka_unit_test(a_peer_that_does_not_read_is_given_up),
        cmocka_unit_test(a_peer_that_is_but_alive_is_given_up),
        cmocka_unit_test(a_peer_that_moves_is_not),
        cmocka_unit_test(a_look_at_a_peer_that_is_but_alive_ends),
        cmocka_unit_test(a_look_stays_in_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
