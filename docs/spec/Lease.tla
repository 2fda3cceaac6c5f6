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
LastTick == IF Has("margin") THEN L ELSE (L * L + L - M - 1) \div (L - M)
Least(a, b) == IF a < b THEN a ELSE b

(* ------------------------------- clients ------------------------------- *)

\* An attempt: "fly" may land, "head" is the newest version, "gone" landed and was replaced,
\* "dead" can never land. A record that promises less than L (21, 27) counts as one written that much earlier.
\* "spent": a live record whose lease has ended, which makes no other (2).
Attempt(kind, current, short) ==
    [kind |-> kind, age |-> short, short |-> short, fate |-> IF current THEN "fly" ELSE "dead"]

Idle == [phase |-> "idle", current |-> FALSE, sent |-> 0, tries |-> <<>>, saw |-> 0, watched |-> -1]

Acquiring == {"ready", "given", "wait", "unsure", "saw"}
Holding == {"held", "renew-wait", "renew-unsure", "renew-saw"}
Freeing == {"end", "free-wait", "free-saw"}

Over(t) == t >= LastTick
Believes(c) == client[c].phase \in Holding /\ ~Over(client[c].sent)

\* What a lease or an acquisition that has ended wrote makes no lease any more (2), whether it lands or not.
Spent(a) == IF a.kind = "live" THEN [a EXCEPT !.kind = "spent", !.age = 0, !.fate = IF @ = "gone" THEN "dead" ELSE @]
            ELSE a
Ending(s) == [s EXCEPT !.phase = "end", !.sent = 0, !.saw = 0, !.tries = [k \in DOMAIN @ |-> Spent(@[k])]]

Landed(a) == a.fate \in {"head", "gone"}
\* All of it; Reduced.tla has what can be forgotten.
Known(s) == s

Set(c, new) == client' = [client EXCEPT ![c] = Known(new)]
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
    \/ client[c].watched >= IF Has("observation") THEN L ELSE L - M

Look(c) ==
    /\ client[c].phase = "idle" /\ Free(c)
    /\ Only(c, [Idle EXCEPT !.phase = "ready", !.current = TRUE])

\* Who needs less than L of it begins later.
Watch(c, from) ==
    /\ client[c].phase = "idle" /\ client[c].watched = -1
    /\ Only(c, [client[c] EXCEPT !.watched = from])

Send(c, short) ==
    LET s == client[c] IN
    /\ s.phase \in {"ready", "given"}
    /\ Len(s.tries) < Tries
    /\ Only(c, [s EXCEPT !.phase = "wait", !.tries = Append(@, Attempt("live", s.current, short))])

\* (2, 4) Belief counts from when the attempt that landed was sent.
Adopt(c, k) ==
    LET s == client[c]
        from == IF Has("own send time") THEN k ELSE Len(s.tries)
        t == IF Has("belief from sending") THEN s.tries[from].age ELSE 0 IN
    IF Over(t)
    THEN Only(c, Ending(s))                                         \* (7) nothing is left: freed (3)
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
    \/ /\ s.phase \in {"unsure", "given", "saw"} \/ (s.phase = "ready" /\ s.tries /= <<>>)
       /\ Only(c, [s EXCEPT !.phase = "saw", !.saw = Shown(s)])
    \/ s.phase = "renew-unsure" /\ Only(c, [s EXCEPT !.phase = "renew-saw", !.saw = Shown(s)])
    \/ s.phase = "free-wait" /\ Only(c, [s EXCEPT !.phase = "free-saw", !.saw = Shown(s)])

Settle(c) ==
    LET s == client[c] IN
    /\ s.phase = "saw"
    /\ CASE s.saw > 0 /\ s.tries[s.saw].kind = "spent" ->
                Only(c, [Idle EXCEPT !.phase = "given", !.current = s.tries[s.saw].fate = "head"])
         [] s.saw > 0 -> Adopt(c, s.saw)
         [] s.saw = 0 -> Only(c, IF Len(s.tries) = Tries THEN Ending(s)
                               ELSE [s EXCEPT !.phase = IF s.tries = <<>> THEN "given" ELSE "ready", !.saw = 0])
         [] s.saw < 0 -> Only(c, Idle)

