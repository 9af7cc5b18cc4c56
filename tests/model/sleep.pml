/* Who sleeps is woken: the Dekker pairs committed / idle and closed_round / waiting, the futex, and what a restart does to them.
 * docs/model.md says what stands for what.
 *
 * The time slices of a wait are left out: a sleeper stays asleep until it is woken, or until its server dies. So a lost wake-up is a
 * state from which nothing moves. One worker with THREADS threads that share slot, doorbell and mappings; the first of them commits.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#define SERVERS (RESTARTS + 1)

/* control, one of each server */
byte closed[SERVERS], wake_seq[SERVERS];
bool idle[SERVERS];
/* slot, doorbell */
byte committed, waiting;
bool bell;
/* kernel */
byte asleep_on[THREADS];              /* the server whose futex it sleeps on, + 1; 0 = awake */
byte server;
bool server_dead;
bool rejoin_request, rejoin_answer;
/* private to the worker's process */
byte mapped;
bool re_attaching;
byte restarts_left = RESTARTS;

#ifdef MISTAKE_SAME_SEQUENCE
#define FIRST_SEQUENCE(s) 0
#else
#define FIRST_SEQUENCE(s) ((s) * 16)   /* random in every incarnation */
#endif
#define IS_DEAD(s) ((s) < server || server_dead)

inline wake_all() {
  i = 0;
  do :: i < THREADS -> if :: asleep_on[i] == server + 1 -> asleep_on[i] = 0 :: else fi; i++ :: else -> break od;
  i = 0
}
hidden byte i;

/* ---------------------------------------------------------------- the server: one thread */
bool accepted = true;                 /* it has the slot; private, as the next two */
byte open = 1;
#ifdef MISTAKE_SLEEPERS_BEFORE_CLOSE
bool sleeps;
#endif

#define FINDS_COMMIT (accepted && committed >= open)

proctype Server() {
end_serve:
  {
  end: do
  :: atomic { FINDS_COMMIT -> assert(committed == open) };
#ifdef MISTAKE_WAKE_BEFORE_CLOSE
     wake_seq[server]++;
     d_step { if :: waiting != 0 -> wake_all() :: else fi };
     d_step { closed[server] = open; open++ }
#elif defined(MISTAKE_SLEEPERS_BEFORE_CLOSE)
     d_step { sleeps = (waiting != 0) };
     d_step { closed[server] = open; open++ };
     wake_seq[server]++;
     d_step { if :: sleeps -> wake_all() :: else fi }
#else
     d_step { closed[server] = open; open++ };           /* Publisher::close */
#ifndef MISTAKE_NO_SEQUENCE
     wake_seq[server]++;                                 /* Publisher::turn_futex */
#endif
     if
     :: waiting != 0 -> d_step { wake_all() }            /* Member::sleeps, FUTEX_WAKE */
     :: waiting == 0
     fi
#endif
  :: !FINDS_COMMIT ->                                    /* Server::sleep */
#ifdef MISTAKE_SCAN_BEFORE_IDLE
     if :: FINDS_COMMIT -> goto awake :: !FINDS_COMMIT fi;
#endif
     idle[server] = true;
#if !defined(MISTAKE_NO_SECOND_SCAN) && !defined(MISTAKE_SCAN_BEFORE_IDLE)
     if :: FINDS_COMMIT -> goto awake :: !FINDS_COMMIT fi;
#endif
end_epoll:
     if
     :: d_step { bell -> bell = false }
     :: d_step { rejoin_request -> rejoin_request = false; open = closed[mapped] + 1; closed[server] = closed[mapped]; accepted = true }; rejoin_answer = true
     fi;
awake:
     idle[server] = false
  od
  } unless { server_dead };
#if RESTARTS
  d_step { rejoin_request = false; accepted = false; open = 1; server++; wake_seq[server] = FIRST_SEQUENCE(server); server_dead = false; closed[server] = 0; idle[server] = false };
  goto end_serve
#endif
}

/* ---------------------------------------------------------------- the worker's threads */

#if RESTARTS
/* One thread re-attaches, the others go on with whatever control is mapped. */
inline re_attach() {
  if
  :: atomic { !re_attaching && IS_DEAD(mapped) -> re_attaching = true };
     do
     :: d_step { !server_dead && server != mapped -> rejoin_request = true; to = server };
        if
        :: d_step { rejoin_answer -> rejoin_answer = false };
#ifdef MISTAKE_RING_BEFORE_SWITCH
           bell = true;
           mapped = to
#else
           mapped = to;
#ifndef MISTAKE_NO_RING_AFTER_SWITCH
           bell = true
#endif
#endif
           ; break
        :: d_step { !rejoin_answer && IS_DEAD(to) -> to = 0 }
        fi
     od;
     atomic { re_attaching = false; to = 0 }
  :: !IS_DEAD(mapped)                                    /* another thread has done it */
  fi
}
#endif

#ifdef MISTAKE_ONE_WAITING_FLAG
#define ADD_WAITING waiting = 1
#define SUB_WAITING waiting = 0
#else
#define ADD_WAITING waiting++
#define SUB_WAITING waiting--
#endif

proctype Thread(byte t) {
  byte r, seen, on, to;
  do
  :: r < ROUNDS ->
     r++;
     /* a thread works at a round once the one before is closed */
     if
     :: t == 0 ->
#ifdef MISTAKE_RING_BEFORE_COMMIT
        if :: idle[mapped] -> bell = true :: !idle[mapped] fi;
        committed = r;
#else
        committed = r;                                   /* WorkerWords::publish_bucket */
        if :: idle[mapped] -> bell = true :: !idle[mapped] fi;   /* WorkerWords::ring */
#endif
     :: else
     fi;
     ADD_WAITING;                                        /* WorkerWords::wait */
     do
     :: seen = wake_seq[mapped];                         /* WorkerWords::sleep_until */
        if
        :: closed[mapped] >= r -> break
        :: closed[mapped] < r
        fi;
#if RESTARTS
        if
        :: IS_DEAD(mapped) ->
           if :: closed[mapped] >= r -> break :: closed[mapped] < r fi;   /* it no longer changes, unless another thread switches */
           re_attach()
        :: !IS_DEAD(mapped)
        fi;
#endif
        /* FUTEX_WAIT */
#ifdef MISTAKE_NO_SEQUENCE
        d_step { on = mapped; asleep_on[t] = on + 1 };
#else
        d_step { on = mapped; if :: wake_seq[on] == seen -> asleep_on[t] = on + 1 :: else fi };   /* the kernel compares what is mapped now */
#endif
        (asleep_on[t] == 0 || IS_DEAD(on));              /* a slice ends: only this way out counts here */
        d_step { asleep_on[t] = 0; seen = 0; on = 0 }
     od;
     atomic { seen = 0 };
     SUB_WAITING
  :: else -> break
  od
}

init {
  atomic {
    run Server();
    byte t = 0;
    do :: t < THREADS -> run Thread(t); t++ :: else -> break od;
  };
  end: do
#if RESTARTS
  :: d_step { restarts_left != 0 && !server_dead -> restarts_left--; server_dead = true }
#endif
  :: false
  od
}
