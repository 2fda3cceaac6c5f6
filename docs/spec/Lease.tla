------------------------------ MODULE Lease ------------------------------
(***************************************************************************)
(* The lock: one object, changed only by conditional writes.               *)
(*                                                                         *)
(* Numbers in parentheses are rules of the protocol, docs/concepts/        *)
(* protocol.md. Times are ages ("ticks since"), so the model needs no      *)
(* clock and is finite without a horizon. Reasons for the abstractions:    *)
(*                                                                         *)
(* - A holder believes for L - M by its own clock, which is slow by less   *)
(*   than M / L: at the true age t it may still believe if                 *)
(*   t * (L - M) < (L - M) * L. It may stop earlier at any moment.         *)
(* - A Date is off by at most S, and rounded down by at most R; so is the  *)
(*   time of the last write. Only the worst case matters to safety: the    *)
(*   record looks older by S + R than it is.                               *)
(* - Versions are compared for equality only. So the state has no version: *)
(*   it says whether the one that a client knows is still the newest, and  *)
(*   what became of each attempt.                                          *)
(* - A write whose base is gone can never land (2): the network holds only *)
(*   writes over the newest version.                                       *)
(* - A lost request never lands; a lost answer is never taken.             *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, Sequences, TLC

CONSTANTS
    Clients,    \* their acquisitions, one after another
    Dateless,   \* the clients that never see a usable Date, and observe (8)
    L,          \* validity, in ticks
    M,          \* safety margin
    S,          \* max_clock_skew
    R,          \* resolution of a Date
    Tries,      \* attempts over one base
    Crashes,    \* how many clients may die
    Keeps,      \* how many leases may be kept by at_least (21)
    Without     \* the rules that this configuration leaves out; {} for the protocol

ASSUME Dateless \subseteq Clients /\ M < L

VARIABLES
    head,       \* the object: its kind, and the age of its last write
    client,     \* what each client knows and does
    stray,      \* writes in flight that nobody looks after: of the dead, and zombies
    budget      \* crashes and kept leases that are left

vars == <<head, client, stray, budget>>

Has(rule) == rule \notin Without

\* The first age at which a lease is over even for the slowest clock; later ages need not be told apart.
LastTick == CHOOSE t \in 0..(2 * L) :
    LET over(u) == u * (L - M) >= (IF Has("margin") THEN L - M ELSE L) * L IN over(t) /\ (t = 0 \/ ~over(t - 1))
Older(age) == IF age < LastTick THEN age + 1 ELSE age

(* ------------------------------- clients ------------------------------- *)

\* An attempt: "fly" may land, "head" is the newest version, "gone" landed and was replaced,
\* "dead" can never land.
Attempt(kind, current) == [kind |-> kind, age |-> 0, fate |-> IF current THEN "fly" ELSE "dead"]

Idle == [phase |-> "idle", current |-> FALSE, sent |-> 0, tries |-> <<>>, saw |-> 0, watched |-> -1]

Acquiring == {"ready", "wait", "unsure", "saw"}
Holding == {"held", "renew-wait", "renew-unsure", "renew-saw"}
Freeing == {"end", "free-wait", "free-saw"}

Over(t) == t >= LastTick
Believes(c) == client[c].phase \in Holding /\ ~Over(client[c].sent)

Landed(a) == a.fate \in {"head", "gone"}
Set(c, new) == client' = [client EXCEPT ![c] = new]
Only(c, new) == Set(c, new) /\ UNCHANGED <<head, stray, budget>>

\* What a read shows: the number of the own attempt that is the newest version, 0 for the base, -1 for another.
Shown(s) ==
    IF \E k \in 1..Len(s.tries) : s.tries[k].fate = "head"
    THEN CHOOSE k \in 1..Len(s.tries) : s.tries[k].fate = "head"
    ELSE IF s.current THEN 0 ELSE -1

(* ------------------------------- acquire ------------------------------- *)

Slack == (IF Has("skew") THEN S ELSE 0) + (IF Has("resolution") THEN R ELSE 0)

\* (8) By the Date of the answer that shows the record, or by a whole observation.
Free(c) ==
    \/ head.kind \in {"none", "free"}
    \/ /\ c \notin Dateless /\ Has("takeover")
       /\ head.age + S + R > L + Slack
    \/ /\ c \in Dateless
       /\ client[c].watched >= IF Has("observation") THEN L ELSE L - M

Look(c) ==
    LET s == client[c] IN
    /\ s.phase = "idle"
    /\ IF Free(c)
       THEN Only(c, [Idle EXCEPT !.phase = "ready", !.current = TRUE])
       ELSE /\ c \in Dateless /\ s.watched = -1
            /\ Only(c, [s EXCEPT !.watched = 0])

Send(c) ==
    LET s == client[c] IN
    /\ s.phase = "ready"
    /\ Len(s.tries) < Tries
    /\ Only(c, [s EXCEPT !.phase = "wait", !.tries = Append(@, Attempt("live", s.current))])

\* (2, 4) Belief counts from when the attempt that landed was sent.
Adopt(c, k) ==
    LET s == client[c]
        from == IF Has("own send time") THEN k ELSE Len(s.tries)
        t == IF Has("belief from sending") THEN s.tries[from].age ELSE 0 IN
    IF Over(t)
    THEN Only(c, [s EXCEPT !.phase = "end"])                        \* (7) nothing is left: freed (3)
    ELSE Only(c, [Idle EXCEPT !.phase = "held", !.sent = t, !.current = s.tries[k].fate = "head"])

Answered(c) ==
    LET s == client[c] IN
    /\ s.phase = "wait"
    /\ Landed(s.tries[Len(s.tries)])
    /\ Adopt(c, Len(s.tries))

NoAnswer(c) ==
    LET s == client[c] IN
    \/ /\ s.phase = "wait"
       /\ IF Has("read back") THEN Only(c, [s EXCEPT !.phase = "unsure"])
          ELSE Only(c, [Idle EXCEPT !.phase = "held", !.sent = s.tries[Len(s.tries)].age])
    \/ s.phase = "renew-wait" /\ Only(c, [s EXCEPT !.phase = "renew-unsure"])

Read(c) ==
    LET s == client[c] IN
    \/ s.phase = "unsure" /\ Only(c, [s EXCEPT !.phase = "saw", !.saw = Shown(s)])
    \/ s.phase = "renew-unsure" /\ Only(c, [s EXCEPT !.phase = "renew-saw", !.saw = Shown(s)])
    \/ s.phase = "free-wait" /\ Only(c, [s EXCEPT !.phase = "free-saw", !.saw = Shown(s)])

Settle(c) ==
    LET s == client[c] IN
    /\ s.phase = "saw"
    /\ CASE s.saw > 0 -> Adopt(c, s.saw)
         [] s.saw = 0 -> Only(c, [s EXCEPT !.phase = IF Len(s.tries) < Tries THEN "ready" ELSE "end"])
         [] s.saw < 0 -> Only(c, Idle)

\* A timeout or a cancellation, at any moment.
GiveUp(c) ==
    LET s == client[c]
        flies == \E k \in 1..Len(s.tries) : s.tries[k].fate = "fly" IN
    /\ s.phase \in Acquiring
    /\ IF s.tries = <<>> THEN Only(c, Idle)
       ELSE IF Has("reaper") THEN Only(c, [s EXCEPT !.phase = "end"])
       ELSE /\ Set(c, Idle)
            /\ stray' = IF flies THEN [stray EXCEPT !.zombies = TRUE] ELSE stray
            /\ UNCHANGED <<head, budget>>

(* -------------------------------- hold --------------------------------- *)

\* (5, 6) One write at a time, and none past the deadline.
Renew(c) ==
    LET s == client[c] IN
    /\ s.phase = "held"
    /\ Has("deadline") => ~Over(s.sent)
    /\ Only(c, [s EXCEPT !.phase = "renew-wait", !.tries = <<Attempt("live", s.current)>>])

Extend(c, k) ==
    LET s == client[c] IN
    /\ Has("deadline") => ~Over(s.sent)
    /\ Only(c, [Idle EXCEPT !.phase = "held", !.sent = s.tries[k].age, !.current = s.tries[k].fate = "head"])

Renewed(c) ==
    LET s == client[c] IN
    \/ /\ s.phase = "renew-wait" /\ Landed(s.tries[Len(s.tries)])
       /\ Extend(c, Len(s.tries))
    \/ /\ s.phase = "renew-saw"
       /\ CASE s.saw > 0 -> Extend(c, s.saw)
            [] s.saw = 0 /\ Len(s.tries) < Tries ->
                 /\ Has("deadline") => ~Over(s.sent)
                 /\ Only(c, [s EXCEPT !.phase = "renew-wait", !.tries = Append(@, Attempt("live", s.current))])
            [] OTHER -> Only(c, [s EXCEPT !.phase = "end"])

\* A release, a loss, the deadline on a fast clock, at any moment. (3, 6) Belief ends before the lock is freed.
End(c) == client[c].phase \in Holding /\ Has("belief ends first") /\ Only(c, [client[c] EXCEPT !.phase = "end"])

\* Without that rule the release is sent while its sender still believes.
EndLate(c) ==
    LET s == client[c] IN
    /\ ~Has("belief ends first")
    /\ \/ /\ s.phase = "held" /\ s.tries = <<>>
          /\ Only(c, [s EXCEPT !.tries = <<Attempt("free", s.current)>>])
       \/ /\ s.phase = "held" /\ s.tries /= <<>> /\ Landed(s.tries[1])
          /\ Only(c, Idle)

(* -------------------------------- free --------------------------------- *)

\* (3) A free record over the base: if it lands, no attempt over that base can. (21) Or one that is kept.
Release(c) ==
    LET s == client[c] IN
    /\ s.phase = "end"
    /\ \/ Only(c, [s EXCEPT !.phase = "free-wait", !.tries = Append(@, Attempt("free", s.current))])
       \/ /\ s.tries = <<>> /\ budget.keeps > 0
          /\ Set(c, [s EXCEPT !.phase = "free-wait", !.tries = <<Attempt("kept", s.current)>>])
          /\ budget' = [budget EXCEPT !.keeps = @ - 1]
          /\ UNCHANGED <<head, stray>>

Freed(c) ==
    LET s == client[c]
        last == s.tries[Len(s.tries)] IN
    \/ s.phase = "free-wait" /\ Landed(last) /\ Only(c, Idle)
    \/ /\ s.phase = "free-saw"
       /\ CASE s.saw = Len(s.tries) \/ s.saw < 0 -> Only(c, Idle)
            [] s.saw = 0 -> Only(c, [s EXCEPT !.phase = "free-wait"])       \* it may still land: wait, read again
            [] OTHER -> Only(c, [s EXCEPT !.phase = "end", !.tries = <<>>, !.current = s.tries[s.saw].fate = "head"])

(* (15) Release and acquisition in one write, between two acquisitions of one process. *)
HandOver(c, d) ==
    LET s == client[c] IN
    /\ s.phase = "held" /\ ~Over(s.sent) /\ client[d].phase = "idle" /\ c /= d
    /\ client' = [client EXCEPT ![c] = IF Has("giver ends") THEN Idle ELSE s,
                                ![d] = [Idle EXCEPT !.phase = "wait", !.current = s.current,
                                                    !.tries = <<Attempt("live", s.current)>>]]
    /\ UNCHANGED <<head, stray, budget>>

