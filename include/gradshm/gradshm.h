/* gradshm: lock-free shared-memory gradient server for one machine. The C ABI; the only exported symbols of libgradshm.so.
 *
 * Nouns: an *instance* is one running server; a *layout* is its ordered set of *parameters* (named tensors), cut into *buckets*
 * (the unit that is committed and reduced) inside *groups* (parameters weighted together). A *worker* writes gradients into its own
 * *slot*; when every member has committed every bucket of a *round*, the round closes and its *result* may be read.
 *
 * Return values: 0 (GRADSHM_OK) or a negative GRADSHM_* code; gradshm_last_error() holds a sentence for this thread that says what
 * was wrong, where, and what to do. Out-parameters (ret_*) are written only on success. Structs carry their `size` (set it to
 * sizeof the struct; unknown tails are ignored, missing tails are taken as zero). Times are nanoseconds; a negative time-out waits
 * for ever, 0 polls. Threads: functions on different handles never interfere; on one handle several threads may commit different
 * buckets, poll, wait and read; attach, leave and detach are for one thread (leave makes waiting threads return EVICTED). A handle
 * in a forked child answers GRADSHM_FORKED. */
#ifndef GRADSHM_GRADSHM_H
#define GRADSHM_GRADSHM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GRADSHM_API __attribute__((visibility("default")))
#else
#define GRADSHM_API
#endif

#define GRADSHM_VERSION_MAJOR 0
#define GRADSHM_VERSION_MINOR 1
#define GRADSHM_VERSION_PATCH 0
#define GRADSHM_VERSION_TEXT "0.1.0"

/* The table of codes; docs/errors.md says for each what to do. */
enum {
  GRADSHM_OK = 0,
  GRADSHM_EMPTY = -1,             /* the round closed and everybody abstained: there is no result */
  GRADSHM_TIMEOUT = -2,           /* the deadline passed */
  GRADSHM_EVICTED = -3,           /* this worker is no longer a member (left, evicted): attach again */
  GRADSHM_DAEMON_LOST = -4,       /* the server was stopped, or killed and not started again within its rejoin time-out */
  GRADSHM_ALREADY_COMMITTED = -5, /* this bucket or parameter is committed for this round */
  GRADSHM_NOT_COMMITTED = -6,     /* wait for a round that this worker has committed nothing to: it could not end */
  GRADSHM_ROUND_CLOSED = -7,      /* commit to a round that is closed */
  GRADSHM_NOT_CLOSED = -8,        /* the round is still open (poll), or not yet reached (round info) */
  GRADSHM_NOT_MEMBER = -9,        /* not admitted yet, paused, or an observer */
  GRADSHM_INVALID = -10,          /* bad argument: index out of range, weight not finite, null pointer, ... */
  GRADSHM_NOT_FOUND = -11,        /* no parameter of that name or id; round record no longer kept; nothing registered in that scope */
  GRADSHM_LAYOUT_MISMATCH = -12,  /* the worker's parameters are not the instance's */
  GRADSHM_BAD_LAYOUT = -13,       /* malformed file, duplicate name, id collision, no parameters */
  GRADSHM_NO_SERVER = -14,        /* no server of that name answers */
  GRADSHM_ALREADY_RUNNING = -15,  /* a server of that name runs already */
  GRADSHM_RANK_TAKEN = -16,       /* another living worker has this rank */
  GRADSHM_FULL = -17,             /* max-workers reached */
  GRADSHM_NO_SPACE = -18,         /* not enough memory, with the bytes wanted and free */
  GRADSHM_PERMISSION = -19,       /* not allowed: foreign directory, other user */
  GRADSHM_INCOMPATIBLE = -20,     /* other ABI or wire version, or restarted with another --op; the message names both */
  GRADSHM_CORRUPT = -21,          /* shared memory or a message fails its checks */
  GRADSHM_FORKED = -22,           /* handle used in a forked child: attach anew there */
  GRADSHM_SYSTEM = -23,           /* a system call failed; the message names it */
  GRADSHM_UNSUPPORTED = -24,      /* the kernel lacks a feature; the message names it */
  GRADSHM_NO_MEMORY = -25,        /* this process is out of memory */
  GRADSHM_INTERNAL = -26          /* a fault of gradshm itself: please report it */
};

typedef enum { GRADSHM_F32 = 1, GRADSHM_F64 = 2, GRADSHM_F16 = 3, GRADSHM_BF16 = 4 } gradshm_dtype_t;
typedef enum { GRADSHM_ORDER_C = 0, GRADSHM_ORDER_F = 1 } gradshm_order_t; /* row-major, column-major */

