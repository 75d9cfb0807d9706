/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error_priv.h: the errors that S3 gives, by the names that clients know, with their HTTP status and a text
 * for people. Included by all of s3.
 */
#ifndef PST_S3_ERROR_PRIV_H
#define PST_S3_ERROR_PRIV_H

/* X(code, status, text) */
#define S3_ERRORS(X)                                                                                         \
    X(AccessDenied, 403, "access denied")                                                                    \
    X(AuthorizationHeaderMalformed, 400, "the Authorization header is not AWS4-HMAC-SHA256 for s3")          \
    X(AuthorizationQueryParametersError, 400, "the query is not signed with AWS4-HMAC-SHA256 for s3")        \
    X(BadDigest, 400, "the body has another checksum than was stated")                                       \
    X(BucketAlreadyOwnedByYou, 409, "the bucket is there already")                                           \
    X(BucketNotEmpty, 409, "the bucket has keys")                                                            \
    X(EntityTooLarge, 400, "the object is larger than a value of this store can be")                         \
    X(IncompleteBody, 400, "the body ended before its stated length")                                        \
    X(InternalError, 500, "the store failed")                                                                \
    X(InvalidAccessKeyId, 403, "no such access key")                                                         \
    X(InvalidArgument, 400, "an argument is not valid")                                                      \
    X(InvalidBucketName, 400,                                                                                \
      "a bucket's name is 1 to 255 letters, digits, '-', '_' and '.', "                                      \
      "and does not begin with '.'")                                                                         \
    X(InvalidDigest, 400, "a checksum is not well formed")                                                   \
    X(InvalidPart, 400, "a part is not there, or has another ETag")                                          \
    X(InvalidPartOrder, 400, "parts are not in the order of their numbers")                                  \
    X(InvalidRange, 416, "the range is not within the object")                                               \
    X(InvalidRequest, 400, "the request is not well formed")                                                 \
    X(InvalidURI, 400, "the path or query is not well formed")                                               \
    X(KeyTooLongError, 400, "bucket and key together have more than 4096 bytes")                             \
    X(MalformedXML, 400, "the XML is not what this request wants")                                           \
    X(MetadataTooLarge, 400, "headers that are kept with an object may have 240 bytes together")             \
    X(MethodNotAllowed, 405, "the method is not allowed here")                                               \
    X(MissingContentLength, 411, "the request needs a Content-Length")                                       \
    X(NoSuchBucket, 404, "no such bucket")                                                                   \
    X(NoSuchKey, 404, "no such key")                                                                         \
    X(NoSuchUpload, 404, "no such upload")                                                                   \
    X(NotImplemented, 501, "not implemented")                                                                \
    X(NotModified, 304, "not modified")                                                                      \
    X(PreconditionFailed, 412, "a condition of the request does not hold")                                   \
    X(RequestHeaderSectionTooLarge, 400, "the request's head is too large")                                  \
    X(RequestTimeTooSkewed, 403, "the request's time is more than 15 minutes from this host's")              \
    X(RequestTimeout, 400, "the client was too slow")                                                        \
    X(ServiceUnavailable, 503, "the store cannot be reached")                                                \
    X(SignatureDoesNotMatch, 403, "the signature is not that of this request")                               \
    X(SlowDown, 503, "too much at once")                                                                     \
    X(StorageFull, 507, "the store is full")                                                                 \
    X(XAmzContentSHA256Mismatch, 400, "the body has another SHA-256 than x-amz-content-sha256 says")

enum s3_code {
    S3_OK,
#define S3_ERROR_NAME(code, status, text) S3_##code,
    S3_ERRORS(S3_ERROR_NAME)
#undef S3_ERROR_NAME
        S3_GONE, /* the connection is: nobody is there to be answered */
    S3_CHANGED,  /* the value is another one than a moment ago */
    S3_CODES
};

struct s3_error {
    const char *code, *text;
    int status;
};

/* @code: an error with a name. */
const struct s3_error *s3_error_of(enum s3_code code);

#endif
