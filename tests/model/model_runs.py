"""The runs: bounds of the searches, and the planted mistakes with what must find each."""
import dataclasses

ASSERTION, STUCK = "assertion violated", "invalid end state"
DEPTH = 20_000


@dataclasses.dataclass
class Run:
    name: str
    model: str
    defines: list
    tells: str              # what is searched, or what the mistake does
    quick: bool = True
    progress: bool = False  # any cycle is an error: together with the search for stuck states it says that every run ends
    mistake: bool = False
    shows: str = ""         # part of pan's message
    sampled: bool = False
    limit_s: float = 0
    hash_bits: int = 0
    seed: int = 0           # 0: the order of the text

    @property
    def compile_options(self):
        options = ["-DNOFAIR"]
        options += ["-DNP"] if self.progress else ["-DSAFETY"]
        if self.sampled:
            return options + ["-DBITSTATE"] + (["-DT_RAND", "-DP_RAND"] if self.seed else [])
        return options + ["-DCOLLAPSE"]

    @property
    def options(self):
        options = [f"-m{DEPTH}"] + (["-l"] if self.progress else [])
        if self.sampled:
            options += [f"-w{self.hash_bits}", "-k3"] + ([f"-RS{self.seed}"] if self.seed else [])
        return options

    def bounds(self):
        order = f"random order, seed {self.seed}" if self.seed else "order of the text"
        return f"{' '.join(self.defines)}; depth {DEPTH}, 2^{self.hash_bits} bits, 3 hash functions, {self.limit_s:g} s, {order}"


def rounds(*bounds):
    return ["rounds.pml", list(bounds)]


def sleep(*bounds):
    return ["sleep.pml", list(bounds)]


# Quick ones are also the bounds of the planted mistakes, so that what finds a mistake is known to be silent without it.
EXHAUSTED = [
    Run("rounds", *rounds("KILLS=1", "EVICTIONS=1", "PAUSES=1"), "a kill, a wrong eviction, a pause"),
    Run("rounds-observer", *rounds("EVICTIONS=1", "OBSERVERS=1"), "a wrong eviction, an observer"),
    Run("rounds-joiner", *rounds("JOINERS=1", "EVICTIONS=1"), "a wrong eviction, a joiner that takes the rank"),
    Run("restart-kill", *rounds("RESTARTS=1", "KILLS=1"), "a restart, a kill of a worker"),
    Run("restart-timeout", *rounds("RESTARTS=1", "TIMEOUTS=1"), "a restart that may not wait for the living"),
    Run("restart-eviction", *rounds("RESTARTS=1", "EVICTIONS=1", "ONE_ORDER=1"), "a restart, a wrong eviction; buckets in one order"),
    Run("restart-twice", *rounds("RESTARTS=2"), "two restarts, the second at any moment of the first"),
    Run("rounds-end", *rounds("KILLS=1", "EVICTIONS=1"), "a kill, a wrong eviction; no run goes on for ever", progress=True),
    Run("restart-end", *rounds("RESTARTS=1"), "a restart; no run goes on for ever", progress=True),
    Run("sleep", *sleep("THREADS=3"), "three threads of one handle"),
    Run("sleep-restart", *sleep("RESTARTS=1"), "two threads of one handle, a restart"),
    Run("sleep-end", *sleep("RESTARTS=1"), "the same; no run goes on for ever", progress=True),
]

EXHAUSTED += [dataclasses.replace(run, quick=False) for run in (
    Run("rounds-3", *rounds("ROUNDS=3", "KILLS=1", "EVICTIONS=1", "PAUSES=1"), "three rounds"),
    Run("restart-eviction-orders", *rounds("RESTARTS=1", "EVICTIONS=1"), "a restart, a wrong eviction; buckets in any order"),
    Run("restart-pause", *rounds("RESTARTS=1", "PAUSES=1"), "a restart, a pause"),
    Run("restart-twice-timeout", *rounds("RESTARTS=2", "TIMEOUTS=1"), "two restarts, one of which may not wait"),
    Run("sleep-restart-3", *sleep("RESTARTS=1", "THREADS=3"), "three threads, a restart"),
    Run("sleep-restart-twice", *sleep("RESTARTS=2"), "two threads, two restarts"),
)]

QUICK = {run.name: run for run in EXHAUSTED if run.quick}


def mistake(name, bounds, shows, tells):
    base = QUICK[bounds]
    return Run(name, base.model, base.defines + [f"MISTAKE_{name}"], tells, mistake=True, shows=shows)


