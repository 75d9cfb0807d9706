/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c: the process's spans, and the thread that sends them. */
#include "span/span.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"
#include "base/wait.h"
#include "http/post.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum {
    RING_SPANS = 4096,
    MESSAGE_SPANS = 512,
    PAUSE_MS = 500,     /* that spans gather, unless they are a message sooner */
    TIMEOUT_MS = 5000,  /* of a message */
    AGAIN_MS_MIN = 250, /* after a first failure; then twice as long each time */
    TRIES_MAX = 7,      /* of a message: about half a minute */
    CLOCK_LOOKS = 5,
    END_MS = 1000, /* for what is left in the end */
    URL_BYTES = 2048,
    SAMPLE_ALL = 1 << 30,
};

/* One a process. What `lock` does not cover is the thread's, or stays. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t stirred;
    pthread_t thread;
    struct pst_span *spans; /* lock: RING_SPANS */
    uint32_t first, count;  /* lock */
    bool ending;            /* lock */
    uint64_t wanted_by_ns;  /* lock: until when somebody waits for all of it; 0: nobody */
    uint64_t sent, dropped; /* lock */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    char url[URL_BYTES];
    char service[128];
    struct pst_post *post;
    _Atomic bool failing; /* as was said */
    bool tried;           /* lock: to open it */
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic bool on;
static _Atomic bool left_open;    /* by a library: nobody closes it */
_Atomic uint32_t pst_spans_share; /* of SAMPLE_ALL */

/* ---- pushing ---- */

bool pst_spans_wanted(const struct pst_traceparent *trace)
{
    return trace->flags & PST_TRACE_SAMPLED && atomic_load_explicit(&on, memory_order_acquire);
}

void pst_spans_push(const struct pst_span *span)
{
    pst_assert(pst_traceparent_fits(&span->trace));
    pst_assert(span->begin_ns <= span->end_ns);
    pthread_mutex_lock(&ring.lock);
    if (!ring.spans || ring.count == RING_SPANS) {
        ring.dropped++;
    } else {
        ring.spans[(ring.first + ring.count++) % RING_SPANS] = *span;
        if (ring.count == MESSAGE_SPANS)
            pthread_cond_broadcast(&ring.stirred);
    }
    pst_assert(ring.count <= RING_SPANS);
    pthread_mutex_unlock(&ring.lock);
}

void pst_span_enter(struct pst_traceparent *trace, uint8_t parent_id[PST_SPAN_ID_BYTES])
{
    pst_assert(pst_traceparent_is(trace));
    memcpy(parent_id, trace->span_id, PST_SPAN_ID_BYTES);
    do
        pst_random(trace->span_id, sizeof(trace->span_id));
    while (!pst_traceparent_fits(trace));
}

bool pst_spans_sample(struct pst_traceparent *out)
{
    static _Thread_local uint64_t dice;
    uint32_t share = atomic_load_explicit(&pst_spans_share, memory_order_relaxed);

    if (pst_likely(share == 0))
        return false;
    pst_assert(share <= SAMPLE_ALL);
    if (dice == 0)
        pst_random(&dice, sizeof(dice));
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    if (dice >> 34 >= share)
        return false;
    *out = (struct pst_traceparent){.flags = PST_TRACE_SAMPLED | PST_TRACE_RANDOM};
    do
        pst_random(out->trace_id, sizeof(out->trace_id));
    while (!pst_traceparent_is(out));
    return true;
}

struct pst_span_counts pst_spans_count(void)
{
    struct pst_span_counts counts;

    pthread_mutex_lock(&ring.lock);
    counts = (struct pst_span_counts){ring.sent, ring.dropped};
    pthread_mutex_unlock(&ring.lock);
    return counts;
}

/* ---- sending ---- */

static void say(const char *what, const char *why)
{
    char line[PST_FAULT_BYTES + 100];

    if (!ring.log)
        return;
    snprintf(line, sizeof(line), "otlp: %.80s: %s%s%.200s", ring.url, what, *why ? ": " : "", why);
    ring.log(ring.log_ctx, line);
}

/* The first failure is said, and that it is over. */
static void note(bool failed, const char *why)
{
    if (failed && !ring.failing)
        say("does not take spans; those that find no room are dropped", why);
    else if (!failed && ring.failing)
        say("takes spans again", "");
    ring.failing = failed;
}

