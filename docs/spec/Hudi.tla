------------------------------- MODULE Hudi -------------------------------
(***************************************************************************)
(* The lock next to a writer of Hudi (4, 8). That one publishes the time   *)
(* until which it holds the lock, by a wall clock that is wrong, and takes *)
(* over by what others have published and that clock.                      *)
(*                                                                         *)
(* The worst of each error is taken: a Date that shows a record is ahead   *)
(* by S, the time of its last write is behind by R. Lost and late writes   *)
(* are in Lease.tla; here a write lands at once.                           *)
(***************************************************************************)
EXTENDS Integers, TLC

L == 6          \* our validity
M == 2          \* our margin: belief ends at L - M, for our clock is right
S == 2
R == 1
Half == 1       \* the drift that Hudi allows for, 0.5 s
Wrong == 8      \* how far a Date may be ahead that our clock does not agree with
Last == 14
Rules == {"published end", "whole lease", "skew", "longer observation", "published later", "witness",
          "clock of Hudi", "validity of Hudi", "end of Hudi"}

VARIABLES
    now,        \* true time
    object,     \* its kind, when it was written, and the end that was published
    ours,       \* until when we believe; 0: we do not
    hudi,       \* until when it writes under the lock; 0: it does not
    seen,       \* since when we have observed this version; -1: not at all
    clock,      \* of Hudi: how far it is ahead
    validity,   \* of Hudi
    taken,      \* we have taken the lock over from Hudi
    without     \* the rule or assumption that is left out

vars == <<now, object, ours, hudi, seen, clock, validity, taken, without>>
Has(rule) == rule \notin without
Max(a, b) == IF a > b THEN a ELSE b

\* A clock that is far behind is worth a validity that is no longer than ours; one that is ahead, the margin.
Assumed(c, v) ==
    /\ Has("clock of Hudi") => c <= M + Half
    /\ Has("validity of Hudi") => (c >= -Half \/ v <= L)

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ clock \in {-4, 0, M + Half, M + Half + 2} /\ validity \in {L - 1, L + 2} /\ Assumed(clock, validity)
    /\ now = 1 /\ object = [kind |-> "none", at |-> 0, until |-> 0]
    /\ ours = 0 /\ hudi = 0 /\ seen = -1 /\ taken = FALSE

Write(kind, until) == object' = [kind |-> kind, at |-> now, until |-> until] /\ seen' = -1

(* --------------------------------- ours -------------------------------- *)

Slack == IF Has("skew") THEN S + R ELSE 0
End == IF Has("published end") THEN object.until + Half ELSE 0
Lease == IF Has("whole lease") THEN object.at - R + L ELSE 0

\* (8) By a Date: only one that our clock agrees with.
Dated == \E date \in {now + S, now + Wrong} :
    /\ Has("witness") => date <= now + S + R
    /\ date > Slack + IF object.kind = "hudi" THEN Max(End, Lease) ELSE object.at - R + L

\* Or by observation, for as long as the record says by itself.
Observed == seen >= 0 /\ now - seen >=
    IF object.kind = "hudi" /\ Has("longer observation")
    THEN Max(L, object.until + Half - (object.at + S) + S + R) ELSE L

\* (4) What is published lies after belief by any clock within S: store time is ahead of it by S at most.
Publish == Write("ours", now - S + L + IF Has("published later") THEN S ELSE -M)

Take ==
    /\ ours = 0 /\ (object.kind \in {"none", "free"} \/ Dated \/ Observed)
    /\ Publish /\ ours' = now + L - M
    /\ taken' = (taken \/ object.kind = "hudi")
    /\ UNCHANGED <<now, hudi, clock, validity, without>>

Renew ==
    /\ now < ours /\ object.kind = "ours"
    /\ Publish /\ ours' = now + L - M
    /\ UNCHANGED <<now, hudi, clock, validity, taken, without>>

Observe ==
    /\ ours = 0 /\ seen = -1 /\ object.kind = "hudi" /\ seen' = now
    /\ UNCHANGED <<now, object, ours, hudi, clock, validity, taken, without>>

Release ==
    /\ now < ours /\ object.kind = "ours" /\ Write("free", object.until) /\ ours' = 0
    /\ UNCHANGED <<now, hudi, clock, validity, taken, without>>

(* --------------------------------- Hudi -------------------------------- *)

\* Who does not notice a loss goes on for longer than it has published.
Writes == now + validity + IF Has("end of Hudi") THEN 0 ELSE L

HudiTake ==
    /\ hudi = 0 /\ (object.kind \in {"none", "free"} \/ now + clock > object.until + Half)
    /\ Write("hudi", now + clock + validity) /\ hudi' = Writes
    /\ UNCHANGED <<now, ours, clock, validity, taken, without>>

HudiRenew ==
    /\ now < hudi /\ object.kind = "hudi"
    /\ Write("hudi", now + clock + validity) /\ hudi' = Writes
    /\ UNCHANGED <<now, ours, clock, validity, taken, without>>

HudiRelease ==
    /\ now < hudi /\ object.kind = "hudi" /\ Write("free", object.until) /\ hudi' = 0
    /\ UNCHANGED <<now, ours, clock, validity, taken, without>>

\* Each end comes by itself; its owner may also have died.
Tick ==
    /\ now < Last /\ now' = now + 1
    /\ ours' = IF ours <= now + 1 THEN 0 ELSE ours
    /\ hudi' = IF hudi <= now + 1 THEN 0 ELSE hudi
    /\ UNCHANGED <<object, seen, clock, validity, taken, without>>

OneBeliever == ours = 0 \/ hudi = 0
Safe == OneBeliever
Reached == taken
Next == Safe /\ (Take \/ Renew \/ Observe \/ Release \/ HudiTake \/ HudiRenew \/ HudiRelease \/ Tick)
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