USE = "result[shown[h]].bytes[0]==((r*16)"   # use_result: the sum of the record, with the own value in it
SLOT = "value["                              # sum: the value of the open round
ONE_SET = "result[server].bytes[0]=="        # store_closed: one set in all buckets
NEEDLESS = "(evicted_ever|missed_timeout)"   # refuse: a restart alone costs nobody his membership

MISTAKES = [
    mistake("NO_REDO", "rounds", ONE_SET, "a bucket is not summed again when its set has changed"),
    mistake("WRITE_BEFORE_CLOSE", "rounds", SLOT, "a slot is written again once its bucket is reduced"),
    mistake("USE_BEFORE_CLOSE", "rounds", "control[mapped[h]].record[r]", "results are used bucket by bucket before the close"),
    mistake("EVICTION_AFTER_CLOSE", "rounds", USE, "the member word is stored after the close without the worker"),
    mistake("NO_WITHDRAWAL", "rounds", SLOT, "a pause leaves the commit words of the open round"),
    mistake("NO_GENERATION", "rounds-joiner", USE, "a member is known by its rank alone"),
    mistake("OBSERVER_BEFORE_CLOSE", "rounds-observer", "observed", "an observer takes a bucket before the close"),
    mistake("OBSERVER_UNCHECKED", "rounds-observer", "(bytes/16)==r", "an observer does not look at 'writing' after it has copied"),
    mistake("OPEN_AT_FIRST", "restart-kill", ASSERTION, "the next round opens at the first hand-over"),
    mistake("NO_RELOAD", "restart-kill", USE, "closed_round is not loaded again from the old control"),
    mistake("FLOOR_OF_BEACON_ONLY", "restart-kill", ASSERTION, "a hand-over does not raise the floor"),
    mistake("FLOOR_AFTER_ANSWER", "restart-kill", ASSERTION, "the new control says the floor after the answer"),
    mistake("RESULT_AT_RE_ATTACH", "restart-kill", USE, "the new result is mapped at the re-attach"),
    mistake("STATE_UNCHECKED", "restart-eviction", ASSERTION, "the handed-over member word is not looked at, and the word comes before the beacon"),
    mistake("LATE_HANDOVER", "restart-timeout", ASSERTION, "a hand-over below the floor is accepted"),
    mistake("ACCEPT_AFTER_RECOVERY", "restart-timeout", ASSERTION, "a hand-over is accepted after the recovery has ended"),
    mistake("BEACON_LATE", "restart-twice", NEEDLESS, "the list is not in the new beacon while the recovery goes on"),
    mistake("ANSWER_DROPPED", "restart-twice", NEEDLESS, "an answer that the dead server had sent is not read"),
    mistake("PENDING_RESULT_LOST", "restart-twice", USE, "a result that no wait has mapped yet is skipped at the next re-attach"),
    mistake("ONE_WAITING_FLAG", "sleep", STUCK, "two threads share one waiting flag"),
    mistake("NO_SECOND_SCAN", "sleep", STUCK, "no scan after idle is stored"),
    mistake("SCAN_BEFORE_IDLE", "sleep", STUCK, "the scan comes before the store of idle"),
    mistake("RING_BEFORE_COMMIT", "sleep", STUCK, "idle is loaded before the commit word is visible: release instead of seq_cst"),
    mistake("WAKE_BEFORE_CLOSE", "sleep", STUCK, "FUTEX_WAKE comes before closed_round"),
    mistake("SLEEPERS_BEFORE_CLOSE", "sleep", STUCK, "the server looks at waiting before it stores closed_round"),
    mistake("NO_SEQUENCE", "sleep", STUCK, "FUTEX_WAIT does not compare wake_seq"),
    mistake("NO_RING_AFTER_SWITCH", "sleep-restart", STUCK, "a re-attach does not ring"),
    mistake("RING_BEFORE_SWITCH", "sleep-restart", STUCK, "a re-attach rings before the new control is mapped"),
    mistake("SAME_SEQUENCE", "sleep-restart", STUCK, "wake_seq of the new control starts where the old one did"),
]

_SAMPLE = rounds("WORKERS=3", "JOINERS=1", "RESTARTS=2", "KILLS=1", "EVICTIONS=1", "PAUSES=1", "TIMEOUTS=1", "OBSERVERS=1")
SAMPLED = [
    Run(f"sample-{seed or 'text'}", *_SAMPLE, "three workers, a joiner, two restarts, and one of everything", quick=False,
        sampled=True, limit_s=120, hash_bits=33, seed=seed) for seed in (0, 1)
]

ALL = EXHAUSTED + MISTAKES + SAMPLED
