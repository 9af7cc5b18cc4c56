/* Rounds, membership, eviction, restart and observers: docs/model.md says what stands for what.
 *
 * One Promela step = one access to shared memory, the beacon or a socket, with the private work that follows it. What a process keeps
 * in private memory needs no step of its own. Promela is sequentially consistent; sleep.pml has what depends on that.
 *
 * A handle h is a worker incarnation: slot h, generation h + 1. Two handles may have one rank, one after the other.
 */
#ifndef WORKERS
#define WORKERS 2   /* members of round 1 */
#endif
#ifndef JOINERS
#define JOINERS 0
#endif
#ifndef ROUNDS
#define ROUNDS 2    /* a worker leaves after it has had this round */
#endif
#ifndef RESTARTS
#define RESTARTS 0  /* kills of the server, each followed by a start */
#endif
#ifndef KILLS
#define KILLS 0     /* kills of workers */
#endif
#ifndef EVICTIONS
#define EVICTIONS 0 /* of living workers, at any moment: a deadline that is always wrong */
#endif
#ifndef PAUSES
#define PAUSES 0
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0  /* ends of a recovery that does not wait for the living */
#endif
#ifndef OBSERVERS
#define OBSERVERS 0
#endif
#ifdef ONE_ORDER
#define FIRST_BUCKET b = 0
#else
#define FIRST_BUCKET if :: b = 0 :: b = 1 fi
#endif

#define BUCKETS 2
#define HANDLES (WORKERS + JOINERS)
#define SERVERS (RESTARTS + 1)
#define BIT(h) (1 << (h))
#define HAS(set, h) (((set) >> (h)) & 1)
#define VALUE(h, b) value[(h) * BUCKETS + (b)]
#define COMMITTED(h, b) committed[(h) * BUCKETS + (b)]
#define TAKEN(h, r) taken[(h) * (ROUNDS + 2) + (r)]
#define SUM(r, set) ((r) * 16 + (set))   /* names the result: its round and whose values are in it */

/* member states */
#define GONE 0
#define READY 1
#define MEMBER 2
#define PAUSED 3
/* requests and answers; a socket holds one of each */
#define JOIN 1
#define PAUSE 2
#define RESUME 3
#define REJOIN 4
#define OK 1
#define EVICTED 2

typedef Control { byte closed; byte generation[HANDLES]; byte state[HANDLES]; byte record[ROUNDS + 2] };
typedef Result { byte writing[BUCKETS]; byte bytes[BUCKETS]; byte round[BUCKETS] };

Control control[SERVERS];             /* one of each server; those of dead ones stay mapped where somebody holds them */
Result result[SERVERS];
byte value[HANDLES * BUCKETS];        /* slot bytes: the round whose gradient stands there */
byte committed[HANDLES * BUCKETS];    /* slot: commit words */
byte beacon_floor, beacon_list;
byte request[HANDLES], answer[HANDLES], rejoin_request[HANDLES], rejoin_answer[HANDLES];
byte server;                          /* number of the one that runs, or ran last */
bool server_dead;                     /* its pidfd is readable */
byte dead;                            /* workers whose pidfd is readable */

/* private to a worker's process, shared by its threads */
byte rank[HANDLES];
byte mapped[HANDLES];                 /* whose control is mapped */
byte shown[HANDLES];                  /* whose result is mapped */
byte base[HANDLES];                   /* closed_round of the old control when it was handed over */
byte refused;                         /* handles that a re-attach found evicted */

hidden byte i, used;                  /* of loops inside one step */

/* ghosts: what only the properties look at */
byte evicted_ever, missed_timeout, taken[HANDLES * (ROUNDS + 2)];
byte observed, observed_server;
#ifdef MISTAKE_NO_RELOAD
byte seen[HANDLES];
#endif
byte restarts_left = RESTARTS, kills_left = KILLS, evictions_left = EVICTIONS, pauses_left = PAUSES, timeouts_left = TIMEOUTS;