(* ----------------------------- the outside ----------------------------- *)

\* Another version is the newest: what was known is old, and what was in flight can never land.
Replaced(a) == CASE a.fate = "fly" -> [a EXCEPT !.fate = "dead", !.age = 0]
                 [] a.fate = "head" -> [a EXCEPT !.fate = "gone"]
                 [] OTHER -> a
Outdated(s) == [s EXCEPT !.current = FALSE, !.watched = -1,
                         !.tries = [k \in DOMAIN @ |-> Replaced(@[k])]]

Land(c, k) ==
    /\ k \in 1..Len(client[c].tries)
    /\ client[c].tries[k].fate = "fly"
    /\ client' = [d \in Clients |-> IF d = c THEN [Outdated(client[d]) EXCEPT !.tries[k].fate = "head"]
                                    ELSE Outdated(client[d])]
    /\ head' = [kind |-> client[c].tries[k].kind, age |-> 0]
    /\ stray' = [dead |-> FALSE, zombies |-> FALSE]
    /\ UNCHANGED budget

LandStray ==
    /\ stray.dead \/ stray.zombies
    /\ client' = [d \in Clients |-> Outdated(client[d])]
    /\ head' = [kind |-> "live", age |-> 0]
    /\ stray' = [dead |-> FALSE, zombies |-> FALSE]
    /\ UNCHANGED budget