typedef struct gradshm_layout gradshm_layout_t; /* the parameters that a worker registers */
typedef struct gradshm_handle gradshm_handle_t; /* one attached worker, or one observer */

#define GRADSHM_MAX_DIMS 16
#define GRADSHM_MAX_WORKERS 256
#define GRADSHM_MAX_NAME 1024 /* bytes of UTF-8 of a parameter name, without the final zero */

GRADSHM_API const char* gradshm_version(void);          /* "0.1.0" */
GRADSHM_API const char* gradshm_strerror(int code);     /* short text of a code; never NULL */
GRADSHM_API const char* gradshm_last_error(void);       /* sentence of this thread's last failed call; "" if none. Valid until the next one fails */
GRADSHM_API const char* gradshm_dtype_name(int dtype);  /* "f32", ...; "?" if unknown */
GRADSHM_API size_t gradshm_dtype_size(int dtype);       /* bytes an element; 0 if unknown */
/* XXH3-64, seed 0, of the name; 0 for NULL. The id of a tied tensor is that of the bytewise smallest of its names. */
GRADSHM_API uint64_t gradshm_parameter_id(const char* name);

/* ---- Layout: what a worker registers. Not thread-safe. ---- */

typedef struct {
  size_t size;
  const char* name;           /* UTF-8, 1 to 1,024 bytes, no control characters */
  int dtype;                  /* gradshm_dtype_t */
  int order;                  /* gradshm_order_t of the memory that the worker writes */
  size_t ndim;                /* 0 (a scalar) to 16 */
  const int64_t* shape;       /* ndim dimensions, each >= 0 */
  const char* group;          /* NULL or "": the default group */
  const char* const* aliases; /* further names of a tied tensor, or NULL */
  size_t alias_count;
} gradshm_parameter_desc_t;

GRADSHM_API int gradshm_layout_create(gradshm_layout_t** ret_layout);
GRADSHM_API int gradshm_layout_from_tsv(const char* path, gradshm_layout_t** ret_layout);
GRADSHM_API int gradshm_layout_from_safetensors(const char* path, gradshm_layout_t** ret_layout);
GRADSHM_API int gradshm_layout_add(gradshm_layout_t* layout, const char* name, int dtype, const int64_t* shape, size_t ndim);
GRADSHM_API int gradshm_layout_add_parameter(gradshm_layout_t* layout, const gradshm_parameter_desc_t* desc);
GRADSHM_API int gradshm_layout_size(const gradshm_layout_t* layout, size_t* ret_parameters);
GRADSHM_API int gradshm_layout_fingerprint(const gradshm_layout_t* layout, uint64_t* ret_fingerprint);
GRADSHM_API void gradshm_layout_destroy(gradshm_layout_t* layout);

/* ---- Attach. ---- */

#define GRADSHM_RANK_AUTO (-1) /* environment GRADSHM_RANK where set (gradshm run sets it), else the lowest free rank */
#define GRADSHM_RANK_ANY (-2)  /* the lowest free rank */

enum {
  GRADSHM_ATTACH_PARTIAL = 1,   /* the layout may name fewer parameters; the others are absent from this worker for good */
  GRADSHM_ATTACH_NOT_READY = 2, /* do not take part until gradshm_ready */
  GRADSHM_ATTACH_WAIT_SERVER = 8, /* if no server of that name answers, try again until the time-out instead of NO_SERVER at once */
  GRADSHM_ATTACH_NO_WAIT = 4    /* return before this worker is admitted to a round; see gradshm_wait_admitted */
};

typedef struct {
  size_t size;
  int32_t rank;        /* 0 to 255, GRADSHM_RANK_AUTO or GRADSHM_RANK_ANY; sums are made in rank order */
  uint32_t flags;      /* GRADSHM_ATTACH_* */
  int64_t timeout_ns;  /* for the whole call, admission included; 0 = 60 s, negative = for ever */
  int64_t spin_ns;     /* how long a wait spins before it sleeps; 0 = chosen from the number of CPUs, negative = never spins */
  const char* label;   /* shown by gradshm-top, at most 31 bytes; NULL = the program's name */
} gradshm_attach_options_t;

/* instance: NULL or "" = environment GRADSHM_INSTANCE, else "default". layout: copied. options: NULL = defaults (rank AUTO).
 * Blocks until the worker is admitted to a round (round 1 opens with the server's --expect workers; a later joiner is admitted when
 * the open round closes), unless NO_WAIT or NOT_READY is given. */
GRADSHM_API int gradshm_attach(const char* instance, const gradshm_layout_t* layout, const gradshm_attach_options_t* options,
                               gradshm_handle_t** ret_handle);