#define IS_DEAD(s) ((s) < server || server_dead)
#ifdef MISTAKE_NO_GENERATION
#define SAME_GENERATION(s, h) true
#else
#define SAME_GENERATION(s, h) (control[s].generation[rank[h]] == (h) + 1)
#endif
#define STATE_IN(s, h) (SAME_GENERATION(s, h) -> control[s].state[rank[h]] : GONE)
#define MY_STATE(h) STATE_IN(mapped[h], h)
#define IS_OUT(h) (HAS(refused, h) || MY_STATE(h) == GONE)

#if JOINERS == 1
#define EACH_JOINER(X) X(WORKERS)
#elif JOINERS == 2
#define EACH_JOINER(X) X(WORKERS) X(WORKERS + 1)
#endif
#if HANDLES == 2
#define EACH(X) X(0) X(1)
#elif HANDLES == 3
#define EACH(X) X(0) X(1) X(2)
#else
#define EACH(X) X(0) X(1) X(2) X(3)
#endif

/* ---------------------------------------------------------------- the server */

/* private; global only because proctypes have no arrays of their own that inlines can see */
byte members, ready, sessions, arrived[BUCKETS], reduced[BUCKETS], open;
byte list, back;                      /* of a recovery: who was a member; who has been accepted again */
bool recovering;
#ifdef MISTAKE_EVICTION_AFTER_CLOSE
byte late;
#endif

#define HAS_ALL(h) (HAS(arrived[0], h) && HAS(arrived[1], h))
#define CLEAR(set, who) set = set & ~(who)

inline store_word(h, s) { control[server].generation[rank[h]] = h + 1; control[server].state[rank[h]] = s }

/* Rounds::take_last_commits */
inline take_last_commits(h) {
  if
  :: HAS(members, h) ->
     if :: COMMITTED(h, 0) == open -> arrived[0] = arrived[0] | BIT(h) :: else fi;
     if :: COMMITTED(h, 1) == open -> arrived[1] = arrived[1] | BIT(h) :: else fi
  :: else
  fi
}

/* RoundMachine::remove: who has committed everything stays in the round */
inline machine_remove(h) {
  CLEAR(ready, BIT(h));
  if
  :: HAS(members, h) && !HAS_ALL(h) ->
     CLEAR(members, BIT(h)); CLEAR(arrived[0], BIT(h)); CLEAR(arrived[1], BIT(h));
     if :: members == 0 -> reduced[0] = 0; reduced[1] = 0 :: else fi
  :: else
  fi
}

/* Rounds::open: all that are ready, while the open round has no members */
inline admit() {
  if
  :: !recovering && members == 0 && ready != 0 ->
     for (i : 0 .. HANDLES - 1) { if :: HAS(ready, i) -> store_word(i, MEMBER) :: else fi }
     members = ready; ready = 0
  :: else
  fi;
  i = 0
}

/* Death, leave and eviction are one move: beacon, then the word (which tells the worker), then the round. */
inline remove_from_beacon(h) {
  take_last_commits(h);
  evicted_ever = evicted_ever | BIT(h);
  CLEAR(sessions, BIT(h)); CLEAR(back, BIT(h)); CLEAR(list, BIT(h)); CLEAR(beacon_list, BIT(h))
}
#ifdef MISTAKE_EVICTION_AFTER_CLOSE
inline store_late() {
  for (i : 0 .. HANDLES - 1) { if :: HAS(late, i) -> store_word(i, GONE) :: else fi }
  i = 0; late = 0
}
#endif
inline remove_from_round(h) {
#ifdef MISTAKE_EVICTION_AFTER_CLOSE
  late = late | BIT(h);
  machine_remove(h);
  if :: members == 0 -> store_late() :: else fi;   /* nothing closes */
#else
  if :: control[server].generation[rank[h]] == h + 1 -> store_word(h, GONE) :: else fi;
  machine_remove(h);
#endif
  admit()
}

/* Each value that is summed must be that of the open round: a redo reads the slots again. */
inline sum(b) {
  for (i : 0 .. HANDLES - 1) { if :: HAS(members, i) -> assert(VALUE(i, b) == open) :: else fi }
  i = 0;
  result[server].bytes[b] = SUM(open, members)
}

