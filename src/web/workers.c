/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c: the threads that run ops.answer(). A request is a copy: its client may go meanwhile. */
#include "web/span_priv.h"
#include "web/web_priv.h"

struct work {
    struct pst_list link; /* of workers->todo or done; in neither while it is answered */
    struct http *http;    /* the loop's thread: NULL once the client has gone */
    struct pst_web_request request;
    struct pst_web_answer answer;
    struct web_span span;
    char *body;
    size_t body_room; /* what the body counts for among all bodies */
    bool queued;      /* in todo; under the lock */
    char peer[WEB_PEER_BYTES];
    char text[]; /* what the request points to */
};

/* On the loop's thread, or after it. */
static void work_free(struct pst_web *web, struct work *work)
{
    pst_assert(web->bodies_bytes >= work->body_room);
    web->bodies_bytes -= work->body_room;
    free(work->answer.text);
    free(work->body);
    free(work);
}

static struct work *next_work(struct workers *workers)
{
    struct work *work = NULL;

    pthread_mutex_lock(&workers->lock);
    while (pst_list_empty(&workers->todo) && !workers->stopping)
        pthread_cond_wait(&workers->wanted, &workers->lock);
    if (!workers->stopping) {
        work = pst_list_first(&workers->todo, struct work, link);
        pst_list_remove(&work->link);
        pst_assert(work->queued);
        work->queued = false;
    }
    pthread_mutex_unlock(&workers->lock);
    return work;
}

static void work_do(struct pst_web *web, struct work *work)
{
    pst_assert(!work->queued);
    pst_assert(pst_list_empty(&work->link));
    pst_assert(!work->answer.text);
    work->answer.status = 200;
    web->ops->answer(web->ctx, &work->request, &work->answer);
    web_span_end(&work->span, &work->request, &work->answer);
    pthread_mutex_lock(&web->workers.lock);
    pst_list_push_back(&web->workers.done, &work->link);
    /* Within the lock: once it is released with stopping set, the loop's descriptor may be closed. */
    if (!web->workers.stopping)
        loop_wake(web);
    pthread_mutex_unlock(&web->workers.lock);
}

static void *workers_main(void *arg)
{
    struct pst_web *web = web_cast(arg);
    struct work *work;

    while ((work = next_work(&web->workers)))
        work_do(web, work);
    return NULL;
}

void workers_init(struct pst_web *web)
{
    struct workers *workers = &web->workers;

    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->wanted, NULL);
    pst_list_init(&workers->todo);
    pst_list_init(&workers->done);
}

int workers_open(struct pst_web *web, uint32_t count)
{
    struct workers *workers = &web->workers;

    pst_assert(!workers->threads);
    pst_assert(count > 0);
    workers->threads = calloc(count, sizeof(*workers->threads));
    if (!workers->threads)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        int r = pthread_create(&workers->threads[i], NULL, workers_main, web);

        if (r != 0)
            return -r;
        workers->count++;
        pst_assert(workers->count <= count);
    }
    return 0;
}

static void drop_all(struct pst_web *web, struct pst_list *list)
{
    while (!pst_list_empty(list)) {
        struct work *work = pst_list_first(list, struct work, link);

        pst_assert(!work->http); /* the loop has ended */
        pst_list_remove(&work->link);
        work_free(web, work);
    }
}

void workers_close(struct pst_web *web)
{
    struct workers *workers = &web->workers;

    pthread_mutex_lock(&workers->lock);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->wanted);
    pthread_mutex_unlock(&workers->lock);
    for (uint32_t i = 0; i < workers->count; i++)
        pst_assert(pthread_join(workers->threads[i], NULL) == 0);
    drop_all(web, &workers->todo);
    drop_all(web, &workers->done);
    free(workers->threads);
    pthread_cond_destroy(&workers->wanted);
    pthread_mutex_destroy(&workers->lock);
}

/* Copies @from to *@at with a NUL behind it. */
static struct pst_bytes keep(char **at, struct pst_bytes from)
{
    struct pst_bytes copy = {*at, from.len};

    if (from.len)
        memcpy(*at, from.data, from.len);
    (*at)[from.len] = 0;
    *at += from.len + 1;
    return copy;
}

struct work *workers_ask(struct pst_web *web, struct http *http, const struct head *head,
                         const struct body *body, const char *peer)
{
    size_t bytes = head->method.len + head->path.len + head->query.len + head->content_type.len + 4;
    struct work *work = malloc(sizeof(*work) + bytes);
    char *at;

    if (!work)
        return NULL;
    *work = (struct work){.http = http, .body = body->data, .body_room = body->room, .queued = true};
    pst_list_init(&work->link);
    web_span_begin(&work->span, head->traceparent);
    at = work->text;
    work->request.method = keep(&at, head->method).data;
    work->request.path = keep(&at, head->path);
    work->request.query = keep(&at, head->query);
    work->request.content_type = keep(&at, head->content_type).data;
    pst_assert(at == work->text + bytes);
    memcpy(work->peer, peer, sizeof(work->peer));
    work->request.peer = work->peer;
    work->request.body = (struct pst_bytes){body->data, body->bytes};
    if (head_asks(head, web->open_paths)) { /* however much the workers have to do */
        work->queued = false;
        work_do(web, work);
        return work;
    }
    pthread_mutex_lock(&web->workers.lock);
    pst_list_push_back(&web->workers.todo, &work->link);
    pthread_cond_signal(&web->workers.wanted);
    pthread_mutex_unlock(&web->workers.lock);
    return work;
}

void workers_forget(struct pst_web *web, struct work *work)
{
    bool queued;

    pst_assert(work->http);
    work->http = NULL;
    pthread_mutex_lock(&web->workers.lock);
    queued = work->queued;
    if (queued)
        pst_list_remove(&work->link);
    pthread_mutex_unlock(&web->workers.lock);
    if (queued) /* else workers_collect() finds it */
        work_free(web, work);
}

void workers_collect(struct pst_web *web)
{
    struct pst_list done;

    pst_list_init(&done);
    pthread_mutex_lock(&web->workers.lock);
    pst_list_splice(&done, &web->workers.done);
    pthread_mutex_unlock(&web->workers.lock);
    while (!pst_list_empty(&done)) {
        struct work *work = pst_list_first(&done, struct work, link);

        pst_list_remove(&work->link);
        pst_assert(!work->queued);
        if (work->http)
            http_answered(work->http, &work->answer);
        work_free(web, work);
    }
}
