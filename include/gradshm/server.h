/* A gradshm server inside a program: libgradshm-server.so. gradshmd is a thin program around it. No signal handlers, no output but
 * through the log function. Return values as in gradshm.h; gradshm_server_last_error() holds the sentence.
 *
 * The short way: gradshm_server_start, then gradshm_server_destroy. Or create, and run in a thread of yours. Workers may live in
 * any process, this one too. Name, lock and beacon are those of gradshmd: of one name one server runs, whatever its kind.
 * Threads: stop, wait and name may be called from any thread at any time before destroy; nothing but stop from the log function.
 * fork: a child does not have the server. There every call answers FORKED, stop and destroy do nothing, and the child may start
 * one of its own. Connections that were open when it was forked stay open in it until it execs or ends.
 * kill -9 of this program ends the server with it and leaves socket, lock and beacon to the next server of the name. */
#ifndef GRADSHM_SERVER_H
#define GRADSHM_SERVER_H

#include <gradshm/gradshm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gradshm_server gradshm_server_t;

enum { GRADSHM_LOG_DEBUG = 0, GRADSHM_LOG_INFO = 1, GRADSHM_LOG_WARNING = 2, GRADSHM_LOG_ERROR = 3 };
typedef void (*gradshm_log_t)(void* context, int level, const char* sentence); /* called by the thread that runs the server */

typedef struct {
  size_t size;
  const char* name;            /* NULL: environment GRADSHM_INSTANCE, else "default" */
  const char* layout_path;     /* .safetensors, otherwise TSV; NULL: the first worker's registration */
  int32_t op;                  /* gradshm_op_t */
  uint32_t max_workers;        /* 1 to 256; 0 = 64 */
  uint32_t expect;             /* round 1 opens with that many ready workers; 0 = 1 */
  uint32_t reducer_threads;    /* 0 = all CPUs */
  uint64_t bucket_bytes;       /* 0 = 8 MiB */
  const char* const* groups;   /* name prefixes, or NULL */
  size_t group_count;
  int64_t spin_ns;             /* how long the server looks for work before it sleeps; 0 = 50 us, negative = not at all; at most 10 s */
  int64_t drain_ns;            /* how long stop waits for the open round to close; 0 = 5 s, negative = not at all */
  gradshm_log_t log;           /* NULL: silent */
  void* log_context;
  int64_t round_deadline_ns;   /* from the first commit of a round: who has not committed everything by then is evicted; 0 = none */
  int64_t rejoin_timeout_ns;   /* how long workers of a killed server look for a successor, and it waits for them; 0 = 30 s, negative = not at all */
  const char* socket_group;    /* name or number: members of this group may attach too; NULL: only this user and root */
  uint64_t memory_budget;      /* bytes of slots, those that evicted workers still hold included; 0 = room for 2 * max_workers */
} gradshm_server_options_t;

GRADSHM_API const char* gradshm_server_version(void);
GRADSHM_API const char* gradshm_server_last_error(void);
/* Takes the name's lock, reads the layout file, takes the memory and listens: workers may attach from now on. */
GRADSHM_API int gradshm_server_create(const gradshm_server_options_t* options, gradshm_server_t** ret_server);
/* create, and run in a thread of its own, named gradshm-server, in which all signals but faults are blocked. options may go away. */
GRADSHM_API int gradshm_server_start(const gradshm_server_options_t* options, gradshm_server_t** ret_server);
/* Serves in this thread until gradshm_server_stop. Once only; INVALID for a second time, and for a started server. When it returns
 * the instance is gone: socket, lock and beacon are removed, workers' waits answer DAEMON_LOST. */
GRADSHM_API int gradshm_server_run(gradshm_server_t* server);
/* From any thread or signal handler. The first call lets the open round close, the second ends at once. */
GRADSHM_API void gradshm_server_stop(gradshm_server_t* server);
/* Until the server has ended, by stop (OK) or by an error (its code, and its sentence); TIMEOUT while it serves; INVALID for one that
 * nobody has run. */
GRADSHM_API int gradshm_server_wait(gradshm_server_t* server, int64_t timeout_ns);
/* Name of the instance; valid until destroy, "" for NULL. */
GRADSHM_API const char* gradshm_server_name(const gradshm_server_t* server);
/* Stops (as one call of stop, unless there was one), waits for the end of run, whoever runs it, and frees it. NULL is fine. */
GRADSHM_API void gradshm_server_destroy(gradshm_server_t* server);

#ifdef __cplusplus
}
#endif
#endif