#ifdef MISTAKE_NO_REDO
#define IS_REDUCED(b) (reduced[b] != 0)
#else
#define IS_REDUCED(b) (reduced[b] == members)
#endif
#define IS_FULL(b) (members != 0 && (arrived[b] & members) == members && !IS_REDUCED(b))
#define CAN_CLOSE (members != 0 && IS_REDUCED(0) && IS_REDUCED(1))

inline store_closed() {
  control[server].record[open] = members;
  assert(result[server].bytes[0] == SUM(open, members) && result[server].bytes[1] == SUM(open, members));   /* (a): one set, this round */
  assert(observed == 0 || observed_server != server || observed / 16 != open || observed == SUM(open, members));   /* (e) */
  control[server].closed = open;
  for (i : 0 .. HANDLES - 1) { if :: HAS(members, i) && STATE_IN(server, i) == MEMBER && HAS(sessions, i) -> ready = ready | BIT(i) :: else fi }
  i = 0;
  members = 0; arrived[0] = 0; arrived[1] = 0; reduced[0] = 0; reduced[1] = 0;
  open++
}

/* ---- recovery */

/* the handed-over control is that of a dead server: nobody changes it */
#define REPORTED(h) control[mapped[h]].closed
#define FLOOR (open - 1)
#if defined(MISTAKE_LATE_HANDOVER) || defined(MISTAKE_OPEN_AT_FIRST)
#define REPORTS_LESS(h) false
#else
#define REPORTS_LESS(h) (REPORTED(h) < FLOOR)
#endif
#ifdef MISTAKE_FLOOR_OF_BEACON_ONLY
#define RAISES(h) false
#else
#define RAISES(h) (REPORTED(h) > FLOOR)
#endif
#ifdef MISTAKE_STATE_UNCHECKED
#define IS_REFUSED(h) (!HAS(list, h) || REPORTS_LESS(h))
#define STATE_AGAIN(h) MEMBER
#else
#define STATE_AGAIN(h) control[mapped[h]].state[rank[h]]
#define IS_REFUSED(h) (!HAS(list, h) || STATE_IN(mapped[h], h) == GONE || REPORTS_LESS(h))
#endif
#define ASKS(h) (rejoin_request[h] == REJOIN)
#if defined(MISTAKE_LATE_HANDOVER) || defined(MISTAKE_OPEN_AT_FIRST) || defined(MISTAKE_ACCEPT_AFTER_RECOVERY)
#define ACCEPTS true
#define KEEPS_LIST
#else
#define ACCEPTS recovering
#endif
#ifdef MISTAKE_OPEN_AT_FIRST
#define ALL_BACK (back != 0 || (list & ~dead) == 0)
#else
#define ALL_BACK ((list & ~back & ~dead) == 0)
#endif

inline refuse(h) {
  rejoin_request[h] = 0;
  assert(HAS(evicted_ever | missed_timeout | dead, h));   /* (b): no living member is lost to a restart alone */
  CLEAR(list, BIT(h)); CLEAR(beacon_list, BIT(h))
}
/* who is back and had reported less is out */
inline raise_floor(h) {
  for (i : 0 .. HANDLES - 1) { if :: HAS(back, i) -> store_word(i, GONE) :: else fi }
  i = 0;
  evicted_ever = evicted_ever | back;
  CLEAR(list, back); CLEAR(beacon_list, back); CLEAR(sessions, back);
  back = 0;
  open = REPORTED(h) + 1
}
inline accept(h) {
  rejoin_request[h] = 0;
  used = STATE_AGAIN(h);
  store_word(h, used);
  used = 0;
  back = back | BIT(h); sessions = sessions | BIT(h);
  if :: !recovering -> ready = ready | BIT(h) :: else fi
}
inline end_recovery() {
  missed_timeout = missed_timeout | (list & ~back & ~dead);
#ifndef KEEPS_LIST
  list = back;
  beacon_list = back
#endif
}
inline open_after_recovery() {
  recovering = false;
  for (i : 0 .. HANDLES - 1) { if :: HAS(back, i) && (STATE_IN(server, i) == MEMBER || STATE_IN(server, i) == READY) -> ready = ready | BIT(i) :: else fi }
  admit();
#ifndef KEEPS_LIST
  list = 0;
#endif
  back = 0
}

