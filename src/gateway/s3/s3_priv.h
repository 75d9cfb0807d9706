/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_priv.h: the gateway as its files see it, and a session: one client's connection with its present
 * request. A session belongs to its thread; the gateway does not change while it serves.
 */
#ifndef PST_S3_PRIV_H
#define PST_S3_PRIV_H

#include "base/clock.h"
#include "gateway/s3.h"
#include "gateway/s3/link/body_priv.h"
#include "gateway/s3/store_priv.h"
#include "gateway/s3/wire/xml_priv.h"
#include "net/acceptor.h"

#include <pthread.h>

#define S3_MAGIC         0x73336777u
#define S3_SESSION_MAGIC 0x73337373u

enum {
    S3_CREDENTIALS_MAX = 256,
    S3_PIECE_BYTES = 1 << 20,    /* moved at once; memory of a connection */
    S3_SMALL_BYTES = 256 << 10,  /* of an object that is put in one step */
    S3_COPIED_BYTES = 64 << 10,  /* of an object that is read by a copy; larger ones in place */
    S3_DOCUMENT_BYTES = 4 << 20, /* of XML that a client sends */
    S3_ANSWER_HEAD_BYTES = 16 << 10,
    S3_RESPONSE_BYTES = 8 << 10, /* of it, that a query asks for */
    S3_LIST_MAX = 1000,          /* items of a page; keys of one request to delete */
    S3_PARTS_MAX = 10000,
    S3_TRIES = 4, /* to read an object that others keep writing */
    S3_WHY_BYTES = 256,
};

/* Keys that no bucket has, since its name does not begin with a dot. */
#define S3_OWN_PREFIX     ".s3/"
#define S3_BUCKETS_PREFIX S3_OWN_PREFIX "buckets/"
#define S3_UPLOADS_PREFIX S3_OWN_PREFIX "uploads/"
#define S3_PARTS_PREFIX   S3_OWN_PREFIX "parts/"
#define S3_CLAIMS_PREFIX  S3_OWN_PREFIX "claims/"
#define S3_UPLOAD_MS      (7 * 24 * 3600 * 1000ull) /* of an upload that nobody completes */
#define S3_ENDED_MS       (15 * 60 * 1000ull)       /* of one that is completed */

enum s3_right { S3_MAY_READ, S3_MAY_LIST, S3_MAY_WRITE };

struct s3_credential {
    char id[129], secret[S3_SECRET_BYTES_MAX + 1];
};

struct pst_s3 {
    uint32_t magic;
    const struct pst_s3_settings *settings;
    struct s3_credential *credentials;
    uint32_t credential_count; /* 0: there are none, and everyone is let in */
    void *tls;
    int listen_fd;
    int *held; /* descriptors for connections and the store */
    uint32_t held_count;
    char address[280];
    char *url; /* of the store */
    struct penstock_options options;
    uint8_t *secret;         /* of the options */
    pthread_mutex_t opening; /* of what follows, until there is a store */
    struct penstock *store;
    uint64_t open_again_ms;
    struct pst_acceptor *acceptor;
};

struct s3_session {
    uint32_t magic;
    struct pst_s3 *s3;
    const struct s3_credential *who; /* of the present request; NULL: nobody asks for one */
    struct s3_head head;
    struct s3_target target;
    struct s3_signer signer;
    struct s3_body body;
    bool ends;     /* with this request */
    bool answered; /* its head has been sent */
    char id[17];   /* of the request */
    char why[S3_WHY_BYTES];
    uint64_t out_of_bytes; /* the size of an object that has nothing of a range; S3_BYTES_UNKNOWN */
    char out[S3_ANSWER_HEAD_BYTES];
    size_t out_bytes;
    bool out_is_full;
    struct s3_link link;
    char in[S3_HEAD_BYTES_MAX]; /* the present request's head */
};

static inline const struct s3_name *s3_name_of(const struct s3_session *s)
{
    return &s->target.name;
}