\* kill -9: its writes in flight live on.
Crash(c) ==
    /\ budget.crashes > 0
    /\ client[c] /= Idle
    /\ Set(c, Idle)
    /\ stray' = [stray EXCEPT !.dead = @ \/ \E k \in 1..Len(client[c].tries) :
                     client[c].tries[k].fate = "fly" /\ client[c].tries[k].kind = "live"]
    /\ budget' = [budget EXCEPT !.crashes = @ - 1]
    /\ UNCHANGED head

\* The age of an attempt matters as long as it may make or prolong a lease.
Aged(a) == IF a.kind = "live" /\ a.fate /= "dead" THEN [a EXCEPT !.age = Older(@)] ELSE a

Tick ==
    /\ head' = [head EXCEPT !.age = IF head.kind \in {"live", "kept"} /\ @ <= L THEN @ + 1 ELSE @]
    /\ client' = [c \in Clients |->
          [client[c] EXCEPT !.sent = IF client[c].phase \in Holding THEN Older(@) ELSE 0,
                            !.watched = IF @ >= 0 /\ @ < L THEN @ + 1 ELSE @,
                            !.tries = [k \in DOMAIN @ |-> Aged(@[k])]]]
    /\ UNCHANGED <<stray, budget>>

Step(c) ==
    \/ Look(c) \/ Send(c) \/ Answered(c) \/ NoAnswer(c) \/ Read(c) \/ Settle(c) \/ GiveUp(c)
    \/ Renew(c) \/ Renewed(c) \/ End(c) \/ EndLate(c) \/ Release(c) \/ Freed(c)
    \/ \E d \in Clients : HandOver(c, d)