inline start_again() {
  members = 0; ready = 0; sessions = 0; arrived[0] = 0; arrived[1] = 0; reduced[0] = 0; reduced[1] = 0; back = 0;
  server++; server_dead = false;
  list = beacon_list;
  open = beacon_floor + 1;
  control[server].closed = beacon_floor;
  recovering = (list != 0);
#ifdef MISTAKE_BEACON_LATE
  beacon_list = 0;
#endif
#ifdef MISTAKE_EVICTION_AFTER_CLOSE
  late = 0;
#endif
}

#define DO_SCAN(h, b) \
  :: d_step { !recovering && HAS(members, h) && !HAS(arrived[b], h) && COMMITTED(h, b) >= open -> \
       assert(COMMITTED(h, b) == open);   /* a worker that keeps the rules is never taken for one that does not */ \
       arrived[b] = arrived[b] | BIT(h) }

#ifdef MISTAKE_STATE_UNCHECKED   /* it shows only where the word comes before the beacon */
#define FIRST_REMOVE(h) remove_from_round(h)
#define THEN_REMOVE(h) remove_from_beacon(h)
#else
#define FIRST_REMOVE(h) remove_from_beacon(h)
#define THEN_REMOVE(h) remove_from_round(h)
#endif
#define DO_MEMBER(h) \
  DO_SCAN(h, 0) \
  DO_SCAN(h, 1) \
  :: d_step { HAS(sessions, h) && HAS(dead, h) -> FIRST_REMOVE(h) }; d_step { THEN_REMOVE(h) }

#define DO_EVICT(h) \
  :: d_step { evictions_left != 0 && HAS(members & sessions, h) && !HAS_ALL(h) && !HAS(dead, h) -> evictions_left--; FIRST_REMOVE(h) }; \
     d_step { THEN_REMOVE(h) }

#define DO_REQUESTS(h) \
  :: d_step { request[h] == PAUSE && HAS(sessions, h) -> request[h] = 0; take_last_commits(h); store_word(h, PAUSED); machine_remove(h); admit() }; \
     answer[h] = OK \
  :: d_step { request[h] == RESUME && HAS(sessions, h) -> request[h] = 0; store_word(h, READY); ready = ready | BIT(h); admit() }; \
     answer[h] = OK \
  :: d_step { (request[h] == PAUSE || request[h] == RESUME) && !HAS(sessions, h) -> request[h] = 0; answer[h] = EVICTED }

/* the lowest free rank */
inline choose_rank(h) {
  used = 0;
  for (i : 0 .. HANDLES - 1) { if :: HAS(sessions, i) -> used = used | BIT(rank[i]) :: else fi }
  i = 0; rank[h] = 0;
  do :: HAS(used, rank[h]) -> rank[h]++ :: else -> break od;
  used = 0
}
#define DO_JOIN(h) \
  :: d_step { request[h] == JOIN && !recovering -> request[h] = 0; choose_rank(h); sessions = sessions | BIT(h); beacon_list = beacon_list | BIT(h) }; \
     d_step { store_word(h, READY); ready = ready | BIT(h); admit() }; \
     answer[h] = OK

#define DO_REJOIN(h) \
  :: d_step { ASKS(h) && !ACCEPTS -> refuse(h) }; rejoin_answer[h] = EVICTED \
  :: d_step { ASKS(h) && ACCEPTS && IS_REFUSED(h) -> refuse(h) }; rejoin_answer[h] = EVICTED \
  :: d_step { ASKS(h) && ACCEPTS && !IS_REFUSED(h) && RAISES(h) -> raise_floor(h) } STORE_FLOOR_NOW \
  :: d_step { ASKS(h) && ACCEPTS && !IS_REFUSED(h) && !RAISES(h) -> accept(h) }; rejoin_answer[h] = OK STORE_FLOOR_LATE