static inline uint64_t s3_now_ms(void)
{
    return pst_wall_ns() / 1000000;
}

/* ---- auth.c ---- */

int s3_credentials_read(struct pst_s3 *s3, char fault[PST_FAULT_BYTES]);
/* Finds out whose the request is. */
enum s3_code s3_authenticate(struct s3_session *s);
/* Whether it may: the only place that is asked. @key: the store's, or a prefix of those that are listed. */
enum s3_code s3_may(const struct s3_session *s, enum s3_right right, struct pst_bytes key);

/* ---- s3.c ---- */

/* There is a store from then on. Return: 0 or -errno. */
int s3_open_store(struct pst_s3 *s3);

/* ---- session.c ---- */

void s3_session_serve(struct pst_s3 *s3, int fd);

/* ---- answer.c ---- */

void s3_begin(struct s3_session *s, int status);
void s3_field(struct s3_session *s, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void s3_field_bytes(struct s3_session *s, const char *name, struct pst_bytes value);
void s3_field_etag(struct s3_session *s, uint64_t generation);
/* The checksums that the body was found to have. */
void s3_field_checks(struct s3_session *s);
/* Sends the head; @bytes of body are to follow. */
enum s3_code s3_send_head(struct s3_session *s, uint64_t bytes);
enum s3_code s3_send(struct s3_session *s, const void *data, size_t bytes);
/* An answer with a document, which is closed with @root and freed. */
enum s3_code s3_send_xml(struct s3_session *s, struct s3_xml *xml, const char *root);
/* What a copy became. */
enum s3_code s3_send_copied(struct s3_session *s, const char *root, uint64_t generation, uint64_t written_ms);
/* An answer without a body. */
enum s3_code s3_send_status(struct s3_session *s, int status);
/* An error; s->why says more, if there is more to say. */
void s3_send_error(struct s3_session *s, enum s3_code code);
/* Notes why, for an error's message. Return: @code. */
enum s3_code s3_because(struct s3_session *s, enum s3_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- operations: each answers by itself, or returns an error ---- */

/* object.c */
enum s3_code s3_get_object(struct s3_session *s); /* HEAD, too */
enum s3_code s3_delete_object(struct s3_session *s);
/* put.c */
enum s3_code s3_put_object(struct s3_session *s); /* and CopyObject */
/* Refuses fields that ask for what is not there. */
enum s3_code s3_check_fields(struct s3_session *s);
/* What x-amz-copy-source names, which the request must be allowed to read. */
enum s3_code s3_copy_source(struct s3_session *s, struct s3_name *out);
/* remove.c */
enum s3_code s3_delete_objects(struct s3_session *s);
/* The body, of S3_DOCUMENT_BYTES at most; *@text is the caller's to free, also after a failure. */
enum s3_code s3_read_document(struct s3_session *s, char **text, size_t *bytes);
/* upload.c */
enum s3_code s3_create_upload(struct s3_session *s);
enum s3_code s3_put_part(struct s3_session *s);
enum s3_code s3_abort_upload(struct s3_session *s);
/* complete.c */
enum s3_code s3_complete_upload(struct s3_session *s);
/* uploads.c */
enum s3_code s3_list_parts(struct s3_session *s);
enum s3_code s3_list_uploads(struct s3_session *s);
/* list.c */
enum s3_code s3_list_objects(struct s3_session *s); /* V1 and V2 */
/* bucket.c */
enum s3_code s3_list_buckets(struct s3_session *s);
enum s3_code s3_create_bucket(struct s3_session *s);
enum s3_code s3_head_bucket(struct s3_session *s);
enum s3_code s3_delete_bucket(struct s3_session *s);
enum s3_code s3_bucket_location(struct s3_session *s);
enum s3_code s3_bucket_versioning(struct s3_session *s);
/* S3_NoSuchBucket: it has neither a marker nor a key. */
enum s3_code s3_bucket_exists(struct s3_session *s);

#endif
