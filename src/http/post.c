/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: libcurl by its name at run time, and the little of it that a POST takes. */
#include "http/post.h"

#include <stdio.h>

#ifdef PST_CURL_HEADERS

#include "base/clock.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>

enum { CONNECT_MS_MAX = 2000, URL_BYTES_MAX = 2000 };

/* X(name) */
#define CURL_CALLS(X)                                                                                        \
    X(curl_global_init)                                                                                      \
    X(curl_easy_init)                                                                                        \
    X(curl_easy_setopt)                                                                                      \
    X(curl_easy_perform)                                                                                     \
    X(curl_easy_getinfo)                                                                                     \
    X(curl_easy_strerror)                                                                                    \
    X(curl_easy_cleanup)                                                                                     \
    X(curl_slist_append)                                                                                     \
    X(curl_slist_free_all)                                                                                   \
    X(curl_url)                                                                                              \
    X(curl_url_set)                                                                                          \
    X(curl_url_cleanup)

/* Its header makes macros of some. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

static struct {
#define X(name) __typeof__(&name) name;
    CURL_CALLS(X)
#undef X
} lib;

struct pst_post {
    CURL *curl;
    struct curl_slist *headers;
    _Atomic uint64_t end_ns; /* UINT64_MAX: none */
};

static int loaded; /* 0 or -ELIBACC */

static void load_now(void)
{
    /* Debian has one for each library of TLS. It is never unloaded: it may have threads. */
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;

    for (size_t i = 0; i < pst_count_of(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    loaded = library ? 0 : -ELIBACC;
#define X(name)                                                                                              \
    if (loaded == 0) {                                                                                       \
        *(void **)(void *)&lib.name = dlsym(library, #name);                                                 \
        loaded = lib.name ? 0 : -ELIBACC;                                                                    \
    }
    CURL_CALLS(X)
#undef X
    if (loaded == 0 && lib.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        loaded = -ELIBACC;
}

static int load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_now);
    pst_assert(loaded <= 0);
    return loaded;
}

/* What the server says of it is of no interest. */
static size_t drop_answer(char *data, size_t size, size_t count, void *arg)
{
    (void)data;
    (void)arg;
    return size * count;
}

/* libcurl asks now and then, each second at the latest. Return: whether to end it. */
static int is_over(void *arg, curl_off_t down_bytes, curl_off_t down, curl_off_t up_bytes, curl_off_t up)
{
    const struct pst_post *post = arg;

    (void)down_bytes;
    (void)down;
    (void)up_bytes;
    (void)up;
    return pst_now_ns() >= atomic_load(&post->end_ns);
}

int pst_post_header(struct pst_post *post, const char *line)
{
    struct curl_slist *longer = lib.curl_slist_append(post->headers, line);

    pst_assert(strchr(line, ':') && !strpbrk(line, "\r\n"));
    pst_assert(!post->headers || !longer ||
               longer == post->headers); /* what libcurl was told stays the list */
    post->headers = longer ? longer : post->headers;
    return longer ? 0 : -ENOMEM;
}

static bool set_up(struct pst_post *post, const char *url, uint32_t timeout_ms)
{
    static const char *const lines[] = {"Content-Type: application/json", "Expect:"};
    CURL *curl = post->curl = lib.curl_easy_init();

    pst_assert(!post->headers);
    for (size_t i = 0; i < pst_count_of(lines); i++)
        if (pst_post_header(post, lines[i]) < 0)
            return false;
#if LIBCURL_VERSION_NUM >= 0x075700
    /* Else a name that nobody resolves holds the end until the resolver gives up. Older ones do not know it.
     */
    if (curl)
        lib.curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    return curl && lib.curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_HTTPHEADER, post->headers) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)pst_min(timeout_ms, CONNECT_MS_MAX)) ==
               CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_answer) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_over) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_XFERINFODATA, post) == CURLE_OK &&
           lib.curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L) == CURLE_OK;
}

static bool is_url(const char *text)
{
    CURLU *url = lib.curl_url();
    bool good = url && (strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0) &&
                lib.curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK;

    lib.curl_url_cleanup(url);
    return good;
}

int pst_post_open(const char *url, uint32_t timeout_ms, struct pst_post **out, char fault[PST_FAULT_BYTES])
{
    struct pst_post *post;

    pst_assert(timeout_ms > 0);
    if (strlen(url) > URL_BYTES_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "'%.100s...' has more than %d bytes", url, URL_BYTES_MAX);
        return -EINVAL;
    }
    if (load() < 0) {
        snprintf(fault, PST_FAULT_BYTES, "libcurl (libcurl.so.4) is not installed");
        return -ELIBACC;
    }
    if (!is_url(url)) {
        snprintf(fault, PST_FAULT_BYTES, "'%.100s' is no http:// or https:// URL", url);
        return -EINVAL;
    }
    post = calloc(1, sizeof(*post));
    if (post)
        atomic_store(&post->end_ns, UINT64_MAX);
    if (!post || !set_up(post, url, timeout_ms)) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        pst_post_close(post);
        return -ENOMEM;
    }
    pst_assert(post->curl);
    *out = post;
    return 0;
}

int pst_post_send(struct pst_post *post, struct pst_bytes body, char fault[PST_FAULT_BYTES])
{
    CURL *curl = post->curl;
    CURLcode code;
    long status = 0;

    pst_assert(curl && post->headers);
    pst_assert(body.data);
    lib.curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
    lib.curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data);
    code = lib.curl_easy_perform(curl);
    if (code != CURLE_OK) {
        snprintf(fault, PST_FAULT_BYTES, "%s",
                 code == CURLE_ABORTED_BY_CALLBACK ? "no answer in the time that was left"
                                                   : lib.curl_easy_strerror(code));
        return -EIO;
    }
    lib.curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

void pst_post_end_by(struct pst_post *post, uint64_t ns)
{
    atomic_store(&post->end_ns, ns);
}

struct pst_post *pst_post_close(struct pst_post *post)
{
    if (!post)
        return NULL;
    if (post->curl)
        lib.curl_easy_cleanup(post->curl);
    lib.curl_slist_free_all(post->headers);
    free(post);
    return NULL;
}

#else

int pst_post_open(const char *url, uint32_t timeout_ms, struct pst_post **out, char fault[PST_FAULT_BYTES])
{
    (void)url;
    (void)timeout_ms;
    (void)out;
    snprintf(fault, PST_FAULT_BYTES, "penstock was built without libcurl");
    return -EOPNOTSUPP;
}

int pst_post_header(struct pst_post *post, const char *line)
{
    (void)line;
    pst_assert(!post);
    return -EOPNOTSUPP;
}

int pst_post_send(struct pst_post *post, struct pst_bytes body, char fault[PST_FAULT_BYTES])
{
    (void)body;
    pst_assert(!post); /* none was opened */
    snprintf(fault, PST_FAULT_BYTES, "penstock was built without libcurl");
    return -EIO;
}

void pst_post_end_by(struct pst_post *post, uint64_t ns)
{
    (void)ns;
    pst_assert(!post);
}

struct pst_post *pst_post_close(struct pst_post *post)
{
    pst_assert(!post);
    return NULL;
}

#endif