#ifdef MISTAKE_FLOOR_AFTER_ANSWER
#define STORE_FLOOR_NOW
#define STORE_FLOOR_LATE ; d_step { if :: control[server].closed < FLOOR -> control[server].closed = FLOOR :: else fi }
#else
#define STORE_FLOOR_NOW ; control[server].closed = FLOOR
#define STORE_FLOOR_LATE
#endif

#if OBSERVERS
#define DO_SUM(b) \
  :: d_step { !recovering && IS_FULL(b) -> result[server].writing[b] = open }; d_step { sum(b) }; d_step { result[server].round[b] = open; reduced[b] = members }
#else   /* members look at the bytes alone, and only after the close */
#define DO_SUM(b) :: d_step { !recovering && IS_FULL(b) -> sum(b); result[server].round[b] = open; reduced[b] = members }
#endif

#if defined(MISTAKE_EVICTION_AFTER_CLOSE)
#define AFTER_CLOSE ; d_step { store_late(); admit() }
#else
#define AFTER_CLOSE ; d_step { admit() }
#endif

proctype Server() {
end_serve:
  {
  end: do
    EACH(DO_MEMBER)
    DO_SUM(0)
    DO_SUM(1)
    :: d_step { !recovering && CAN_CLOSE -> store_closed() } AFTER_CLOSE
#if EVICTIONS
    EACH(DO_EVICT)
#endif
#if PAUSES
    EACH(DO_REQUESTS)
#endif
#if JOINERS
    EACH_JOINER(DO_JOIN)
#endif
#if RESTARTS
    :: d_step { beacon_floor < control[server].closed && !recovering -> beacon_floor = control[server].closed }   /* some time */
    EACH(DO_REJOIN)
    :: d_step { recovering && ALL_BACK -> end_recovery() }; d_step { open_after_recovery() }
#if TIMEOUTS
    :: d_step { recovering && timeouts_left != 0 && !ALL_BACK -> timeouts_left--; end_recovery() }; d_step { open_after_recovery() }
#endif
#endif
  od
  } unless { server_dead };
#if RESTARTS
  d_step {   /* the kernel closes its sockets; what it had sent can still be read */
    for (i : 0 .. HANDLES - 1) { request[i] = 0; rejoin_request[i] = 0 }
    i = 0
  };
  d_step { start_again() };
  goto end_serve
#endif
}

/* ---------------------------------------------------------------- a worker */

/* the round may be written: WorkerWords::open_round */
#define OPEN_FOR(h) (control[mapped[h]].closed + 1)

/* A wait returned OK: the result of a server is shown from the first round on that it closed itself. */
inline show_result(h) { if :: r > base[h] -> shown[h] = mapped[h] :: else fi }

#define BYTES(h, b) result[shown[h]].bytes[b]
inline use_result(h) {
  assert(IS_OUT(h) || (BYTES(h, 0) == SUM(r, control[shown[h]].record[r]) && BYTES(h, 1) == BYTES(h, 0) && HAS(BYTES(h, 0), h)));   /* (a) */
  TAKEN(h, r) = BYTES(h, 0);
  for (i : 0 .. HANDLES - 1) {   /* (b) */
    assert(IS_OUT(h) || HAS(dead | evicted_ever | missed_timeout, i) || HAS(evicted_ever | missed_timeout, h) || TAKEN(i, r) == 0 || TAKEN(i, r) == TAKEN(h, r))
  }
  i = 0
}

#ifdef MISTAKE_USE_BEFORE_CLOSE
#define USABLE(h) (result[mapped[h]].round[0] == r && result[mapped[h]].round[1] == r || control[mapped[h]].closed >= r)
#else
#define USABLE(h) (control[mapped[h]].closed >= r)
#endif

#if PAUSES
#define MAY_PAUSE if :: d_step { pauses_left != 0 -> pauses_left-- }; goto pause :: true fi
#else
#define MAY_PAUSE skip
#endif