/* Whether it may be otherwise a little later. */
static bool passes(int status)
{
    return status < 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Both clocks at one time: a thread may lose its core between two looks, so the closest pair counts. */
static void read_clocks(uint64_t *wall_ns, uint64_t *now_ns)
{
    uint64_t closest_ns = UINT64_MAX;

    for (int i = 0; i < CLOCK_LOOKS; i++) {
        uint64_t before_ns = pst_now_ns(), wall = pst_wall_ns(), after_ns = pst_now_ns();

        if (after_ns - before_ns >= closest_ns)
            continue;
        closest_ns = after_ns - before_ns;
        *wall_ns = wall;
        *now_ns = before_ns + closest_ns / 2;
    }
    pst_assert(closest_ns < UINT64_MAX);
}

/* Return: the status, -errno. */
static int send_message(const struct pst_span *spans, uint32_t count)
{
    struct pst_spans_of of = {.service = ring.service, .spans = spans, .count = count};
    char why[PST_FAULT_BYTES] = "out of memory";
    pst_cleanup_free char *text = NULL;
    size_t bytes = 0;
    int status;

    pst_assert(ring.post);
    pst_assert(count <= MESSAGE_SPANS);
    read_clocks(&of.wall_ns, &of.now_ns);
    text = pst_otlp_print(&of, &bytes);
    status = text ? pst_post_send(ring.post, (struct pst_bytes){text, bytes}, why) : -ENOMEM;

    if (status >= 0)
        snprintf(why, sizeof(why), "HTTP %d", status);
    note(status / 100 != 2, why);
    return status;
}

/* The lock is held. Return: how long spans may wait for more. */
static bool waits(uint64_t until_ns)
{
    bool full = ring.count >= MESSAGE_SPANS, wanted = ring.ending || ring.wanted_by_ns;

    return pst_now_ns() < until_ns && !full && !wanted;
}

/* Copies what is to be sent next. The lock is held. */
static uint32_t copy_first(struct pst_span *to)
{
    uint32_t count = (uint32_t)pst_min(ring.count, MESSAGE_SPANS);

    pst_assert(ring.first < RING_SPANS);
    pst_assert(ring.spans);
    pst_assert(ring.count <= RING_SPANS);
    for (uint32_t i = 0; i < count; i++)
        to[i] = ring.spans[(ring.first + i) % RING_SPANS];
    return count;
}

/* They leave the ring, in which they stayed while they were sent. The lock is held. */
static void drop_first(uint32_t count, bool sent)
{
    pst_assert(count <= ring.count);
    ring.first = (ring.first + count) % RING_SPANS;
    ring.count -= count;
    ring.sent += sent ? count : 0;
    ring.dropped += sent ? 0 : count;
    pthread_cond_broadcast(&ring.stirred);
}

/* After a failure, unless the end comes. The lock is held. */
static void pause_ms(uint64_t ms)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), ms);

    while (pst_now_ns() < until_ns && !ring.ending)
        pst_cond_wait_until(&ring.stirred, &ring.lock, until_ns);
}

/* Sends one message's spans until they are taken or given up. The lock is held, and let go of meanwhile. */
static void send_first(struct pst_span *spans)
{
    uint32_t count = copy_first(spans);
    bool taken = false;

    pst_assert(count > 0);
    for (uint32_t tries = 0; tries < TRIES_MAX && !taken; tries++) {
        int status;

        pthread_mutex_unlock(&ring.lock);
        status = send_message(spans, count);
        pthread_mutex_lock(&ring.lock);
        pthread_cond_broadcast(&ring.stirred); /* who waits for the end sees how it went */
        taken = status / 100 == 2;
        if (taken || !passes(status) || ring.ending)
            break;
        if (tries + 1 < TRIES_MAX)
            pause_ms((uint64_t)AGAIN_MS_MIN << tries);
    }
    drop_first(count, taken);
}

static void *thread_main(void *arg)
{
    struct pst_span *spans = arg;
    uint64_t end_ns = UINT64_MAX;

    pst_assert(spans);
    pthread_mutex_lock(&ring.lock);
    while (!ring.ending || (ring.count > 0 && pst_now_ns() < end_ns)) {
        uint64_t until_ns = pst_deadline_ns(pst_now_ns(), PAUSE_MS);

        while (waits(until_ns))
            pst_cond_wait_until(&ring.stirred, &ring.lock, until_ns);
        if (ring.ending && end_ns == UINT64_MAX)
            end_ns = pst_deadline_ns(pst_now_ns(), END_MS);
        if (ring.count > 0)
            send_first(spans);
        if (ring.count == 0 || pst_now_ns() >= ring.wanted_by_ns)
            ring.wanted_by_ns = 0;
        if (ring.count == 0)
            pthread_cond_broadcast(&ring.stirred);
    }
    drop_first(ring.count, false);
    pthread_mutex_unlock(&ring.lock);
    free(spans);
    return NULL;
}

/* ---- opening ---- */

/* What a URL has besides an address and a path would stand in logs. */
static bool has_secret(const char *url)
{
    const char *authority = strstr(url, "://"), *at = strchr(url, '@');

    authority = authority ? authority + 3 : url;
    return url[strcspn(url, "?#")] || (at && at < authority + strcspn(authority, "/"));
}

int pst_spans_check(const struct pst_span_settings *settings, char fault[PST_FAULT_BYTES])
{
    if (!settings->otlp || !has_secret(settings->otlp))
        return 0;
    snprintf(fault, PST_FAULT_BYTES,
             "otlp: wants a URL without user, password or query: OTEL_EXPORTER_OTLP_HEADERS is for secrets");
    return -EINVAL;
}