\* (7) By its own clock nothing is left of it: a new attempt over that version, under a new token.
TooLate(c) ==
    LET s == client[c]
        k == IF s.phase = "saw" THEN s.saw ELSE Len(s.tries) IN
    /\ s.phase \in {"wait", "saw"} /\ k > 0 /\ Landed(s.tries[k]) /\ s.tries[k].kind = "live"
    /\ Only(c, [Idle EXCEPT !.phase = "given", !.current = s.tries[k].fate = "head"])

\* A timeout or a cancellation, at any moment.
GiveUp(c) ==
    LET s == client[c]
        flies == \E k \in 1..Len(s.tries) : s.tries[k].fate = "fly" IN
    /\ s.phase \in Acquiring
    /\ IF s.tries = <<>> /\ s.phase /= "given" THEN Only(c, Idle)
       ELSE IF Has("reaper") THEN Only(c, Ending(s))
       ELSE /\ Set(c, Idle)
            /\ stray' = IF flies THEN [stray EXCEPT !.zombies = TRUE] ELSE stray
            /\ UNCHANGED <<head, budget>>

(* -------------------------------- hold --------------------------------- *)

\* (5, 6) One write at a time, and none past the deadline.
Renew(c, short) ==
    LET s == client[c] IN
    /\ s.phase = "held"
    /\ Has("deadline") => ~Over(s.sent)
    /\ Only(c, [s EXCEPT !.phase = "renew-wait", !.tries = <<Attempt("live", s.current, short)>>])

\* Again over the same base; the read may have failed as well.
RenewAgain(c, short) ==
    LET s == client[c] IN
    /\ s.phase = "renew-unsure" \/ (s.phase = "renew-saw" /\ s.saw = 0)
    /\ Len(s.tries) < Tries
    /\ Has("deadline") => ~Over(s.sent)
    /\ Only(c, [s EXCEPT !.phase = "renew-wait", !.tries = Append(@, Attempt("live", s.current, short))])

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
            [] s.saw < 0 /\ ~Has("gone is lost") -> Only(c, [s EXCEPT !.phase = "held", !.saw = 0, !.tries = <<>>])
            [] s.saw < 0 \/ Len(s.tries) = Tries -> Only(c, Ending(s))
            [] OTHER -> Only(c, [s EXCEPT !.phase = "renew-unsure", !.saw = 0])

\* A release, a loss, the deadline on a fast clock, at any moment. (3, 6) Belief ends before the lock is freed.
End(c) == client[c].phase \in Holding /\ Has("belief ends first") /\ Only(c, Ending(client[c]))

\* Without that rule the release is sent while its sender still believes.
EndLate(c) ==
    LET s == client[c] IN
    /\ ~Has("belief ends first")
    /\ \/ /\ s.phase = "held" /\ s.tries = <<>>
          /\ Only(c, [s EXCEPT !.tries = <<Attempt("free", s.current, 0)>>])
       \/ /\ s.phase = "held" /\ s.tries /= <<>> /\ Landed(s.tries[1])
          /\ Only(c, Idle)

(* -------------------------------- free --------------------------------- *)

\* (6) The write in flight is settled first: what is freed is what it made.
Await(c) ==
    LET s == client[c] IN
    /\ s.phase = "end" /\ \E k \in 1..Len(s.tries) : s.tries[k].fate = "head"
    /\ Only(c, [s EXCEPT !.tries = <<>>, !.current = TRUE])