/* A request over the socket; the server may die before it answers, and then what counts is the word in the next one's control. */
#define ASK(what, done) \
  do \
  :: IS_OUT(h) -> goto out \
  :: !IS_OUT(h) && (done) -> break \
  :: d_step { !IS_OUT(h) && !(done) && !IS_DEAD(mapped[h]) -> request[h] = what; to = mapped[h] }; \
     if \
     :: d_step { answer[h] == OK -> answer[h] = 0; to = 0 }; break \
     :: d_step { answer[h] == EVICTED -> answer[h] = 0; to = 0 }; goto out \
     :: d_step { answer[h] == 0 && IS_DEAD(to) && (mapped[h] != to || HAS(refused, h)) -> to = 0 } \
     fi \
  od

proctype Worker(byte h) {
  byte r, b, n, last, to;
  {
#if JOINERS
  if
  :: h < WORKERS -> skip
  :: else ->
     d_step { !server_dead -> request[h] = JOIN; mapped[h] = server };
     if
     :: d_step { answer[h] == OK -> answer[h] = 0; shown[h] = mapped[h]; base[h] = 0 }
#if RESTARTS
     ; run Rejoiner(h)
#endif
     :: IS_DEAD(mapped[h]) && answer[h] == 0 -> goto out   /* the attach failed */
     fi
  fi;
#else
  true;
#endif
admission:
  atomic { MY_STATE(h) == MEMBER || IS_OUT(h) };
round:
  atomic {
    if
    :: IS_OUT(h) -> goto out
    :: !IS_OUT(h) && OPEN_FOR(h) > ROUNDS + 1 -> goto out   /* came late, or paused: enough */
    :: else -> r = OPEN_FOR(h); assert(last == 0 || r == last + 1); FIRST_BUCKET   /* (b): no round is skipped */
    fi
  };
  MAY_PAUSE;
bucket:
  VALUE(h, b) = r;
  atomic {
    if
    :: IS_OUT(h) -> goto out
    :: else -> assert(OPEN_FOR(h) == r)
    fi
  };
  d_step { COMMITTED(h, b) = r; n++; b = 1 - b };
  if
  :: n == 1 -> MAY_PAUSE; goto bucket
  :: else
  fi;
#ifdef MISTAKE_WRITE_BEFORE_CLOSE
  if
  :: d_step { r < ROUNDS && result[mapped[h]].round[0] == r -> VALUE(h, 0) = r + 1 }
  :: d_step { r < ROUNDS && result[mapped[h]].round[1] == r -> VALUE(h, 1) = r + 1 }
  :: true
  fi;
#endif
  d_step { (USABLE(h) || IS_OUT(h)) -> n = 0; b = 0; if :: USABLE(h) && !HAS(refused, h) -> show_result(h) :: else fi };
  atomic { if :: IS_OUT(h) -> goto out :: else fi };
#ifdef MISTAKE_USE_BEFORE_CLOSE
  TAKEN(h, r) = result[mapped[h]].bytes[0];
  d_step { (control[mapped[h]].closed >= r || IS_OUT(h)) -> assert(IS_OUT(h) || TAKEN(h, r) == SUM(r, control[mapped[h]].record[r])) };
#else
  d_step { use_result(h) };
#endif
  atomic {
    last = r;
#ifdef MISTAKE_NO_RELOAD
    seen[h] = r;
#endif
    if :: r < ROUNDS -> goto round :: else fi
  };
  goto out;
#if PAUSES
pause:
  n = 0;
  ASK(PAUSE, MY_STATE(h) == PAUSED);
#ifndef MISTAKE_NO_WITHDRAWAL
  b = 0;
  do
  :: d_step { b < BUCKETS -> if :: COMMITTED(h, b) > control[mapped[h]].closed -> COMMITTED(h, b) = control[mapped[h]].closed :: else fi; b++ }
  :: b == BUCKETS -> break
  od;
#endif
  ASK(RESUME, MY_STATE(h) == READY || MY_STATE(h) == MEMBER);
  true;
  d_step { (MY_STATE(h) == MEMBER || IS_OUT(h)) -> last = 0; b = 0; r = 0 };
  d_step { VALUE(h, 0) = 0; VALUE(h, 1) = 0 };   /* it starts the round anew */
  goto round;
#endif
out:
  dead = dead | BIT(h)   /* its process ends: left, or evicted */
  } unless { HAS(dead, h) }
}