/* The URL of a collector is a base, unless it says itself where traces go. */
static void print_url(const char *given, char url[URL_BYTES])
{
    static const char path[] = "/v1/traces";
    size_t bytes = strlen(given);

    while (bytes > 0 && given[bytes - 1] == '/')
        bytes--;
    bool whole = bytes >= strlen(path) && memcmp(given + bytes - strlen(path), path, strlen(path)) == 0;
    snprintf(url, URL_BYTES, "%.*s%s", (int)pst_min(bytes, URL_BYTES), given, whole ? "" : path);
}

static int read_share(const char *text, uint32_t *out, char *fault)
{
    char *end;
    double ratio = strtod(text, &end);

    if (end == text || *end || !(ratio > 0 && ratio <= 1)) {
        snprintf(fault, PST_FAULT_BYTES, "trace_sample: '%.100s' is no share above 0, up to 1", text);
        return -EINVAL;
    }
    *out = (uint32_t)pst_max((uint64_t)(ratio * SAMPLE_ALL), 1);
    pst_assert(*out <= SAMPLE_ALL);
    return 0;
}

static int start_thread(void)
{
    struct pst_span *message = calloc(MESSAGE_SPANS, sizeof(*message));
    sigset_t all, before;
    int r = -ENOMEM;

    pst_assert(!ring.spans && ring.count == 0);
    ring.spans = calloc(RING_SPANS, sizeof(*ring.spans));
    sigfillset(&all); /* a collector that goes away is no signal, and the program's are not for this thread */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (message && ring.spans)
        r = -pthread_create(&ring.thread, NULL, thread_main, message);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        return 0;
    free(message);
    free(ring.spans);
    ring.spans = NULL;
    return r;
}

/* The child of a fork has no thread that sends, and may begin anew. */
static void forget(void)
{
    atomic_store(&on, false);
    atomic_store(&left_open, false);
    atomic_store(&pst_spans_share, 0);
    memset(&ring, 0, sizeof(ring));
    pthread_mutex_init(&ring.lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget);
}

int pst_spans_open(const struct pst_span_settings *settings, char fault[PST_FAULT_BYTES])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char why[PST_FAULT_BYTES];
    uint32_t share = 0;
    int r = settings->trace_sample ? read_share(settings->trace_sample, &share, fault) : 0;

    pst_assert(!atomic_load(&on));
    pst_assert(settings->service);
    if (r == 0 && share && !settings->otlp) {
        snprintf(fault, PST_FAULT_BYTES, "trace_sample: goes with otlp, which says where its traces go");
        r = -EINVAL;
    }
    if (r == 0)
        r = pst_spans_check(settings, fault);
    if (r < 0 || !settings->otlp)
        return r;
    pthread_once(&once, watch_forks);
    pst_cond_init(&ring.stirred);
    ring.log = settings->log;
    ring.log_ctx = settings->log_ctx;
    ring.tried = true;
    ring.first = ring.count = 0;
    ring.ending = false;
    ring.failing = false;
    snprintf(ring.service, sizeof(ring.service), "%s", settings->service);
    print_url(settings->otlp, ring.url);
    r = pst_post_open(ring.url, TIMEOUT_MS, &ring.post, why);
    if (r == 0)
        r = pst_spans_add_headers(ring.post, why);
    if (r == 0) {
        snprintf(why, sizeof(why), "no thread, or no memory");
        r = start_thread();
    }
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "otlp: %.200s", why);
        ring.post = pst_post_close(ring.post);
        return r;
    }
    atomic_store(&pst_spans_share, share);
    atomic_store_explicit(&on, true, memory_order_release);
    return 0;
}

void pst_spans_flush(void)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), END_MS);

    if (pst_likely(!atomic_load_explicit(&left_open, memory_order_relaxed)))
        return;
    pthread_mutex_lock(&ring.lock);
    ring.wanted_by_ns = until_ns;
    pthread_cond_broadcast(&ring.stirred);
    while (ring.count > 0 && !ring.failing && pst_now_ns() < until_ns)
        pst_cond_wait_until(&ring.stirred, &ring.lock, until_ns);
    pthread_mutex_unlock(&ring.lock);
}

int pst_spans_open_once(const struct pst_span_settings *settings)
{
    char fault[PST_FAULT_BYTES];
    bool first;
    int r;

    pthread_mutex_lock(&ring.lock);
    first = !ring.tried;
    ring.tried = true;
    pthread_mutex_unlock(&ring.lock);
    if (!first)
        return 0;
    pst_assert(!atomic_load(&on)); /* that would have been tried */
    r = pst_spans_open(settings, fault);
    atomic_store(&left_open, r == 0);
    return r;
}

void pst_spans_close(void)
{
    if (!atomic_exchange(&on, false))
        return;
    atomic_store(&pst_spans_share, 0);
    pthread_mutex_lock(&ring.lock);
    pst_assert(ring.post);
    pst_assert(!ring.ending);
    ring.ending = true;
    pst_post_end_by(ring.post, pst_deadline_ns(pst_now_ns(), END_MS));
    pthread_cond_broadcast(&ring.stirred);
    pthread_mutex_unlock(&ring.lock);
    pthread_join(ring.thread, NULL);
    pst_assert(ring.count == 0);
    free(ring.spans);
    ring.spans = NULL;
    ring.post = pst_post_close(ring.post);
}