Next ==
    \/ Tick
    \/ LandStray
    \/ \E c \in Clients : Step(c) \/ Crash(c) \/ \E k \in 1..(Tries + 1) : Land(c, k)

Init ==
    /\ head = [kind |-> "none", age |-> 0]
    /\ client = [c \in Clients |-> Idle]
    /\ stray = [dead |-> FALSE, zombies |-> FALSE]
    /\ budget = [crashes |-> Crashes, keeps |-> Keeps]

Spec == Init /\ [][Next]_vars

(* ------------------------------ properties ----------------------------- *)

OneBeliever == Cardinality({c \in Clients : Believes(c)}) <= 1

\* Who believes has the newest version, or one of its own attempts is it.
Newest == \A c \in Clients : Believes(c) =>
    client[c].current \/ \E k \in 1..Len(client[c].tries) : client[c].tries[k].fate = "head"

NoZombie == ~stray.zombies

\* A lease that was over is not believed again: that takes another acquisition.
LossIsFinal == [][\A c \in Clients :
    (client[c].phase \in Holding /\ Over(client[c].sent)) =>
        (client'[c].phase \in Holding => Over(client'[c].sent))]_vars

(* ------------------------------- liveness ------------------------------ *)

\* From now on nobody gives up, and answers come within a tick; a client may still die.
CalmTick == Tick /\ \A c \in Clients : client[c].phase \in {"idle", "held"}
CalmStep(c) ==
    LET s == client[c] IN
    \/ Look(c) \/ Send(c) \/ Answered(c) \/ Read(c) \/ Settle(c) \/ Renew(c) \/ Renewed(c) \/ Release(c) \/ Freed(c)
    \/ Over(s.sent) /\ End(c)
    \/ s.tries /= <<>> /\ s.tries[Len(s.tries)].fate = "dead" /\ NoAnswer(c)

Lands == LandStray \/ \E c \in Clients : \E k \in 1..(Tries + 1) : Land(c, k)

CalmSpec ==
    /\ Init
    /\ [][CalmTick \/ Lands \/ \E c \in Clients : CalmStep(c) \/ Crash(c)]_vars
    /\ WF_vars(CalmTick) /\ WF_vars(Lands) /\ \A c \in Clients : WF_vars(CalmStep(c))

Owns(c) == client[c].phase \in Holding /\
    (client[c].current \/ \E k \in 1..Len(client[c].tries) : client[c].tries[k].fate = "head")

\* The lock of a holder that died is taken.
Taken == (head.kind = "live" /\ \A c \in Clients : ~Owns(c)) ~> \E c \in Clients : Believes(c)

\* Nobody frees for ever.
Ended == \A c \in Clients : client[c].phase \in Freeing ~> client[c].phase = "idle"

(* Each of these must be violated, or the model proves nothing. *)
NeverTakenOver == ~\E c, d \in Clients : c /= d /\ Believes(d) /\ client[c].phase \in Holding
NeverTwoInFlight == ~\E c \in Clients : Cardinality({k \in 1..Len(client[c].tries) : client[c].tries[k].fate = "fly"}) > 1
NeverReaped == ~\E c \in Clients : client[c].phase = "free-wait" /\ Len(client[c].tries) > 1
    /\ client[c].tries[Len(client[c].tries)].fate = "head" /\ client[c].tries[1].fate = "dead"
NeverAdopted == ~\E c \in Clients : client[c].phase = "saw" /\ client[c].saw = 1 /\ Len(client[c].tries) = 2
NeverOutlived == ~\E c, d \in Clients : c /= d /\ Believes(d) /\ head.kind = "live"
    /\ client[c].phase \in Freeing /\ client[c].tries /= <<>>

\* Only if all clients are alike: no Dateless, or all.
Symmetry == Permutations(Clients)
=============================================================================