#if RESTARTS
/* The thread that re-attaches; any other may be at any place of Worker meanwhile. */
#ifdef MISTAKE_NO_RELOAD
#define LAST_KNOWN(h) seen[h]
#else
#define LAST_KNOWN(h) control[mapped[h]].closed
#endif
inline re_attach(h) {
#ifndef MISTAKE_PENDING_RESULT_LOST
  if :: LAST_KNOWN(h) > base[h] -> shown[h] = mapped[h] :: else fi;   /* it closed a round: that result comes before the next server's */
#endif
  base[h] = LAST_KNOWN(h);
  mapped[h] = to;
#ifdef MISTAKE_RESULT_AT_RE_ATTACH
  shown[h] = to;
#endif
}

proctype Rejoiner(byte h) {
  byte to;
  {
  end: do
  :: d_step { IS_DEAD(mapped[h]) && !server_dead && !HAS(refused, h) -> rejoin_request[h] = REJOIN; to = server };
     if
     :: d_step { rejoin_answer[h] == OK -> rejoin_answer[h] = 0; re_attach(h); to = 0 }
     :: d_step { rejoin_answer[h] == EVICTED -> rejoin_answer[h] = 0; refused = refused | BIT(h); to = 0 }
     :: d_step { rejoin_answer[h] == 0 && IS_DEAD(to) -> to = 0 }
#ifdef MISTAKE_ANSWER_DROPPED
     :: d_step { IS_DEAD(to) -> rejoin_answer[h] = 0; to = 0 }
#endif
     fi
  od
  } unless { HAS(dead, h) }
}
#endif

/* ---------------------------------------------------------------- an observer, and who kills */

#if OBSERVERS
proctype Observer() {
  byte s, b, c, r, bytes;
  atomic { s = server; if :: b = 0 :: b = 1 fi; c = control[s].closed };
  r = result[s].round[b];
#ifdef MISTAKE_OBSERVER_BEFORE_CLOSE
  if :: r == 0 -> goto nothing :: else fi;
#else
  if :: r == 0 || r > c -> goto nothing :: else fi;
#endif
  bytes = result[s].bytes[b];
  d_step {
#ifndef MISTAKE_OBSERVER_UNCHECKED
    if
    :: result[s].writing[b] == r ->
#endif
       assert(bytes / 16 == r);                                                                     /* (e): no mixture */
       if
       :: control[s].closed >= r -> assert(bytes == SUM(r, control[s].record[r]))                   /* (e): the closed sum */
       :: else -> observed = bytes; observed_server = s                                             /* store_closed looks at it */
       fi
#ifndef MISTAKE_OBSERVER_UNCHECKED
    :: else
    fi
#endif
  };
nothing: skip
}
#endif

#define DO_KILL(h) :: d_step { kills_left != 0 && !HAS(dead, h) -> kills_left--; dead = dead | BIT(h) }

init {
  d_step {
    for (i : 0 .. WORKERS - 1) {
      rank[i] = i; store_word(i, MEMBER); members = members | BIT(i)
    }
    i = 0; open = 1; sessions = members; beacon_list = members
  };
  atomic {
    run Server();
    for (i : 0 .. HANDLES - 1) { run Worker(i) }
#if RESTARTS
    for (i : 0 .. WORKERS - 1) { run Rejoiner(i) }
#endif
    i = 0;
#if OBSERVERS
    run Observer();
#endif
  };
  end: do
  EACH(DO_KILL)
#if RESTARTS
  :: d_step { restarts_left != 0 && !server_dead -> restarts_left--; server_dead = true }
#endif
  :: false
  od
}