/* A read-only handle: reads closed rounds, never takes part. timeout_ns 0 = 60 s. NOT_FOUND while the server has no layout yet. */
GRADSHM_API int gradshm_observe(const char* instance, int64_t timeout_ns, gradshm_handle_t** ret_handle);
/* Leaves if still a member, unmaps everything that this handle gave out, frees it. NULL is fine. */
GRADSHM_API void gradshm_detach(gradshm_handle_t* handle);

GRADSHM_API int gradshm_ready(gradshm_handle_t* handle);  /* take part from the next opening on */
GRADSHM_API int gradshm_pause(gradshm_handle_t* handle);  /* keep slot and rank, not waited for */
GRADSHM_API int gradshm_resume(gradshm_handle_t* handle); /* take part again from the next opening on */
GRADSHM_API int gradshm_leave(gradshm_handle_t* handle);  /* end membership; pointers stay valid until detach */
/* ret_round: the first round that this worker takes part in (after attach or resume); may be NULL. */
GRADSHM_API int gradshm_wait_admitted(gradshm_handle_t* handle, int64_t timeout_ns, uint64_t* ret_round);

/* ---- What is there. Indexes are positions in the instance's layout, the same in every process. ---- */

typedef struct {
  size_t size;
  uint64_t incarnation;  /* of the server: differs after every start */
  uint64_t fingerprint;  /* of the layout */
  uint64_t closed_round; /* newest closed round; the open one is this + 1 */
  uint64_t committed_round; /* newest round this worker committed anything to; 0 = none */
  uint64_t parameters, buckets, groups;
  uint64_t slot_bytes;   /* gradient bytes of one slot, padding included */
  int32_t rank;          /* -1 for an observer */
  int32_t daemon_pid;
  int32_t op;            /* gradshm_op_t */
  int32_t members;       /* members of the open round */
  uint64_t bytes_copied; /* bytes that gradshm copied for this handle since attach (gradshm_read); commit and wait copy none */
} gradshm_info_t;

typedef enum { GRADSHM_MEAN = 0, GRADSHM_SUM = 1, GRADSHM_WEIGHTED_MEAN = 2 } gradshm_op_t; /* sum g / sum w; sum g; sum (w g) / sum w */

typedef struct {
  size_t size;
  uint64_t id;
  const char* name;  /* valid until detach */
  int32_t dtype, order;
  uint64_t ndim, numel, bytes;
  int64_t shape[GRADSHM_MAX_DIMS];
  uint64_t offset;   /* bytes from the start of the slot's and of the result's gradients */
  uint32_t bucket, group;
  uint32_t alias_count; /* further names */
  uint32_t mine;     /* 1 if this worker registered it (0 only for partial workers and observers) */
} gradshm_parameter_t;

typedef struct {
  size_t size;
  uint32_t first_parameter, parameters; /* position in the bucket order, see gradshm_bucket_parameter */
  uint32_t group;
  int32_t dtype;
  uint64_t offset, bytes;
} gradshm_bucket_t;

GRADSHM_API int gradshm_info(const gradshm_handle_t* handle, gradshm_info_t* info); /* info->size set by the caller */
GRADSHM_API int gradshm_parameter(const gradshm_handle_t* handle, size_t index, gradshm_parameter_t* parameter);
GRADSHM_API int gradshm_alias(const gradshm_handle_t* handle, size_t index, size_t alias, const char** ret_name);
GRADSHM_API int gradshm_find(const gradshm_handle_t* handle, const char* name, size_t* ret_index); /* name or alias */
GRADSHM_API int gradshm_find_id(const gradshm_handle_t* handle, uint64_t id, size_t* ret_index);
GRADSHM_API int gradshm_bucket(const gradshm_handle_t* handle, size_t index, gradshm_bucket_t* bucket);
GRADSHM_API int gradshm_bucket_parameter(const gradshm_handle_t* handle, size_t bucket, size_t position, size_t* ret_parameter);
GRADSHM_API int gradshm_find_group(const gradshm_handle_t* handle, const char* name, size_t* ret_index);
GRADSHM_API int gradshm_group_name(const gradshm_handle_t* handle, size_t index, const char** ret_name);

/* Pointer to the parameter's elements, 64-byte aligned; it never changes until detach. A member may write slot bytes of round r
 * once round r-1 is closed, until it commits; then not before r is closed. Result bytes of bucket b may be read after a wait for r
 * returned OK, until this worker commits b for r+1. The result is mapped read-only. */
GRADSHM_API int gradshm_slot(const gradshm_handle_t* handle, size_t parameter, void** ret_data);
GRADSHM_API int gradshm_result(const gradshm_handle_t* handle, size_t parameter, const void** ret_data);

/* ---- Commit, poll, wait. ---- */