\* (3) A free record over the base: if it lands, no attempt over that base can. Without an answer it is sent again.
Release(c) ==
    LET s == client[c] IN
    /\ s.phase = "end" \/ (s.phase = "free-wait" /\ Len(s.tries) <= Tries)
    /\ Only(c, [s EXCEPT !.phase = "free-wait", !.tries = Append(@, Attempt("free", s.current, 0))])

\* (21) Or a live one that is kept: nobody believes in it or renews it.
Keep(c, short) ==
    LET s == client[c] IN
    /\ s.phase \in {"end", "free-wait"} /\ budget.keeps > 0
    /\ Set(c, [s EXCEPT !.phase = "free-wait", !.tries = Append(@, Attempt("kept", s.current, short))])
    /\ budget' = [budget EXCEPT !.keeps = @ - 1]
    /\ UNCHANGED <<head, stray>>

Freed(c) ==
    LET s == client[c]
        last == s.tries[Len(s.tries)]
        frees == s.saw > 0 /\ s.tries[s.saw].kind \in {"free", "kept"} IN
    \/ s.phase = "free-wait" /\ Landed(last) /\ Only(c, Idle)
    \/ /\ s.phase = "free-saw"
       /\ CASE frees \/ s.saw < 0 -> Only(c, Idle)
            [] s.saw = 0 -> Only(c, [s EXCEPT !.phase = "free-wait", !.saw = 0])       \* it may still land: wait, read again
            [] OTHER -> Only(c, [s EXCEPT !.phase = "end", !.saw = 0, !.tries = <<>>,
                                         !.current = s.tries[s.saw].fate = "head"])

\* (15) Release and acquisition in one write, between two acquisitions of one process: the receiver writes over the
\* record of the giver, whose belief has ended, and answers for what is still in flight.
HandOver(c, d) ==
    LET s == client[c] IN
    /\ s.phase = (IF Has("giver ends") THEN "end" ELSE "held") /\ client[d].phase = "idle" /\ c /= d
    /\ client' = [client EXCEPT ![c] = IF Has("giver ends") THEN Idle ELSE s,
                                ![d] = Known([Idle EXCEPT !.phase = "given", !.current = s.current,
                                                          !.tries = s.tries])]
    /\ UNCHANGED <<head, stray, budget>>

(* ----------------------------- the outside ----------------------------- *)

\* Another version is the newest: what was known is old, and what was in flight can never land.
Replaced(a) == CASE a.fate = "fly" -> [a EXCEPT !.fate = "dead", !.age = 0]
                 [] a.fate = "head" -> [a EXCEPT !.fate = IF a.kind = "spent" THEN "dead" ELSE "gone"]
                 [] OTHER -> a
Outdated(s) == [s EXCEPT !.current = FALSE, !.watched = -1,
                         !.tries = [k \in DOMAIN @ |-> Replaced(@[k])]]

NoStray == [dead |-> FALSE, frees |-> FALSE, zombies |-> FALSE]

Land(c, k) ==
    /\ k \in 1..Len(client[c].tries)
    /\ client[c].tries[k].fate = "fly"
    /\ client' = [d \in Clients |->
          Known(IF d = c THEN [Outdated(client[d]) EXCEPT !.tries[k] = [client[d].tries[k] EXCEPT !.fate = "head"]]
                ELSE Outdated(client[d]))]
    /\ LET a == client[c].tries[k] IN
       head' = [kind |-> IF a.kind = "spent" THEN "live" ELSE a.kind, age |-> a.short]
    /\ stray' = NoStray
    /\ UNCHANGED budget

LandStray(kind, short) ==
    /\ IF kind = "free" THEN stray.frees ELSE stray.dead \/ stray.zombies
    /\ client' = [d \in Clients |-> Known(Outdated(client[d]))]
    /\ head' = [kind |-> kind, age |-> short]
    /\ stray' = NoStray
    /\ UNCHANGED budget