typedef enum { GRADSHM_ALL = 0, GRADSHM_GROUP = 1, GRADSHM_BUCKET = 2, GRADSHM_PARAMETER = 3 } gradshm_scope_t;
typedef enum {
  GRADSHM_PRESENT_ALL = 0,    /* every parameter in scope has a gradient */
  GRADSHM_PRESENT_MARKED = 1, /* only those committed by GRADSHM_PARAMETER in this round; none at all = an abstention */
  GRADSHM_PRESENT_NONE = 2    /* abstain: counted as arrived, contributes nothing */
} gradshm_presence_t;

typedef struct {
  size_t size;
  uint64_t round;    /* 0 = the open one */
  double weight;     /* > 0 and finite; 0 = what this group's first commit of the round said, else 1 */
  int32_t presence;  /* gradshm_presence_t; ignored by GRADSHM_PARAMETER, which marks that one parameter as present */
  int32_t reserved;  /* 0 */
} gradshm_commit_options_t;

/* Publishes slot bytes of the scope for a round: wait-free, no system call while the server is awake. index: of the group, bucket
 * or parameter; ignored by GRADSHM_ALL. GRADSHM_PARAMETER commits its bucket once all of the bucket's parameters are marked. Buckets
 * of the scope that are committed already are passed over; ALREADY_COMMITTED if that are all. A server that is gone is not noticed
 * here but by wait and poll. options, ret_round: may be NULL. ret_round is set where the answer is OK or ALREADY_COMMITTED. */
GRADSHM_API int gradshm_commit(gradshm_handle_t* handle, int scope, size_t index, const gradshm_commit_options_t* options,
                               uint64_t* ret_round);
/* round 0 = the one last committed to. OK, EMPTY, NOT_CLOSED, EVICTED, DAEMON_LOST, NOT_COMMITTED. */
GRADSHM_API int gradshm_poll(gradshm_handle_t* handle, uint64_t round);
/* As poll, but waits until the round is closed: TIMEOUT instead of NOT_CLOSED. Notices the server's death within 50 ms, then looks for a
 * server started under the same name, for as long as the old one's rejoin time-out says, and goes on waiting there: ranks, rounds and
 * all pointers stay. A successor that does not take this worker back: EVICTED, LAYOUT_MISMATCH, INCOMPATIBLE, with the reason. */
GRADSHM_API int gradshm_wait(gradshm_handle_t* handle, uint64_t round, int64_t timeout_ns);

/* ---- Looking at rounds. ---- */

typedef struct {
  size_t size;
  uint64_t round;
  int32_t status;                   /* GRADSHM_OK or GRADSHM_EMPTY */
  uint32_t member_count, contributor_count;
  int32_t last_rank;                /* whose commit came last; -1 = unknown */
  uint64_t members[4], contributors[4]; /* bitmaps by rank */
  double sum_of_squares;            /* squared norm of the whole result, after the division */
  uint64_t nonfinite_result;        /* elements of the result that are NaN or infinite */
  uint64_t nonfinite_ranks[4];      /* who handed in NaN or infinity, bitmap by rank */
  uint64_t first_commit_ns, last_commit_ns, closed_ns, reduce_ns; /* CLOCK_MONOTONIC as the server saw it; reduce: duration */
} gradshm_round_t;

/* The last 64 closed rounds are kept. */
GRADSHM_API int gradshm_round(const gradshm_handle_t* handle, uint64_t round, gradshm_round_t* info);
GRADSHM_API int gradshm_round_group_weight(const gradshm_handle_t* handle, uint64_t round, size_t group, double* ret_weight);
GRADSHM_API int gradshm_round_nonfinite(const gradshm_handle_t* handle, uint64_t round, int rank, uint64_t* ret_elements);

typedef struct {
  size_t size;
  uint64_t round;      /* the closed round that the result bytes belong to */
  uint32_t present;    /* 0: nobody wrote this parameter, the bytes are zero and mean nothing */
  uint32_t count;      /* workers whose gradient is in it */
  double weight_sum;   /* of those workers */
} gradshm_result_info_t;

/* For members after a wait, for observers any time (then it is a consistent snapshot or NOT_CLOSED while it changes). */
GRADSHM_API int gradshm_result_info(const gradshm_handle_t* handle, size_t parameter, gradshm_result_info_t* info);
/* Copies one parameter of one closed round, never a mixture of two; TIMEOUT if rounds close too fast for `timeout_ns`.
 * bytes must be the parameter's. info: may be NULL. */
GRADSHM_API int gradshm_read(gradshm_handle_t* handle, size_t parameter, void* data, size_t bytes, int64_t timeout_ns,
                             gradshm_result_info_t* info);

#ifdef __cplusplus
}
#endif
#endif