\* kill -9: its writes in flight live on.
Crash(c) ==
    LET flies(free) == \E k \in 1..Len(client[c].tries) :
            client[c].tries[k].fate = "fly" /\ (client[c].tries[k].kind = "free") = free IN
    /\ budget.crashes > 0
    /\ client[c] /= Idle
    /\ Set(c, Idle)
    /\ stray' = [stray EXCEPT !.dead = @ \/ flies(FALSE), !.frees = @ \/ flies(TRUE)]
    /\ budget' = [budget EXCEPT !.crashes = @ - 1]
    /\ UNCHANGED head

\* The age of an attempt matters as long as it may make or prolong a lease.
Aged(a, d) == IF a.kind = "live" /\ a.fate /= "dead" THEN [a EXCEPT !.age = Least(@ + d, LastTick)] ELSE a

Pass(d) ==
    /\ head' = [head EXCEPT !.age = IF head.kind \in {"live", "kept"} THEN Least(@ + d, L + 1) ELSE @]
    /\ client' = [c \in Clients |->
          Known([client[c] EXCEPT !.sent = IF client[c].phase \in Holding THEN Least(@ + d, LastTick) ELSE 0,
                                  !.watched = IF @ >= 0 THEN Least(@ + d, L) ELSE @,
                                  !.tries = [k \in DOMAIN @ |-> Aged(@[k], d)]])]
    /\ UNCHANGED <<stray, budget>>

Tick == Pass(1)

Step(c) ==
    \/ Look(c) \/ (c \in Dateless /\ ~Free(c) /\ Watch(c, 0))
    \/ Send(c, 0) \/ Answered(c) \/ NoAnswer(c) \/ Read(c) \/ Settle(c) \/ TooLate(c) \/ GiveUp(c)
    \/ Renew(c, 0) \/ RenewAgain(c, 0) \/ Renewed(c) \/ End(c) \/ EndLate(c)
    \/ Await(c) \/ Release(c) \/ Keep(c, 0) \/ Freed(c)
    \/ \E d \in Clients : HandOver(c, d)

Next ==
    \/ Tick
    \/ LandStray("live", 0) \/ LandStray("free", 0)
    \/ \E c \in Clients : Step(c) \/ Crash(c) \/ \E k \in 1..(Tries + 1) : Land(c, k)

Init ==
    /\ head = [kind |-> "none", age |-> 0]
    /\ client = [c \in Clients |-> Idle]
    /\ stray = NoStray
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
    \/ Look(c) \/ Send(c, 0) \/ Answered(c) \/ Settle(c) \/ Renew(c, 0) \/ Renewed(c) \/ Freed(c)
    \/ s.phase \notin {"ready", "given", "saw"} /\ Read(c)
    \/ s.phase = "end" /\ (Await(c) \/ Release(c))
    \/ s.phase = "renew-unsure" /\ RenewAgain(c, 0)
    \/ Over(s.sent) /\ End(c)
    \/ s.tries /= <<>> /\ s.tries[Len(s.tries)].fate = "dead" /\ NoAnswer(c)

Lands == LandStray("live", 0) \/ LandStray("free", 0) \/ \E c \in Clients : \E k \in 1..(Tries + 1) : Land(c, k)

CalmSpec ==
    /\ Init
    /\ [][CalmTick \/ Lands \/ \E c \in Clients : CalmStep(c) \/ Crash(c)]_vars
    /\ WF_vars(CalmTick) /\ WF_vars(Lands) /\ \A c \in Clients : WF_vars(CalmStep(c))

Owns(c) == client[c].phase \in Holding /\
    (client[c].current \/ \E k \in 1..Len(client[c].tries) : client[c].tries[k].fate = "head")

\* The lock of a holder that died is taken.
Taken == (head.kind = "live" /\ \A c \in Clients : ~Owns(c)) ~> \E c \in Clients : Believes(c)

\* Nobody goes on renewing what it does not have.
LetsGo == \A c \in Clients : (client[c].phase \in Holding /\ ~Owns(c)) ~> client[c].phase \notin Holding

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
